"""The providers behind the gateway: each an OpenAI-compatible server, local or in the cloud, and how it has been lately.

A provider is called once for each request: whoever calls the gateway decides about another try. What goes wrong becomes one of
the nine codes here, and of what the provider said only its status, its code and its wait are kept.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import msgspec

from perdure import ConfigError, OutputError
from perdure.checks import read_json

from .schemas import AIFailure, Ask, Generated, Usage

SNAPSHOT_S = 30.0  # how old what is told of a provider's health may be
UNHEALTHY_AFTER = 3  # failures in a row

STATUS_CODES = {
    401: "CONFIG_MISSING", 402: "CONFIG_MISSING", 403: "CONFIG_MISSING", 408: "TIMEOUT", 429: "RATE_LIMITED",
    502: "UPSTREAM_UNAVAILABLE", 503: "UPSTREAM_UNAVAILABLE", 504: "TIMEOUT", 529: "UPSTREAM_UNAVAILABLE",
}  # fmt: skip
MESSAGES = {
    "RATE_LIMITED": "The provider asks for fewer requests.",
    "INVALID_UPSTREAM_RESPONSE": "The provider's answer is not what was asked for.",
    "TIMEOUT": "The provider did not answer in time.",
    "UPSTREAM_UNAVAILABLE": "The provider cannot be reached.",
    "UPSTREAM_ERROR": "The provider has failed.",
    "CONFIG_MISSING": "The gateway's access to this provider is not set up.",
    "INVALID_REQUEST": "The provider refuses this request.",
    "UNKNOWN": "The provider's answer has a status that nobody has a name for.",
}
# What says that the provider itself is unwell; a rate limit or a refusal is an answer.
UNWELL = frozenset({"INVALID_UPSTREAM_RESPONSE", "TIMEOUT", "UPSTREAM_UNAVAILABLE", "UPSTREAM_ERROR", "UNKNOWN"})  # fmt: skip


@dataclass
class Health:
    """The latest calls of a provider, as far as they tell how it is."""

    consecutive_failures: int = 0
    last_code: str | None = None
    checked_at: datetime | None = None
    _looked_s: float = field(default=float("-inf"), repr=False)

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self._looked_s < SNAPSHOT_S

    def note(self, code: str | None) -> None:
        """A call has ended well, or with this code."""
        self.consecutive_failures = self.consecutive_failures + 1 if code in UNWELL else 0
        self.last_code = code
        self.checked_at, self._looked_s = datetime.now(UTC), time.monotonic()


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
        """The text that the provider writes; raises `AIFailure`, and keeps in mind how it went."""
        try:
            generated = await self._generate(client, ask)
        except AIFailure as failure:
            self.health.note(failure.code)
            raise
        self.health.note(None)
        return generated

    async def _generate(self, client: httpx2.AsyncClient, ask: Ask) -> Generated:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": ask.prompt}],
            "max_tokens": ask.max_tokens,
        }
        if ask.schema is not None:
            form = {"name": "answer", "schema": ask.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        answer = await self._send(client, "POST", "/chat/completions", body)
        try:
            told = msgspec.json.decode(answer.content)
            choice = told["choices"][0]
            text = choice["message"]["content"]
            used = told.get("usage") or {}
            usage = Usage(used.get("prompt_tokens", 0), used.get("completion_tokens", 0))
            if ask.schema is not None:
                read_json(text, ask.schema, finish_reason=choice.get("finish_reason"))
            return msgspec.convert(Generated(text, self.name, self.model, usage), Generated)
        except OutputError as wrong:
            raise self._failure("INVALID_UPSTREAM_RESPONSE", reason=str(wrong)[:200]) from None
        except (msgspec.MsgspecError, LookupError, TypeError, AttributeError):
            raise self._failure("INVALID_UPSTREAM_RESPONSE", reason="no chat completion") from None

    async def check_health(self, client: httpx2.AsyncClient) -> None:
        """Ask the provider for its models, unless what is known is fresh or there is nobody to ask."""
        if self.health.is_fresh or not (self.url and self.key):
            return
        try:
            await self._send(client, "GET", "/models", None)
        except AIFailure as failure:
            self.health.note(failure.code)
        else:
            self.health.note(None)

    async def _send(
        self, client: httpx2.AsyncClient, method: str, path: str, body: Any
    ) -> httpx2.Response:
        missing = [one for one in ("url", "key") if not getattr(self, one)]
        if missing:
            settings = [variable(self.name, one) for one in missing]
            raise self._failure("CONFIG_MISSING", setting=settings)
        try:
            answer = await client.request(
                method,
                f"{self.url}{path}",
                json=body,
                headers={"authorization": f"Bearer {self.key}"},
                timeout=self.timeout_s,
            )
        except httpx2.TimeoutException:
            raise self._failure("TIMEOUT") from None
        except httpx2.TransportError:
            raise self._failure("UPSTREAM_UNAVAILABLE") from None
        if answer.status_code != 200:
            raise self._refusal(answer)
        return answer

    def _refusal(self, answer: httpx2.Response) -> AIFailure:
        """What another status than 200 means."""
        status = answer.status_code
        code = STATUS_CODES.get(status)
        if code is None:
            code = {4: "INVALID_REQUEST", 5: "UPSTREAM_ERROR"}.get(status // 100, "UNKNOWN")
        details: dict[str, Any] = {"upstreamStatus": status}
        if said := upstream_code(answer.content):
            details["upstreamCode"] = said
        failure = self._failure(code, **details)
        wait_ms = retry_after_ms(answer.headers, datetime.now(UTC))
        if code == "RATE_LIMITED" and wait_ms is not None:
            failure.more["retry_after_ms"] = wait_ms
        return failure

    def _failure(self, code: str, **details: Any) -> AIFailure:
        more = {"details": details} if details else {}
        return AIFailure(code, MESSAGES[code], provider=self.name, **more)


def upstream_code(body: bytes) -> str | None:
    """The provider's own code, if its answer is an error object."""
    try:
        code = msgspec.json.decode(body)["error"]["code"]
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError):
        return None
    return code if isinstance(code, str) else None


def retry_after_ms(headers: Mapping[str, str], now: datetime) -> int | None:
    """What `Retry-After` asks for, in seconds or as a date; None if it is absent or makes no sense."""
    told = headers.get("retry-after", "").strip()
    if told.isascii() and told.isdecimal():
        return int(told) * 1_000
    try:
        at = parsedate_to_datetime(told)
        return max(0, round((at - now).total_seconds() * 1_000))
    except (ValueError, TypeError, OverflowError):
        return None


def variable(name: str, field: str) -> str:
    """The name of a provider's setting in the environment."""
    return f"AI_{name.upper().replace('-', '_')}_{field.upper()}"


def providers_in(environment: Mapping[str, str] = os.environ) -> dict[str, Provider]:
    """The providers that AI_PROVIDERS names, each with its own variables."""
    found = {}
    for name in environment.get("AI_PROVIDERS", "").replace(",", " ").split():
        told = {one: environment.get(variable(name, one), "") for one in ("url", "key", "model")}
        timeout_s = milliseconds(environment, variable(name, "timeout_ms"), 30_000) / 1_000
        found[name] = Provider(name, **told, timeout_s=timeout_s)
    if not found:
        raise ConfigError("AI_PROVIDERS is not set; name the providers, as in local,cloud")
    return found


def milliseconds(environment: Mapping[str, str], name: str, default: int) -> int:
    """A time from the environment."""
    told = environment.get(name, str(default))
    if not (told.isascii() and told.isdecimal() and 0 < int(told) <= 3_600_000):
        raise ConfigError(f"{name} is {told!r}; write whole milliseconds from 1 to 3600000")
    return int(told)
