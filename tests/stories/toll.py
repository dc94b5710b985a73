"""A scene suffered by real workers, what it cost, and whether the simulator would have said so."""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from perdure.engine.gates.changes import VERBS
from perdure.model.nouns import replace
from perdure.rules.gate.gate import GateMove
from perdure.rules.policy import Policy
from perdure.rules.presets import preset
from perdure.simulate import Ranges, scene_ranges
from perdure.simulate.scene import Scene
from tests.stories.ailing import Ailing
from tests.stories.kit import Story, WorkerProcess, until

SEEDS = 200
WIDER = 0.25
HOLDS_WIDER = 0.5  # a few, each set off by chance
STALE_S = 1.0  # a worker knows of another's trip by then, whatever else the machine does
_AFTER_S = 120.0


@dataclass(frozen=True, slots=True)
class Toll:
    """What a scene has cost. ``drain_s`` is from the end of its outage, or its first call, to the last job."""

    calls: int
    calls_in_outage: int
    wasted: int
    holds: int
    drain_s: float
    states: dict[str, int]


@lru_cache
def simulated(scene: Scene, *, seeds: int = SEEDS, delay_s: float | None = None) -> Ranges:
    """What the simulator says; ``delay_s`` is the first delay of the policy, unless it is the usual one."""
    ranges = scene_ranges(scene, seeds=seeds, policy=_policy(delay_s))
    print(f"FIGURE simulated, {scene.name}, {scene.jobs} jobs: {ranges}")
    return ranges


def _policy(delay_s: float | None) -> Policy:
    policy = preset("standard")
    if delay_s is None:
        return policy
    return replace(policy, backoff=replace(policy.backoff, base_s=delay_s))


def strays(toll: Toll, ranges: Ranges, *names: str) -> list[str]:
    """Which of these numbers of a real run are outside the simulator's ranges, widen."""
    shares = {name: HOLDS_WIDER if name == "holds" else WIDER for name in names}
    return [
        name
        for name, share in shares.items()
        if getattr(toll, name) not in getattr(ranges, name).widen(share)
    ]


def suffered(
    story: Story,
    scene: Scene,
    pipeline: str,
    *,
    delay_s: float | None = None,
    restart_s: float | None = None,
) -> Toll:
    """All jobs wait, the workers begin, and the scene with their first call.

    With ``restart_s`` all workers are killed so long after it, and others begin.
    """
    back_s = scene.upstream.back_s
    with Ailing(scene.upstream) as upstream:
        story.settings["STORY_UPSTREAM"] = upstream.url
        if delay_s is not None:
            story.settings["STORY_DELAY_S"] = str(delay_s)
        story.enqueue(pipeline, items_of(scene), module="calls")
        workers = list(_crew(story, scene, "first"))
        until("the first call", lambda: upstream.calls, within_s=60)
        if restart_s is not None:
            restart_at_s = upstream.calls[0].at_s + restart_s
            until("time to restart", lambda: time.time() >= restart_at_s, within_s=restart_s + 10)
            _kill(workers)
            list(_crew(story, scene, "second"))
        states = story.all_ended(within_s=back_s + _AFTER_S)
        until("the outage is over", lambda: upstream.well, within_s=back_s + _AFTER_S)
        (last_us,) = story.rows("SELECT max(finished_at) FROM perdure_jobs")[0]
        toll = Toll(
            len(upstream.calls),
            upstream.in_outage(),
            upstream.wasted(),
            len(held(story)),
            last_us / 1e6 - upstream.well_from_s,
            states,
        )
    print(f"FIGURE {pipeline}, {scene.name}, {scene.jobs} jobs: {toll}")
    return toll


def items_of(scene: Scene) -> list[dict[str, int]]:
    """An item for each job; one that the scene's defect strikes has no title."""
    defect = scene.defect
    return [
        {"n": n} if defect is not None and defect.strikes(n) else {"n": n, "title": n}
        for n in range(scene.jobs)
    ]


def held(story: Story) -> list[tuple[int, int]]:
    """From when until when a gate was held, by the audit log."""
    lines = story.rows(
        "SELECT done_at, verb FROM perdure_audit_log WHERE subject IN ('model', 'shy') ORDER BY no"
    )
    return shut([(at_us, verb) for at_us, verb in lines])


def spent_while_held(story: Story) -> list[str]:
    """Attempts that cost their job a failure although the gate was not flowing; by the tables."""
    counted = story.rows(
        "SELECT claimed_at, settled_at FROM perdure_attempts WHERE counted = 'failures'"
    )
    held_us = held(story)
    assert held_us, "the gate was never held"
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


def _crew(story: Story, scene: Scene, name: str) -> Iterator[WorkerProcess]:
    for number in range(scene.fleet.workers):
        yield story.worker(
            f"{name}-{number}",
            module="calls",
            poll_s=scene.fleet.poll_s,
            concurrency=scene.fleet.concurrency,
        )
