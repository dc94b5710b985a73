"""A real server's answers, sent through the engine: what a worker and a call make of them, under a pushed clock."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from perdure.engine.attempt.threads import Threads
from perdure.engine.call import Call, CallTerms, Try
from perdure.engine.observe import Observers
from perdure.engine.run import Stopping, run
from perdure.engine.stages import Stage
from perdure.model.errors import AnswerError
from perdure.model.nouns import replace
from perdure.model.outcomes import Outcome
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.model.workers import Role
from perdure.rules.policy import Policy
from perdure.testing import Answer, Upstream
from tests.engine.kit import Shop, line_on, stage, until
from tests.sdks.kit import load
from tests.stores.kit import MEMORY, Place

httpx = load("httpx")

LEASE_S = 21_600.0
PATIENT_S = 20.0


THREADS = Threads(1)


@dataclass(frozen=True)
class Gateway:
    """A server that answers by script, a real client, and the stores in which its jobs are kept.

    Jobs that a call hands over stay queued, so calls and workers have stores of their own.
    """

    upstream: Upstream
    client: Any
    places: dict[str, Place] = field(default_factory=dict)
    sent: list[Any] = field(default_factory=list)

    def script(self, *answers: Answer) -> None:
        self.sent.clear()
        self.upstream.script(*answers)

    def place(self, whose: str, stage: str) -> Place:
        if whose not in self.places:
            self.places[whose] = Place(MEMORY, stages=tuple(dict.fromkeys(("one", stage))))
        return self.places[whose]


@dataclass(frozen=True)
class Told:
    """What became of a job, and what it cost: the calls made, the waits between them, what users read."""

    calls: int
    waits_s: tuple[float, ...]
    state: str
    reason: str | None
    code: str | None
    message: str | None
    due_in_s: float | None
    codes: tuple[str | None, ...]
    kind: str | None = None


@contextmanager
def gateway() -> Iterator[Gateway]:
    """A server, and a client of it."""
    with Upstream() as upstream, httpx.Client(base_url=upstream.url, trust_env=False) as client:
        running = Gateway(upstream, client)
        yield running
        for place in running.places.values():
            place.close()


def asking(gateway: Gateway, *, read_s: float = PATIENT_S) -> Callable[[Any], str]:
    """A stage that asks a real server through a real client, and raises what is not welcome."""

    def ask(item: Any) -> str:
        timeout = httpx.Timeout(PATIENT_S, read=read_s)
        gateway.sent.append(item)
        answer = gateway.client.post("/v1/ai/generate-text", json={"n": 1}, timeout=timeout)
        answer.raise_for_status()
        if "error" in answer.json():
            raise AnswerError(answer)
        return answer.text

    return ask


def worked(
    gateway: Gateway, policy: Policy, call: Callable[..., Any], *, name: str = "one"
) -> Told:
    """What a worker makes of it, from the first attempt to the last."""
    place = gateway.place(f"worker at {name}", name)
    shop = Shop(stage(name, call, policy=policy), place=place)
    waits_s: list[float] = []
    id = place.put(stage=name, lane=place.lanes[name]).id
    while True:
        shop.pump.once()
        (claim,) = shop.running.values()
        shop.finish(claim, _outcome(claim, shop.line.stage(name)), 0.0)
        shop.pump.once()
        job = place.see(id)
        if job.state is not State.QUEUED:
            return _told(place, job, gateway, waits_s)
        waits_s.append((job.due_at - shop.clock.now()).total_seconds())
        shop.clock.push(waits_s[-1])


def called(
    gateway: Gateway,
    policy: Policy,
    call: Callable[..., Any],
    *,
    own: Policy | None = None,
    named: bool = True,
) -> Told:
    """What a call makes of it, until it is over; ``own`` is the policy of the stage."""
    place = gateway.place("caller", "one")
    one = stage("one", call) if own is None else stage("one", call, policy=own)
    caller = place.hire(role=Role.CALLER, ttl_s=LEASE_S)
    terms = CallTerms(policy, 60.0, named=named)
    steps = Call(
        place.store,
        place.reader,
        line_on(place, one),
        place.new(),
        terms,
        worker=caller,
        clock=place.clock,
        chance=Random(7),
        observers=Observers([]),
    )
    waits_s: list[float] = []
    step = steps.begin()
    while isinstance(step, Try):
        if step.pause_s:
            waits_s.append(step.pause_s)
            place.clock.push(step.pause_s)
        step = steps.end_stage(_outcome(step.claim, step.stage), 0.0)
    told = _told(place, place.see(step.job_id), gateway, waits_s)
    state = "handed_over" if step.handed_over else told.state
    return replace(told, state=state, due_in_s=step.due_in_s)


def _outcome(claim: Any, ran: Stage | None) -> Outcome:
    assert ran is not None
    return asyncio.run(run(claim, ran, THREADS, Stopping()))


def _told(place: Place, job: JobView, gateway: Gateway, waits_s: list[float]) -> Told:
    attempts, asked = place.reader.attempts(job.no), gateway.upstream.requests
    until(lambda: len(asked) >= len(gateway.sent), "the server has read what was sent to it")
    return Told(
        calls=len(asked),
        waits_s=tuple(waits_s),
        state=job.state.value,
        reason=None if job.failed_reason is None else job.failed_reason.value,
        code=job.error_code,
        message=job.error_message,
        due_in_s=None,
        codes=tuple(one.code for one in attempts),
        kind=job.error_kind,
    )
