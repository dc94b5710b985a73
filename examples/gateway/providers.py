"""The providers behind the gateway: each an OpenAI-compatible server, local or in the cloud, and how it has been lately.

A provider is called once for each request: whoever calls the gateway decides about another try. What goes wrong becomes one of
the nine codes, as Perdure reads it, and of what the provider said only its status, its code and its wait are kept.
"""

import asyncio
import os
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2
import msgspec

from perdure import Alias, ConfigError, OutputError, Setting, load_settings, meaning_of
from perdure.checks import read_json

from .schemas import AIFailure, Ask, Generated, Usage

SNAPSHOT_S = 30.0  # how old what is told of a provider's health may be
PROBE_S = 5.0  # for a look at its health; the API waits twice as long for all of them
UNHEALTHY_AFTER = 3  # failures in a row

PROVIDERS = Setting("providers", str, "", "names", "The providers' names, as in local,cloud.")
NAMES = Alias(PROVIDERS, variable="AI_PROVIDERS", needed=True)
URL = Setting("url", str, "", "URL", "Where its API is.")
TIMEOUT_S = Setting("timeout_s", float, 30.0, "seconds", "How long it may take.", 0.001, 3_600)

# What says that the provider itself is unwell; a rate limit or a refusal is an answer.
UNWELL = {"INVALID_UPSTREAM_RESPONSE", "TIMEOUT", "UPSTREAM_UNAVAILABLE", "UPSTREAM_ERROR", "UNKNOWN"}  # fmt: skip


@dataclass
class Health:
    """The latest calls of a provider, as far as they tell how it is."""

    consecutive_failures: int = 0
    last_code: str | None = None
    checked_at: datetime | None = None
    looked_s: float = float("-inf")

    def is_fresh(self) -> bool:
        return time.monotonic() - self.looked_s < SNAPSHOT_S

    def note(self, code: str | None) -> None:
        """A call has ended well, or with this code."""
        self.consecutive_failures = self.consecutive_failures + 1 if code in UNWELL else 0
        self.last_code = code
        self.checked_at, self.looked_s = datetime.now(UTC), time.monotonic()


@dataclass
class Provider:
    """One provider. Without an address or a key it is known, and cannot be used."""

    name: str
    url: str
    key: str = field(repr=False)
    model: str
    timeout_s: float
    health: Health = field(default_factory=Health)

    async def generate(self, client: httpx2.AsyncClient, ask: Ask) -> Generated:
        """The text that the provider writes; raises `AIFailure`."""
        return await self._noted(self._generate(client, ask))

    async def check_health(self, client: httpx2.AsyncClient) -> None:
        """Ask the provider for its models, unless what is known is fresh or there is nobody to ask."""
        if self.url and self.key and not self.health.is_fresh():
            with suppress(AIFailure):
                await self._noted(self._send(client, "/models", min(self.timeout_s, PROBE_S)))

    async def _noted(self, call: Awaitable[Any]) -> Any:
        """What comes of a call, kept in mind."""
        try:
            answer = await call
        except AIFailure as failure:
            self.health.note(failure.code)
            raise
        self.health.note(None)
        return answer

    async def _generate(self, client: httpx2.AsyncClient, ask: Ask) -> Generated:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": ask.prompt}],
            "max_tokens": ask.max_tokens,
        }
        if ask.schema is not None:
            form = {"name": "answer", "schema": ask.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        answer = await self._send(client, "/chat/completions", self.timeout_s, body)
        try:
            told = msgspec.json.decode(answer.content)
            choice, used = told["choices"][0], told.get("usage") or {}
            usage = Usage(used.get("prompt_tokens", 0), used.get("completion_tokens", 0))
            said = Generated(choice["message"]["content"], self.name, self.model, usage)
            generated = msgspec.convert(msgspec.to_builtins(said), Generated)  # looked into again
            if ask.schema is not None:
                read_json(generated.text, ask.schema, finish_reason=choice.get("finish_reason"))
            return generated
        except OutputError as wrong:
            reason = str(wrong)[:200]
        except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, ValueError, RecursionError):  # fmt: skip
            reason = "no chat completion"
        message = "The provider's answer is not what was asked for."
        raise self._failure("INVALID_UPSTREAM_RESPONSE", message, reason=reason)

    async def _send(
        self, client: httpx2.AsyncClient, path: str, timeout_s: float, body: object = None
    ) -> httpx2.Response:
        missing = [variable(self.name, one) for one in ("url", "key") if not getattr(self, one)]
        if missing:
            message = "The gateway's access to this provider is not set up."
            raise self._failure("CONFIG_MISSING", message, setting=missing)
        method, url = "POST" if body else "GET", f"{self.url.rstrip('/')}{path}"
        key = {"authorization": f"Bearer {self.key}"}
        try:
            async with asyncio.timeout(timeout_s):  # for all of it, however slowly it comes
                answer = await client.request(method, url, json=body, headers=key, timeout=None)
            return answer.raise_for_status()
        except (httpx2.HTTPError, TimeoutError) as error:
            raise self._told_on(error) from None

    def _told_on(self, error: Exception) -> AIFailure:
        """A refusal, or the lack of an answer, as Perdure reads it, in the words of the schema."""
        meant, details = meaning_of(error, "gateway-worker"), {}
        if isinstance(error, httpx2.HTTPStatusError):
            said = {"upstreamStatus": meant.status, "upstreamCode": upstream_code(error.response)}
            details = {name: value for name, value in said.items() if value is not None}
        failure = self._failure(meant.code, meant.message, **details)
        if meant.code == "RATE_LIMITED" and meant.wait_s is not None:
            failure.more["retry_after_ms"] = round(meant.wait_s * 1_000)
        return failure

    def _failure(self, code: str, message: str, **details: Any) -> AIFailure:
        more = {"details": details} if details else {}
        return AIFailure(code, message, provider=self.name, **more)


def upstream_code(answer: httpx2.Response) -> str | None:
    """The provider's own code, if its answer is an error object."""
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        code = answer.json()["error"]["code"]
        return code if isinstance(code, str) else None
    return None


def variable(name: str, field: str) -> str:
    """The name of a provider's setting in the environment."""
    return f"AI_{name.upper().replace('-', '_')}_{field.upper()}"


def names_in(told: str) -> list[str]:
    """The names in `AI_PROVIDERS`, each once."""
    names = told.replace(",", " ").split()
    if not names or len({*names}) < len(names):
        raise ConfigError(f"AI_PROVIDERS is {told!r}; it must name providers, each once, as in a,b")
    return names


def read_providers() -> dict[str, Provider]:
    """The providers that `AI_PROVIDERS` names, each with its own variables."""
    found = {}
    for name in names_in(load_settings([NAMES])[PROVIDERS]):
        where = Alias(URL, variable=variable(name, "url"), begins=("http://", "https://"))
        timeout = Alias(TIMEOUT_S, variable=variable(name, "timeout_ms"), unit="ms")
        settings = load_settings([where, timeout])
        key, model = (os.environ.get(variable(name, one), "") for one in ("key", "model"))
        if not (key.isascii() and key.isprintable()) or key != key.strip():
            raise ConfigError(f"{variable(name, 'key')} has something in it that no header may have, or a blank at an end")  # fmt: skip
        found[name] = Provider(name, settings[URL], key, model, settings[TIMEOUT_S])
    return found
