"""The API: a text now, while its user waits a little; or a job that a worker goes on with.

    uvicorn --factory gateway.api:make_api

Tries, waits and hand-over are decided by the preset `gateway-sync`. Every answer that is no text, and no job, is the one error object.
"""

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure import ConfigError, JobFailed, JobRef, JsonFormatter, Settings, State, UnknownName
from perdure.http import request_id_of, take_bytes

from .answers import BODY_BYTES_MAX, HANDLERS, HEALTH, as_json, new_client
from .app import GATEWAY_URL, WAIT_S, make_texts, read_settings
from .schemas import AIFailure, invalid, read_ask


def make_api(settings: Settings | None = None) -> Starlette:
    """The ASGI application, with the settings of the environment unless others are given."""
    try:
        if settings is None:
            settings = read_settings()
            log_as_json()
        api = API(settings)
    except ConfigError as wrong:
        sys.exit(f"api: {wrong}")
    return Starlette(
        routes=[
            Route("/v1/ai/generate-text", api.generate_text, methods=["POST"]),
            Route("/v1/ai/jobs/{id:uuid}", api.tell_job),  # a number could be guessed
            Route("/v1/ai/status", api.ask_gateway),
            Route("/internal/gateway/health", api.ask_gateway),
            *HEALTH,
        ],
        exception_handlers=HANDLERS,
        lifespan=api.lifespan,
    )


class API:
    """What the endpoints share."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._texts = make_texts(settings)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Open the store before the first request, and close it after the last."""
        await run_in_threadpool(self._texts.app.ready)
        yield
        await run_in_threadpool(self._texts.app.close)

    async def generate_text(self, request: Request) -> Response:
        """``POST /v1/ai/generate-text``: 200 with the text, 202 with a job, or an error.

        ``Prefer: respond-async`` leaves it to a worker at once; the same ``Idempotency-Key`` is the same job, of the same request.
        """
        ask = read_ask(await take_bytes(request, BODY_BYTES_MAX))
        pipeline = self._texts.pipeline_of(ask)
        if pipeline is None:
            raise invalid("the gateway has no such provider")
        item = msgspec.to_builtins(ask)
        key = request.headers.get("idempotency-key")
        whose: dict[str, Any] = {"key": key, "request_id": request_id_of(request)}
        if "respond-async" in request.headers.get("prefer", ""):
            job = await pipeline.enqueue_async(item, **whose)
            await check_key(key, job, item)
            return self._promise(request, job.id, 0.0)
        try:
            called = await pipeline.call_async(item, wait_s=self._settings[WAIT_S], **whose)
        except JobFailed as failed:
            await check_key(key, await self._texts.app.job_async(failed.job_id or ""), item)
            raise failure_of(failed.public_code, failed.public_message) from None
        await check_key(key, called.job, item)
        if called.done:
            return as_json(called.value, request=request)
        return self._promise(request, called.job.id, called.due_in_s or 0.0)

    def _promise(self, request: Request, job_id: str, due_in_s: float) -> Response:
        told = {"job": job_id, "status": "queued", "retryAfterMs": round(due_in_s * 1_000)}
        return as_json(told, 202, request=request, location=f"/v1/ai/jobs/{job_id}")

    async def tell_job(self, request: Request) -> Response:
        """``GET /v1/ai/jobs/{id}``: the text, or how far it is, or the error that it has ended with."""
        try:
            job = await self._texts.app.job_async(str(request.path_params["id"]))
            view = await job.view_async()
        except UnknownName:
            raise AIFailure("INVALID_REQUEST", "There is no such job.", http_status=404) from None
        if view.state is State.SUCCEEDED:
            return as_json(json.loads(view.result_json or "null"), request=request)
        if view.state in (State.FAILED, State.CANCELLED):
            raise failure_of(view.error_code, view.error_message)
        last = {"lastError": view.error_code} if view.error_code else {}
        told = {"job": view.id, "status": view.state.value, "attempts": view.counters.failures}
        return as_json(told | last, 202, request=request)

    async def ask_gateway(self, request: Request) -> Response:
        """``GET /v1/ai/status`` and ``/internal/gateway/health``: what the gateway says of itself."""
        path = "/health" if request.url.path.endswith("/health") else request.url.path
        try:
            async with new_client(timeout=10.0) as client:
                answer = await client.get(f"{self._settings[GATEWAY_URL].rstrip('/')}{path}")
            told = msgspec.json.decode(answer.raise_for_status().content)
        except (httpx2.HTTPError, msgspec.DecodeError, UnicodeDecodeError):
            message = "The gateway cannot be reached, or somebody else answers in its place."
            raise AIFailure("UPSTREAM_UNAVAILABLE", message) from None
        return as_json(told, request=request)


async def check_key(key: str | None, job: JobRef, item: dict[str, Any]) -> None:
    """Refuse a key whose job was made for another request: nothing of it is told."""
    if key is None:
        return
    made = [await job.view_async(), *await job.payloads_async()]  # it may have been corrected since
    text_of = msgspec.json.Encoder(order="sorted").encode  # in Python, 1 is True
    if text_of(item) not in [text_of(json.loads(one.payload_json)) for one in made]:
        message, field = "The key belongs to another request.", {"field": "Idempotency-Key"}
        raise AIFailure("INVALID_REQUEST", message, http_status=422, details=field)


def failure_of(code: str | None, message: str | None) -> AIFailure:
    """A job that has ended without a text, in the words of the schema; one that was cancelled has none of its own."""
    return AIFailure(code or "INTERNAL_ERROR", message or "The request was cancelled.")


def log_as_json() -> None:
    """Write what Perdure and this service tell to standard error; retries have the fields of the document."""
    lines = logging.StreamHandler()
    lines.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    for name in ("perdure", "gateway"):
        logging.getLogger(name).setLevel(logging.INFO)
