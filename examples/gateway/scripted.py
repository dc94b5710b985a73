"""A provider that fails by script, for trials: what it does to a prompt stands in the prompt itself.

    script: 429 after=2, 503, ok | write a line about rain

Each call of that prompt takes the next step, and the last one is repeated. Steps: ``ok``; a status, with ``after=SECONDS`` and
``date=SECONDS`` for both forms of Retry-After; ``hang``; ``nonsense``, no completion; ``drift``, JSON of another form;
``cut``, half of it; ``loud``, a 500 whose code breaks every bound; ``hold``, a text, but not before ``POST /release``.
``GET /calls`` counts what was asked, ``GET /faults`` what struck.
``POST /storm`` with {"refusals": 12, "after": "2"} answers the next twelve calls, whatever they ask, with a 429.
"""

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

KEY = "sk-scripted-0123456789abcdef"
WRONG = {"nonsense": "it is raining", "drift": '{"weather": 1}', "cut": '{"line": "it ra'}


def make_provider() -> Starlette:
    """An OpenAI-compatible server with a model of its own."""
    provider = Scripted()
    return Starlette(
        routes=[
            Route("/v1/chat/completions", provider.complete, methods=["POST"]),
            Route("/v1/models", provider.models),
            Route("/storm", provider.begin_storm, methods=["POST"]),
            Route("/release", provider.release, methods=["POST"]),
            Route("/calls", provider.tell_calls),
            Route("/faults", provider.tell_faults),
        ]
    )


class Scripted:
    """What it was asked, and what it did wrong."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.refusals, self.after = 0, "1"
        self.released = asyncio.Event()

    async def complete(self, request: Request) -> Response:
        """One call."""
        asked = await request.json()
        prompt = asked["messages"][-1]["content"]
        self.calls[prompt] += 1
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return refuse(401, "invalid_api_key")
        step, *options = step_of(prompt, self.calls[prompt]).split()
        if self.refusals > 0:
            self.refusals -= 1
            step, options = "429", [f"after={self.after}"]
        if step != "ok":
            self.faults[step] += 1
        if step == "hang":
            await request.receive()  # nothing comes before the caller gives up
        if step == "hold":
            await self.released.wait()
        if step == "loud":
            return refuse(500, "x" * 300)
        if step.isdecimal():
            return refuse(int(step), f"scripted_{step}", **dict(one.split("=") for one in options))
        return complete(WRONG.get(step) or '{"line": "It rains."}', step)

    async def models(self, request: Request) -> Response:
        """Which models there are; whoever asks learns that it lives."""
        return JSONResponse({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    async def begin_storm(self, request: Request) -> Response:
        """Refuse so many calls from now on, each with this wait."""
        told = await request.json()
        self.refusals, self.after = told["refusals"], told["after"]
        return JSONResponse(told)

    async def release(self, request: Request) -> Response:
        """Answer what is held, and hold nothing from now on."""
        self.released.set()
        return Response()

    async def tell_calls(self, request: Request) -> Response:
        return JSONResponse(self.calls)

    async def tell_faults(self, request: Request) -> Response:
        return JSONResponse(self.faults)


def step_of(prompt: str, call: int) -> str:
    """What happens at the n-th call of a prompt."""
    script, bar, _ = prompt.partition("|")
    if not bar or not script.startswith("script:"):
        return "ok"
    steps = [one.strip() for one in script.removeprefix("script:").split(",")]
    return steps[min(call, len(steps)) - 1]


def refuse(status: int, code: str, after: str = "", date: str = "") -> Response:
    """An error as providers tell it, with more than may be told on."""
    said = {"code": code, "message": f"Refused; your key was {KEY}.", "type": "scripted"}
    wait = {"retry-after": after} if after else {}
    if date:
        at = datetime.now(UTC) + timedelta(seconds=int(date))
        wait = {"retry-after": format_datetime(at, usegmt=True)}
    return JSONResponse({"error": said}, status, wait)


def complete(text: str, step: str) -> Response:
    """A chat completion; of a nonsensical one nothing but the text."""
    if step == "nonsense":
        return Response(text)
    reason = "length" if step == "cut" else "stop"
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    said = {"object": "chat.completion", "model": "scripted", "choices": [choice], "usage": usage}
    return Response(json.dumps(said), media_type="application/json")
