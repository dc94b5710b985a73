"""The gateway: one door to all providers, one error schema, a response cache, and what is known of the providers' health.

    AI_PROVIDERS=local AI_LOCAL_URL=… AI_LOCAL_KEY=… AI_LOCAL_MODEL=… uvicorn --factory gateway.gateway:make_gateway

It never tries anything again by itself. There is one place for that, and it is in front of it: app.py.
"""

import hashlib
import logging
import secrets
import ssl
import sys
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure import ConfigError

from .providers import UNHEALTHY_AFTER, Provider, providers_in
from .schemas import (
    AIErrorResponse,
    AIFailure,
    Ask,
    Generated,
    Id,
    as_sent,
    error_of,
    read_ask,
)

log = logging.getLogger("gateway")
KEPT_S = 3_600.0  # the document's hour
KEPT_MAX = 10_000  # answers
# A connection that is kept may be closed by the other side just when a call is sent: each call makes its own.
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
TLS = ssl.create_default_context()  # takes longer than a call: made once


def make_gateway(providers: Mapping[str, Provider] | None = None) -> Starlette:
    """The ASGI application, with the providers of the environment unless others are given."""
    try:
        gateway = Gateway(providers_in() if providers is None else providers)
    except ConfigError as wrong:
        sys.exit(f"gateway: {wrong}")
    return Starlette(
        routes=[
            Route("/v1/ai/generate-text", gateway.generate_text, methods=["POST"]),
            Route("/v1/ai/status", gateway.tell_status),
            Route("/health", tell_health),
            Route("/healthz", tell_health),
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
        self._providers = providers
        self._cache = Cache()
        self._client: httpx2.AsyncClient

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with new_client() as self._client:
            yield

    async def generate_text(self, request: Request) -> Response:
        """``POST /v1/ai/generate-text``: a text of the provider that is asked for, from the cache where it is there."""
        ask = read_ask(await request.body())
        provider = self._provider(ask.provider)
        key = cache_key(provider, ask)
        generated = self._cache.get(key)
        if generated is None:
            generated = await provider.generate(self._client, ask)
            self._cache.put(key, generated)
        return as_json(generated, request=request)

    def _provider(self, name: str) -> Provider:
        if not name:
            return next(iter(self._providers.values()))
        if name not in self._providers:
            known = {"field": "provider", "reason": f"one of: {', '.join(self._providers)}"[:200]}
            raise AIFailure("INVALID_REQUEST", "There is no such provider.", details=known)
        return self._providers[name]

    async def tell_status(self, request: Request) -> Response:
        """``GET /v1/ai/status``: how each provider is, no older than half a minute."""
        told = []
        for one in self._providers.values():
            await one.check_health(self._client)
            told.append(
                {
                    "name": one.name,
                    "configured": bool(one.url and one.key),
                    "healthy": one.health.consecutive_failures < UNHEALTHY_AFTER,
                    "consecutiveFailures": one.health.consecutive_failures,
                    "lastCode": one.health.last_code,
                    "checkedAt": one.health.checked_at,
                }
            )
        kept = {"entries": len(self._cache), "hits": self._cache.hits}
        return as_json({"providers": told, "cache": kept}, request=request)


def new_client(**options: Any) -> httpx2.AsyncClient:
    """A client for other services."""
    return httpx2.AsyncClient(limits=LIMITS, verify=TLS, **options)


def cache_key(provider: Provider, ask: Ask) -> str:
    """What two requests must have in common to have the same answer."""
    asked = [provider.name, provider.model, ask.prompt, ask.max_tokens, ask.schema]
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()


# -- what both services answer with --------------------------------------------------------


async def tell_health(request: Request) -> Response:
    """``GET /health``: the process lives."""
    return as_json({"status": "ok"}, request=request)


def request_id_of(request: Request) -> str:
    """The id of the request: the caller's, where it is sane, else one of ours."""
    if not hasattr(request.state, "id"):
        try:
            request.state.id = msgspec.convert(request.headers.get("x-request-id"), Id)
        except msgspec.ValidationError:
            request.state.id = secrets.token_hex(8)
    return str(request.state.id)


def as_json(told: object, status: int = 200, *, request: Request, **headers: str) -> Response:
    """An answer; every one has the id of its request."""
    headers = {"x-request-id": request_id_of(request), **headers}
    return Response(msgspec.json.encode(told), status, headers, "application/json")


async def tell_failure(request: Request, failure: Exception) -> Response:
    """An error as the schema has it; what nobody expected, or breaks the schema, is an INTERNAL_ERROR."""
    if isinstance(failure, HTTPException):
        failure = AIFailure("INVALID_REQUEST", "There is no such endpoint.", http_status=failure.status_code)  # fmt: skip
    if not isinstance(failure, AIFailure):
        failure = AIFailure("INTERNAL_ERROR", "Something went wrong inside.")
    error = as_sent(error_of(failure, request_id_of(request)))
    alarm = logging.ERROR if error.code in ("CONFIG_MISSING", "INTERNAL_ERROR") else logging.INFO
    broken = f" in place of a broken {failure.code}" if error.code != failure.code else ""
    log.log(alarm, "request %s: %s%s", error.id, error.code, broken)
    headers = {}
    if isinstance(error.retry_after_ms, int):
        headers["retry-after"] = str(-(-error.retry_after_ms // 1_000))
    return as_json(AIErrorResponse(error), error.http_status, request=request, **headers)


HANDLERS = {AIFailure: tell_failure, HTTPException: tell_failure, Exception: tell_failure}
