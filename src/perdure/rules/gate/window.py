"""The sliding window of a gate: what the latest calls to an upstream came to.

A call is noted when it is *sent* and holds its place in that order; its result fills the place in.
So a slow answer from before an outage cannot pass for news, however late it comes.

* Places are ordered by (generation, sent, name). Of the calls that have ended the last
  ``calls`` count. Calls still in flight are kept but do not push ended ones out: with a hundred in
  flight and a window of twenty nothing would ever be seen otherwise.
* Failures are mostly quicker than answers. A call that is in flight for longer than calls usually take
  to fail counts as one that did not: otherwise, with answers of 30 s and failures of a second, the
  latest calls that have ended would all be failures, and one call in ten enough to hold a queue.
* *Good* is whatever proves an answer, *bad* what blames the upstream (`signs.py`). What is neither (a rate
  limit, a defect of the stage's own, a cancelled call…) gives its place back: as good it would hide an
  outage behind a caller's own mistakes, as bad it would hold everybody's queue for them. It is
  remembered for a while all the same, to be told of and to see whether refusals are isolated.
* With ``window_s`` only calls that *ended* within it count. Their end, not their start: a window
  shorter than a call's timeout would otherwise never see a timeout.
* A window is one worker's and mergeable: a call is noted by the worker that sent it and by no one
  else, and merging is the union, an ended call before one in flight. Order and repetition do not
  matter.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import Struct

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind, Sign
from perdure.model.limits import DELAY_S_MAX
from perdure.model.nouns import replace
from perdure.rules.field_checks import number, whole_number
from perdure.rules.gate.signs import Word
from perdure.rules.sentence import seconds

WINDOW_CALLS_MAX = 1_000  # a window is read as a whole for each result
IN_FLIGHT_MAX = 1_000  # calls without a result that a window remembers; the oldest are forgotten
LEFT_OUT_MAX = 100  # the same of calls that say nothing about the upstream


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """When a window is sick: ``fail_share`` of the last ``calls``, once ``calls_min`` have ended.

    Nearly all of them: an upstream that serves half of its calls is weak and not down, and is of use.
    ``window_s`` leaves out what ended longer ago. With ``slow_s`` a call that took that long is
    slow, and ``slow_share`` of slow calls is as bad as failures.
    """

    calls: int = 20
    calls_min: int = 10
    fail_share: float = 0.9
    window_s: float | None = None
    slow_s: float | None = None
    slow_share: float = 0.8

    def __post_init__(self) -> None:
        whole_number("window.calls", self.calls, 1, WINDOW_CALLS_MAX)
        whole_number("window.calls_min", self.calls_min, 1, self.calls)
        _share("window.fail_share", self.fail_share)
        if self.window_s is not None:
            number("window.window_s", self.window_s, 1.0, DELAY_S_MAX)
        if self.slow_s is not None:
            number("window.slow_s", self.slow_s, 0.001, DELAY_S_MAX)
        _share("window.slow_share", self.slow_share)


class Sample(Struct, frozen=True):
    """One call. ``sign`` is None while it is in flight; ``name`` is unique among all calls."""

    generation: int
    sent_at: datetime
    name: str
    sign: Sign | None = None
    took_s: float = 0.0
    kind: Kind | None = None

    @property
    def place(self) -> tuple[int, datetime, str]:
        """Where the call stands among the others, from the moment it is sent."""
        return (self.generation, self.sent_at, self.name)

    @property
    def ended_at(self) -> datetime:
        """When it ended."""
        return self.sent_at + timedelta(seconds=self.took_s)

    @property
    def counts(self) -> bool:
        """Whether it has ended, and says something about the upstream."""
        return self.sign is Sign.GOOD or self.sign is Sign.BAD

    @property
    def word(self) -> Word:
        """What it says."""
        return Word(self.sign or Sign.NEITHER, self.kind)


class Window(Struct, frozen=True):
    """Calls in order of their places."""

    samples: tuple[Sample, ...] = ()


class Reading(Struct, frozen=True):
    """How many calls are judged, how many of them failed or were slow, and what is left out, by kind."""

    known: int
    failed: int
    slow: int = 0
    left_out: tuple[tuple[Kind, int], ...] = ()

    @property
    def fail_share(self) -> float:
        """The part of the calls that count that failed."""
        return self.failed / self.known if self.known else 0.0

    @property
    def besides(self) -> str:
        """What is left out, as the end of a sentence."""
        if not self.left_out:
            return ""
        kinds = ", ".join(f"{count} {kind.value}" for kind, count in self.left_out)
        return f" ({sum(count for _, count in self.left_out)} left out: {kinds})"


def add_call(
    window: Window, settings: WindowSettings, *, name: str, generation: int, now: datetime
) -> Window:
    """A call starts, under the generation of the gate that let it pass."""
    return merge(settings, window, Window((Sample(generation, now, name),)))


def fill_call(
    window: Window, settings: WindowSettings, *, name: str, word: Word, took_s: float
) -> Window:
    """A call's result fills its place in.

    A call that the window does not know, or that has ended already, changes nothing.
    """
    kept = tuple(
        _fill_sample(sample, word, took_s) if sample.name == name else sample
        for sample in window.samples
    )
    return Window(prune_samples(kept, settings))


def merge(settings: WindowSettings, *windows: Window) -> Window:
    """The windows of several workers as one."""
    known: dict[tuple[int, datetime, str], Sample] = {}
    for sample in (sample for window in windows for sample in window.samples):
        there = known.get(sample.place)
        if there is None or there.sign is None:
            known[sample.place] = sample
    return Window(prune_samples((known[place] for place in sorted(known)), settings))


def reading(
    window: Window, settings: WindowSettings, *, counts_from: int, now: datetime
) -> Reading:
    """What the last calls came to; calls of a generation before ``counts_from`` are history.

    ``known`` are those that have ended or, so far, not failed.
    """
    last = [sample for sample in window.samples if sample.counts][-settings.calls :]
    quick_s = _usual_s(sample.took_s for sample in last if sample.sign is Sign.BAD)
    if quick_s is not None:
        last = [
            sample for sample in window.samples if sample.counts or _outlasts(sample, quick_s, now)
        ][-settings.calls :]
    counted = [
        sample
        for sample in last
        if sample.generation >= counts_from and _recent(sample, settings, now)
    ]
    slow_s = settings.slow_s
    return Reading(
        known=len(counted),
        failed=sum(sample.sign is Sign.BAD for sample in counted),
        slow=0 if slow_s is None else sum(sample.took_s >= slow_s for sample in counted),
        left_out=_kinds_left_out(window, last[0].place if last else None, counts_from),
    )


def answered_at(window: Window) -> datetime | None:
    """When the upstream has last answered a call, as far as the window knows."""
    good = (sample.ended_at for sample in window.samples if sample.sign is Sign.GOOD)
    return max(good, default=None)


def sickness(found: Reading, settings: WindowSettings) -> str | None:
    """Why the upstream counts as sick, in words; None while it does not."""
    if found.known < settings.calls_min:
        return None
    which = f"of the last {found.known} calls that count"
    if found.fail_share >= settings.fail_share:
        return f"{found.failed} {which} failed{found.besides}"
    if settings.slow_s is not None and found.slow / found.known >= settings.slow_share:
        return f"{found.slow} {which} took {seconds(settings.slow_s)} or more{found.besides}"
    return None


def is_isolated(
    window: Window, settings: WindowSettings, share: float, *, counts_from: int, now: datetime
) -> bool:
    """Whether refusals are rare among the latest calls: less than ``share`` was not admitted.

    A call that is in flight for longer than refusals take was admitted. With few calls nobody can tell.
    """
    known = [sample for sample in window.samples if sample.generation >= counts_from]
    turned_away = [sample for sample in known if _is_turned_away(sample)]
    quick_s = _usual_s(sample.took_s for sample in turned_away) or 0.0
    last = [
        sample
        for sample in known
        if sample.counts or _is_turned_away(sample) or _outlasts(sample, quick_s, now)
    ][-settings.calls :]
    refused = sum(_is_turned_away(sample) for sample in last)
    return len(last) >= settings.calls_min and refused < share * len(last)


def _is_turned_away(sample: Sample) -> bool:
    return sample.sign is not None and (
        sample.word.refuses or (sample.sign is Sign.BAD and not sample.word.admitted)
    )


def _kinds_left_out(
    window: Window, since: tuple[int, datetime, str] | None, counts_from: int
) -> tuple[tuple[Kind, int], ...]:
    kinds = Counter(
        sample.kind
        for sample in window.samples
        if sample.sign is Sign.NEITHER
        and sample.kind is not None
        and sample.generation >= counts_from
        and (since is None or sample.place >= since)
    )
    return tuple(kinds.most_common())


def _usual_s(took_s: Iterable[float]) -> float | None:
    """The middle one of so many times; None where there is none."""
    ordered = sorted(took_s)
    return ordered[len(ordered) // 2] if ordered else None


def _outlasts(sample: Sample, quick_s: float, now: datetime) -> bool:
    return sample.sign is None and (now - sample.sent_at).total_seconds() > quick_s


def _fill_sample(sample: Sample, word: Word, took_s: float) -> Sample:
    if sample.sign is not None:
        return sample
    return replace(sample, sign=word.sign, kind=word.kind, took_s=took_s)


def prune_samples(samples: Iterable[Sample], settings: WindowSettings) -> tuple[Sample, ...]:
    """What can still matter: a call with enough ended calls after it never counts again.

    The latest answer is kept all the same, however long ago: it says since when there was none.
    """
    kept: list[Sample] = []
    answered = False
    left = {None: IN_FLIGHT_MAX, Sign.NEITHER: LEFT_OUT_MAX, Sign.GOOD: settings.calls}
    for sample in reversed(tuple(samples)):
        which = Sign.GOOD if sample.sign is Sign.BAD else sample.sign
        left[which] -= 1
        latest_answer = sample.sign is Sign.GOOD and not answered
        answered = answered or latest_answer
        if left[which] >= 0 or latest_answer:
            kept.append(sample)
    return tuple(reversed(kept))


def _recent(sample: Sample, settings: WindowSettings, now: datetime) -> bool:
    if settings.window_s is None or sample.sign is None:
        return True
    return (now - sample.sent_at).total_seconds() - sample.took_s <= settings.window_s


def _share(field: str, value: float) -> None:
    number(field, value, 0.0, 1.0)
    if value == 0:
        raise ConfigError(f"{field} is {value!r}; a share of nothing would hold a healthy upstream")
