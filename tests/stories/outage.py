"""An outage suffered by two real workers, what it cost, and whether the simulator would have said so."""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from perdure.engine.gates import VERBS
from perdure.rules.gate import GateMove
from perdure.simulate import OutageCase, OutageRanges, outage_ranges
from tests.stories.ailing import Ailing
from tests.stories.kit import Story, WorkerProcess, until

SEEDS = 200
WIDER = 0.25
STALE_S = 1.0  # a worker knows of another's trip by then, whatever else the machine does
_AFTER_S = 120.0


@dataclass(frozen=True, slots=True)
class Toll:
    """What an outage has cost. ``drain_s`` is from its end to the last job."""

    calls_in_outage: int
    wasted: int
    drain_s: float
    states: dict[str, int]


@cache
def simulated(case: OutageCase) -> OutageRanges:
    """What the simulator says."""
    ranges = outage_ranges(case, seeds=SEEDS)
    print(f"FIGURE simulated, {case.jobs} jobs, {case.outage_s:g} s: {ranges}")
    return ranges


def strays(toll: Toll, ranges: OutageRanges) -> list[str]:
    """The numbers of a real run that are outside the simulator's ranges, widened."""
    assert ranges.drain_s is not None
    wanted = {
        "calls_in_outage": ranges.calls_in_outage,
        "wasted": ranges.wasted,
        "drain_s": ranges.drain_s,
    }
    return [name for name, one in wanted.items() if getattr(toll, name) not in one.widened(WIDER)]


def suffered(
    story: Story, case: OutageCase, pipeline: str, *, restart_s: float | None = None
) -> Toll:
    """All jobs wait, two workers begin, and the upstream is down from their first call on.

    With ``restart_s`` both workers are killed so long into the outage, and two others begin.
    """
    with Ailing(outage_s=case.outage_s, latency_s=case.latency_s, down_s=case.down_s) as upstream:
        story.settings["STORY_UPSTREAM"] = upstream.url
        story.enqueue(pipeline, [{"n": n} for n in range(case.jobs)], module="calls")
        workers = list(_crew(story, case, "first"))
        until("the first call", lambda: upstream.calls, within_s=60)
        if restart_s is not None:
            back_s = upstream.calls[0].at_s + restart_s
            until("time to restart", lambda: time.time() >= back_s, within_s=restart_s + 10)
            _kill(workers)
            list(_crew(story, case, "second"))
        states = story.all_ended(within_s=case.outage_s + _AFTER_S)
        until("the outage is over", lambda: upstream.well, within_s=case.outage_s + _AFTER_S)
        (last_us,) = story.rows("SELECT max(finished_at) FROM perdure_jobs")[0]
        toll = Toll(
            upstream.in_outage(), upstream.wasted(), last_us / 1e6 - upstream.well_from_s, states
        )
    print(f"FIGURE {pipeline}, {case.jobs} jobs, {case.outage_s:g} s: {toll}")
    return toll


def spent_while_held(story: Story) -> list[str]:
    """Attempts that cost their job a failure although the gate was not flowing; by the tables."""
    lines = story.rows(
        "SELECT done_at, verb FROM perdure_audit_log WHERE subject = 'model' ORDER BY no"
    )
    counted = story.rows(
        "SELECT claimed_at, settled_at FROM perdure_attempts WHERE counted = 'failures'"
    )
    held_us = shut([(at_us, verb) for at_us, verb in lines])
    return spent(held_us, [(claimed_us, settled_us) for claimed_us, settled_us in counted])


_SHUTS = {VERBS[move] for move in (GateMove.TRIP, GateMove.HINT, GateMove.HOLD)}
_OPENS = {VERBS[move] for move in (GateMove.FLOW, GateMove.RESUME, GateMove.RELEASE)}


def shut(lines: Iterable[tuple[int, str]]) -> list[tuple[int, int]]:
    """From each trip until the gate flows again, by the moments and verbs of the audit's lines."""
    found, from_us = [], None
    for at_us, verb in lines:
        if verb in _SHUTS and from_us is None:
            from_us = at_us
        elif verb in _OPENS and from_us is not None:
            found.append((from_us, at_us))
            from_us = None
    assert found, "the gate was never held"
    assert from_us is None, "the gate never flowed again"
    return found


def spent(held_us: Iterable[tuple[int, int]], counted: Sequence[tuple[int, int]]) -> list[str]:
    """Of attempts that were counted as failures, those begun while held, or settled long after the trip."""
    return [
        f"claimed {claimed_us - from_us:+} us and settled {settled_us - from_us:+} us from the trip"
        for from_us, until_us in held_us
        for claimed_us, settled_us in counted
        if from_us <= claimed_us < until_us or from_us + STALE_S * 1e6 < settled_us < until_us
    ]


def _kill(workers: Iterable[WorkerProcess]) -> None:
    """Supervisors first: none of them is to start another child. What the children had is left as it is."""
    children = [child.pid for worker in workers for child in worker.children()]
    for worker in workers:
        worker.kill(signal.SIGKILL)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _crew(story: Story, case: OutageCase, name: str) -> Iterator[WorkerProcess]:
    for number in range(case.fleet.workers):
        yield story.worker(
            f"{name}-{number}", module="calls", poll_s=case.fleet.poll_s,
            concurrency=case.fleet.concurrency,
        )  # fmt: skip
