"""A model's provider with faults on demand and books of its own: it stands between the workers and a model, or answers by script.

    with Provider(key) as provider:            # by script
    with Provider(key, model.url) as provider:   # before a real one
        provider.plan("films/s7", FAULTS["500"], FAULTS["cut off"])

The first two calls about sample s7 meet these faults, in this order. A prompt that is too long is refused, as is a wrong key; while
`down` is set everything is. Each call is noted with what it is charged for: an answer that was made is, also when it was lost on its way.
GET /usage?dataset=films tells that by the number of the call about its sample.
"""

import json
import threading
from collections import Counter, defaultdict, deque
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from perdure.testing import HANGING, RESET, After, Answer, Request, Upstream

PROMPT_CHARS_MAX = 8_000
FORWARD_S_MAX = 600.0
USD_PER_MTOK_IN, USD_PER_MTOK_OUT = 0.15, 0.60
TOPICS = {"soup": "food", "train": "travel", "report": "work", "goal": "sport"}


class Fault(NamedTuple):
    """What a call meets. With ``charged`` the model answers first, and the answer is lost."""

    name: str
    answer: Answer
    charged: bool = False


def refusal(status: int, code: str, **headers: str) -> Answer:
    """A provider's answer that says no, in OpenAI's form."""
    told = {"error": {"message": "scripted", "type": code, "code": code}}
    return Answer(status, told, {name.replace("_", "-"): text for name, text in headers.items()})


FAULTS = {
    one.name: one
    for one in (
        Fault("429", refusal(429, "rate_limit_exceeded")),
        Fault("500", refusal(500, "server_error")),
        Fault("502", refusal(502, "bad_gateway")),
        Fault("503", refusal(503, "overloaded")),
        Fault("504", refusal(504, "gateway_timeout")),
        Fault("connection reset", RESET),
        Fault("cut off", Answer(200, '{"id": "scri', after=After.CUT), charged=True),
        Fault("no answer", HANGING),
    )
}


class Call(NamedTuple):
    """A line of the provider's books."""

    number: int  # of the call about its sample, from 1
    tokens_in: int = 0
    tokens_out: int = 0
    delivered: bool = True

    @property
    def nusd(self) -> int:
        """What it is charged with, in billionths of a dollar."""
        return round(1e3 * (self.tokens_in * USD_PER_MTOK_IN + self.tokens_out * USD_PER_MTOK_OUT))


class Provider(Upstream):
    """The provider, on the loopback."""

    def __init__(self, key: str, target: str | None = None, target_key: str = "") -> None:
        super().__init__()
        self.key, self.down = key, False
        self.struck: Counter[str] = Counter()
        self.calls: list[tuple[str, Call]] = []  # by request id
        self._target, self._target_key = None if target is None else urlsplit(target), target_key
        self._plans: dict[str, deque[Fault]] = defaultdict(deque)
        self._numbers: Counter[str] = Counter()
        self._guard = threading.Lock()

    def plan(self, request_id: str, *faults: Fault) -> None:
        """What calls about a sample are to meet, one after the other."""
        self._plans[request_id].extend(faults)

    def mend(self) -> None:
        """Forget what is planned and has not struck yet."""
        self._plans.clear()

    def usage(self, about: str | tuple[str, ...] = "") -> dict[str, Any]:
        """Its books of calls whose request id begins so: how many, charged, dollars and lost, by the number about its sample."""
        with self._guard:
            calls = [call for id, call in self.calls if id.startswith(about)]
        by_number: dict[int, list[Call]] = defaultdict(list)
        for one in calls:
            by_number[one.number].append(one)
        return {
            str(number): {
                "calls": len(made),
                "charged": sum(one.nusd > 0 for one in made),
                "lost": sum(not one.delivered for one in made),
                "cost_usd": sum(one.nusd for one in made) / 1e9,
            }
            for number, made in sorted(by_number.items())
        }

    def next_answer(self, request: Request) -> Answer:
        """The answer to a request, when it is in the books."""
        path, _, dataset = request.path.partition("?dataset=")
        if path == "/usage":
            return Answer(
                200,
                self.usage(tuple(f"{unquote(dataset)}{end}" for end in "/:") if dataset else ""),
            )
        about = request.headers.get("x-request-id", "")
        with self._guard:
            self._numbers[about] += 1
            number = self._numbers[about]
            fault = self._fault_of(about, request)
            if fault is not None:
                self.struck[fault.name] += 1
        answer, call = Answer(), Call(number)
        if fault is None or fault.charged:
            answer, used = self._complete(request)
            call = Call(number, used["prompt_tokens"], used["completion_tokens"], fault is None)
        with self._guard:
            self.calls.append((about, call))
        return answer if fault is None else fault.answer

    def _fault_of(self, about: str, request: Request) -> Fault | None:
        if self.down:
            return Fault("outage", refusal(503, "overloaded"))
        if request.headers.get("authorization") != f"Bearer {self.key}":
            return Fault("wrong key", refusal(401, "invalid_api_key"))
        if len(request.body) > PROMPT_CHARS_MAX:
            return Fault("prompt too long", refusal(400, "context_length_exceeded"))
        planned = self._plans.get(about)
        return planned.popleft() if planned else None

    def _complete(self, request: Request) -> tuple[Answer, dict[str, int]]:
        if self._target is None:
            return scripted(json.loads(request.body)["messages"][-1]["content"])
        onward = HTTPConnection(self._target.netloc, timeout=FORWARD_S_MAX)
        try:
            key = {"Authorization": f"Bearer {self._target_key}"}
            sent = {"Content-Type": "application/json", **key}
            onward.request("POST", f"{self._target.path}/chat/completions", request.body, sent)
            got = onward.getresponse()
            body = got.read()
            used = json.loads(body).get("usage", {"prompt_tokens": 0, "completion_tokens": 0})
            return Answer(got.status, body, {"Content-Type": "application/json"}), used
        finally:
            onward.close()


def scripted(text: str) -> tuple[Answer, dict[str, int]]:
    """A model's answer about a text, and what it has used."""
    topic = next((topic for word, topic in TOPICS.items() if word in text), "other")
    said = json.dumps({"topic": topic, "title": text[:40].strip() or "-"})
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": said},
    }
    used = {"prompt_tokens": len(text) // 4 + 1, "completion_tokens": len(said) // 4 + 1}
    return Answer(200, {"id": "scripted", "choices": [choice], "usage": used}), used
