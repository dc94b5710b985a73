"""A line with scripted faults: between the workers and the model, and between them and S3.

    with FaultyLine(model.url) as line:
        line.plan("POST", "talk.txt", FAULTS["500"], FAULTS["connection reset"])

The first two POSTs about talk.txt meet these faults, in this order; every other request is passed on. A request is about a file when
its path ends with the name, or its X-Request-Id. Without a target the line answers for itself: a model by script.
"""

import json
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from perdure.testing import HANGING, RESET, Answer, Request, Upstream

FORWARD_S_MAX = 600.0
HOP_BY_HOP = ("connection", "content-length", "expect", "keep-alive", "transfer-encoding")
GOOD_REPORT = {
    "title": "A talk",
    "summary": "Two people spoke.",
    "topics": ["talk"],
    "sentiment": "neutral",
}


class Fault(NamedTuple):
    """What happens to a request: something is done first, and an answer is given in place of the real one, if there is one.

    With ``passed_on`` the request is served all the same, and only its answer is lost.
    """

    name: str
    answer: Answer | None = None
    act: Callable[[], object] = lambda: None
    passed_on: bool = False


def completion(text: str, finish_reason: str = "stop") -> Answer:
    """A model's answer that says a text."""
    message = {"role": "assistant", "content": text}
    told = {"index": 0, "finish_reason": finish_reason, "message": message}
    usage = {"prompt_tokens": 50, "completion_tokens": 50, "total_tokens": 100}
    head = {"id": "scripted", "object": "chat.completion", "created": 0, "model": "scripted"}
    return Answer(200, {**head, "choices": [told], "usage": usage})


def refusal(status: int, code: str, **headers: str) -> Answer:
    """A provider's answer that says no, in OpenAI's form."""
    told = {"error": {"message": "scripted", "type": code, "code": code}}
    return Answer(status, told, {name.replace("_", "-"): text for name, text in headers.items()})


def s3_refusal(status: int, code: str) -> Answer:
    told = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>scripted</Message></Error>"
    return Answer(status, told, {"Content-Type": "application/xml"})


SLOW_DOWN = s3_refusal(503, "SlowDown")
FAULTS = {
    one.name: one
    for one in (
        Fault("429 with a hint", refusal(429, "rate_limit_exceeded", retry_after="1")),
        Fault("429 without a hint", refusal(429, "rate_limit_exceeded")),
        Fault("500", refusal(500, "server_error")),
        Fault("503", refusal(503, "overloaded")),
        Fault("connection reset", RESET),
        Fault("slow answer", HANGING),
        Fault("cut-off JSON", completion('{"title": "A talk", "summ', "length")),
        Fault("wrong schema", completion('{"headline": "A talk"}')),
        Fault("S3 SlowDown at a read", SLOW_DOWN),
        Fault("S3 SlowDown at a write", SLOW_DOWN),
    )
}


class FaultyLine(Upstream):
    """Passes requests on, but for those that a fault is planned for."""

    def __init__(self, target: str | None = None) -> None:
        super().__init__()
        self.struck: Counter[str] = Counter()
        self._target = None if target is None else urlsplit(target)
        self._plans: dict[tuple[str, str], deque[Fault]] = defaultdict(deque)
        self._guard = threading.Lock()

    def plan(self, method: str, file: str, *faults: Fault) -> None:
        """What requests about a file are to meet, one after the other."""
        self._plans[method, file].extend(faults)

    def next_answer(self, request: Request) -> Answer:
        """The answer to a request."""
        fault = self._fault_of(request)
        if fault is None:
            return self._forward(request)
        fault.act()
        if fault.answer is None:
            return self._forward(request)
        if fault.passed_on:
            self._forward(request)
        return fault.answer

    def _fault_of(self, request: Request) -> Fault | None:
        about = (unquote(request.path), request.headers.get("x-request-id", ""))
        with self._guard:
            self.requests.append(request)
            for (method, file), faults in self._plans.items():
                if faults and method == request.method and any(one.endswith(file) for one in about):
                    fault = faults.popleft()
                    self.struck[fault.name] += 1
                    return fault
        return None

    def _forward(self, request: Request) -> Answer:
        if self._target is None:
            return completion(json.dumps(GOOD_REPORT))
        onward = HTTPConnection(self._target.netloc, timeout=FORWARD_S_MAX)
        try:
            # The host stays as it was: it is part of what S3's clients sign.
            headers = {k: v for k, v in request.headers.items() if k not in HOP_BY_HOP}
            onward.request(request.method, request.path, request.body or None, headers)
            got = onward.getresponse()
            kept: dict[str, Any] = {
                name: text for name, text in got.getheaders() if name.lower() not in HOP_BY_HOP
            }
            return Answer(got.status, got.read(), kept)
        finally:
            onward.close()
