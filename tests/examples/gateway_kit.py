"""A gateway to be tried: a scripted provider, the gateway and the API on the loopback, and a worker, all in this process."""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
from examples.gateway.api import make_api
from examples.gateway.app import Texts, make_texts, read_settings
from examples.gateway.gateway import make_gateway
from examples.gateway.providers import Provider
from examples.gateway.scripted import KEY, make_provider

from perdure import JobRef, JsonFormatter, Settings
from tests.examples.converter_kit import FAR_S, served

FAR_MS = round(1_000 * FAR_S)
HASTY_S = 1.0  # the timeout of providers named `hasty…`: only for answers that never come


@dataclass
class Trial:
    """The running services and those who use them."""

    scripted: str
    gateway: str
    api: httpx2.Client
    texts: Texts

    def post(self, prompt: str, provider: str = "", *, later: bool = False, **more: Any) -> httpx2.Response:  # fmt: skip
        """Ask the API; ``later`` leaves it to a worker at once. ``x_request_id`` is a header."""
        headers = {"prefer": "respond-async"} if later else {}
        headers |= {"x-request-id": more.pop("x_request_id")} if "x_request_id" in more else {}
        body = {"prompt": prompt, "provider": provider, **more}
        return self.api.post("/v1/ai/generate-text", json=body, headers=headers)

    def job(self, answer: httpx2.Response) -> JobRef:
        """The job that an answer of the API promises."""
        assert answer.status_code == 202, answer.text
        return self.texts.app.job(answer.json()["job"])

    def told(self, answer: httpx2.Response) -> httpx2.Response:
        """What the API says of that job now."""
        return self.api.get(answer.headers["location"])

    def calls(self) -> dict[str, int]:
        """How often each prompt has come to the scripted provider."""
        found: dict[str, int] = httpx2.get(f"{self.scripted}/calls").json()
        return found


def error_in(answer: httpx2.Response) -> dict[str, Any]:
    """The error object of an answer, which is all of it; its status is the answer's."""
    told = answer.json()
    assert set(told) == {"error"}, told
    assert told["error"]["httpStatus"] == answer.status_code
    assert told["error"]["id"] == answer.headers["x-request-id"]
    error: dict[str, Any] = told["error"]
    return error


class Lines(logging.Handler):
    """What the services log, line by line, as it is written."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(JsonFormatter())
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))

    def retries(self, request_id: str) -> list[dict[str, Any]]:
        """The lines about tries again of one request."""
        return [one for one in self._retried(request_id) if one["failures"]]

    def hand_overs(self, request_id: str) -> list[dict[str, Any]]:
        """The line about its hand-over: it counts no failure, since the worker's counters begin at zero."""
        return [one for one in self._retried(request_id) if not one["failures"]]

    def _retried(self, request_id: str) -> list[dict[str, Any]]:
        lines = [json.loads(text) for text in list(self.texts)]
        mine = [one for one in lines if one.get("x-request-id") == request_id]
        return [one for one in mine if one["event"] == "job_retried"]


@contextmanager
def logged() -> Iterator[Lines]:
    """The log of Perdure and of both services while the block lasts."""
    lines = Lines()
    loggers = [logging.getLogger(name) for name in ("perdure", "gateway")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.addHandler(lines)
        one.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.removeHandler(lines)
            one.setLevel(level)


def settings_of(
    gateway: str, names: Sequence[str], store: Path, *, wait_ms: int = FAR_MS
) -> Settings:
    """The settings of an API or a worker: nothing in them is waited for, unless a user's wait is short."""
    told = {
        "AI_GATEWAY_URL": f"{gateway}/",  # a slash at the end does no harm
        "AI_PROVIDERS": ",".join(names),
        "AI_GATEWAY_TIMEOUT_MS": str(FAR_MS),
        "AI_WAIT_MS": str(wait_ms),
        "PERDURE_STORE": f"sqlite:///{store}",
    }
    with patch.dict(os.environ, told):
        return read_settings()


@contextmanager
def trial(
    folder: Path, names: Sequence[str], *, works: bool = True, wait_ms: int = FAR_MS
) -> Iterator[Trial]:
    """Everything, with providers of these names; one that begins with `unset` has no key."""
    with ExitStack() as stack:
        scripted = stack.enter_context(served(make_provider()))
        providers = {
            name: Provider(
                name,
                f"{scripted}/v1",
                "" if name.startswith("unset") else KEY,
                "scripted",
                timeout_s=HASTY_S if name.startswith("hasty") else FAR_S,
            )
            for name in names
        }
        gateway = stack.enter_context(served(make_gateway(providers)))
        settings = settings_of(gateway, names, folder / "perdure.db", wait_ms=wait_ms)
        address = stack.enter_context(served(make_api(settings)))
        texts = make_texts(settings)
        stack.callback(texts.app.close)
        api = stack.enter_context(httpx2.Client(base_url=address, timeout=2 * FAR_S))
        if works:
            stack.enter_context(texts.app.working(poll_s=0.05, grace_s=5.0))
        yield Trial(scripted, gateway, api, texts)
