"""Work that does not move: gates, dead letters, runs without a feeder, lanes that nobody serves."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from perdure.model.diagnoses import Diagnosis
from perdure.model.views import DeathCount, Depth, Flow
from perdure.rules.diagnosis.lines import first_few, ok, time_words, warn

LETTERS_PER_HOUR_WARN = 10
_HELD_S_WARN = 900.0  # an upstream's restart is over by then
_QUIET = timedelta(minutes=5)  # without any attempt in a stage
_WAIT_S_WARN = 60.0  # a worker that has room takes a ready job within a poll


class HeldGate(Struct, frozen=True):
    """A gate that is not flowing: since when, why, and how much waits behind it."""

    name: str
    held_s: float
    reason: str
    waiting: int


class WaitingStage(Struct, frozen=True):
    """A stage with jobs that may start now: how many, since when one of them could have, and whether the app has it.

    ``known`` is None where no app was named.
    """

    queue: str
    pipeline: str
    stage: str
    ready: int
    waited_s: float
    known: bool | None = None


def gates_diagnosis(held: Sequence[HeldGate]) -> Diagnosis:
    """Gates that have been held for long."""
    long = [one for one in held if one.held_s >= _HELD_S_WARN]
    if long:
        told = [
            f"{one.name} for {time_words(one.held_s)}, {one.waiting} jobs behind it ({one.reason})"
            for one in long
        ]
        return warn(
            "gates",
            f"held: {first_few(told)}",
            "see: perdure gates list; when the cause is gone: perdure gates release NAME --reason …",
        )
    return ok("gates", f"{len(held)} held, none for long" if held else "none is held")


def dead_diagnosis(hour: Sequence[Flow], deaths: Sequence[DeathCount]) -> Diagnosis:
    """Whether dead letters grow; ``hour`` is what happened in each of the last sixty minutes."""
    came, left = sum(one.failed for one in hour), sum(one.revived for one in hour)
    letters = sum(one.letters for one in deaths)
    if came - left >= LETTERS_PER_HOUR_WARN:
        places = {(one.pipeline, one.stage) for one in hour if one.failed}
        counts: Counter[str] = Counter()
        for one in deaths:  # one group may have died for several reasons, or under several codes
            if (one.pipeline, one.stage) in places:
                counts[f"{one.pipeline}/{one.stage} {one.kind}"] += one.letters
        told = [f"{group} {count}" for group, count in counts.most_common() if count]
        return warn(
            "dead_letters",
            f"{came - left} more in the last hour, {letters} in all: {first_few(told)}",
            "see: perdure dead groups; when the cause is gone: perdure dead redrive",
        )
    return ok("dead_letters", f"{letters} in all, {came} in the last hour")


def runs_diagnosis(unfed: Sequence[str], live: int) -> Diagnosis:
    """Runs that cannot end, because nobody feeds them and nobody has said that all items are in."""
    if unfed:
        return warn(
            "runs", first_few(unfed), "feed them again, or seal them: perdure runs seal RUN"
        )
    return ok("runs", f"{live} under way, and somebody feeds each or all of its items are in")


def unmoved_stages(
    waiting: Collection[WaitingStage], depths: Sequence[Depth], hour: Sequence[Flow], now: datetime
) -> list[WaitingStage]:
    """Stages in which a job has long been ready, nothing is in work, and no attempt has ended for a while."""
    busy = {(one.pipeline, one.stage) for one in depths if one.processing}
    busy |= {
        (one.pipeline, one.stage)
        for one in hour
        if one.attempts and one.at is not None and now - one.at < _QUIET
    }
    return [
        one
        for one in waiting
        if one.waited_s >= _WAIT_S_WARN and (one.pipeline, one.stage) not in busy
    ]


def lanes_diagnosis(unmoved: Sequence[WaitingStage], workers: int) -> Diagnosis:
    """Jobs that could start and that nobody takes."""
    if not unmoved:
        return ok("lanes", f"nothing has been ready for long; workers alive: {workers}")
    told = [
        f"{one.ready} of {one.pipeline}/{one.stage} in queue {one.queue} for {time_words(one.waited_s)}"
        + (", which this app does not have" if one.known is False else "")
        for one in unmoved
    ]
    if not workers:
        remedy = "no worker is at work on this store; start one: perdure worker MODULE:APP"
    else:
        remedy = (
            f"workers are alive ({workers}), and none serves them; start one whose app has these stages, without --queue "
            "and --category or with theirs: perdure worker MODULE:APP"
        )
    return warn("lanes", f"nobody takes what is ready: {first_few(told)}", remedy)
