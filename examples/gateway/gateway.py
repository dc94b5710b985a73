"""The gateway: one door to all providers, one error schema, a response cache, and what is known of the providers' health.

    AI_PROVIDERS=local AI_LOCAL_URL=… AI_LOCAL_KEY=… AI_LOCAL_MODEL=… uvicorn --factory gateway.gateway:make_gateway

It never tries anything again by itself. There is one place for that, and it is in front of it: app.py.
"""

import asyncio
import hashlib
import sys
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure import ConfigError
from perdure.http import take_bytes

from .answers import BODY_BYTES_MAX, HANDLERS, HEALTH, as_json, new_client
from .providers import UNHEALTHY_AFTER, Provider, read_providers
from .schemas import Ask, Generated, invalid, read_ask

KEPT_S = 3_600.0  # the document's hour
KEPT_MAX = 10_000  # answers


def make_gateway(providers: Mapping[str, Provider] | None = None) -> Starlette:
    """The ASGI application, with the providers of the environment unless others are given."""
    try:
        gateway = Gateway(read_providers() if providers is None else providers)
    except ConfigError as wrong:
        sys.exit(f"gateway: {wrong}")
    return Starlette(
        routes=[
            Route("/v1/ai/generate-text", gateway.generate_text, methods=["POST"]),
            Route("/v1/ai/status", gateway.tell_status),
            *HEALTH,
        ],
        exception_handlers=HANDLERS,
        lifespan=gateway.lifespan,
    )


class Cache:
    """Answers by what was asked, each kept for an hour; the one that was longest not asked for makes room."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Generated]] = OrderedDict()
        self.hits = 0

    def get(self, key: str) -> Generated | None:
        until_s, generated = self._kept.get(key, (0.0, None))
        if generated is None or until_s < time.monotonic():
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return msgspec.structs.replace(generated, cached=True)

    def put(self, key: str, generated: Generated) -> None:
        self._kept[key] = (time.monotonic() + KEPT_S, generated)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)


class Gateway:
    """What the endpoints share."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers, self._cache = providers, Cache()
        self._calls: dict[str, asyncio.Task[Generated]] = {}  # under way
        self._client: httpx2.AsyncClient

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with new_client() as self._client:
            yield
            for call in self._calls.values():
                call.cancel()

    async def generate_text(self, request: Request) -> Response:
        """``POST /v1/ai/generate-text``: a text of the provider that is asked for, from the cache where it is there."""
        ask = read_ask(await take_bytes(request, BODY_BYTES_MAX))
        provider = self._providers.get(ask.provider or next(iter(self._providers)))
        if provider is None:
            raise invalid(f"provider must be one of: {', '.join(self._providers)}")
        key = cache_key(provider, ask)
        generated = self._cache.get(key) or await self._join(key, provider, ask)
        return as_json(generated, request=request)

    async def _join(self, key: str, provider: Provider, ask: Ask) -> Generated:
        """The text or the error of the call under way, else of a new one; it goes on, and may fail, when all have left."""
        if joins := key in self._calls:
            self._cache.hits += 1
        else:
            call = self._calls[key] = asyncio.create_task(self._call(key, provider, ask))
            call.add_done_callback(lambda one: one.cancelled() or one.exception())
        generated = await asyncio.shield(self._calls[key])
        return msgspec.structs.replace(generated, cached=joins)

    async def _call(self, key: str, provider: Provider, ask: Ask) -> Generated:
        try:
            generated = await provider.generate(self._client, ask)
            self._cache.put(key, generated)
            return generated
        finally:
            del self._calls[key]

    async def tell_status(self, request: Request) -> Response:
        """``GET /v1/ai/status``: how each provider is, no older than half a minute."""
        await asyncio.gather(*(one.check_health(self._client) for one in self._providers.values()))
        told = [
            {
                "name": one.name,
                "configured": bool(one.url and one.key),
                "healthy": one.health.consecutive_failures < UNHEALTHY_AFTER,
                "consecutiveFailures": one.health.consecutive_failures,
                "lastCode": one.health.last_code,
                "checkedAt": one.health.checked_at,
            }
            for one in self._providers.values()
        ]
        kept = {"entries": len(self._cache), "hits": self._cache.hits}
        return as_json({"providers": told, "cache": kept}, request=request)


def cache_key(provider: Provider, ask: Ask) -> str:
    """What two requests must have in common to have the same answer."""
    asked = [provider.name, provider.model, ask.prompt, ask.max_tokens, ask.schema]
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()
