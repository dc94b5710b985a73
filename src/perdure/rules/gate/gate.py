"""The gate in front of an upstream: it holds the queue, so that nobody spends attempts on an outage.

A gate is a small value, the *control row*. Each event is a function from a gate to a `Step`: the
next gate, the move that led there and a sentence about it, or the same gate and no move. The events
are in `hold.py` (how a gate comes to be held, and ceases to be) and `probe.py` (how it finds out that
the upstream is back); the calls that it judges by are in `window.py`, and the speed at which calls
start again in `pace.py`.

Always true:

* `GATE_MOVES` is the whole state machine. An event that has no arrow from the present state
  changes nothing; no event is an error.
* Every change raises ``generation`` by one, and nothing else does. A call, a probe's above all,
  carries the generation under which it was sent.
* Nothing passes a gate that is not flowing, except the one probe of a gate that is probing.
  *Probing* means exactly that a probe is out; between two probes the gate is held.
* While held, ``held_until`` only moves later, unless a person speaks. None there means that only a
  person ends the hold. Nothing starts before ``told_until``, the latest moment that the upstream
  itself asked for, unless a person says so.
* A hold ends in a probe where something must be proved (``probe_first``: after a trip, after an
  overload, for a credential), and otherwise, after a rate limit or a person's timed hold, by itself.
* No sequence of results keeps an upstream held that answers: any answer proves it, and after three
  probes in a row that say nothing calls start again, slowly. Only for a credential, and for what
  a person holds, must there be a proof.
* Calls of generations before ``counts_from`` count for no window. Hints of generations before
  ``hints_from`` are not heard, because a person has spoken since, unless the call was claimed after
  ``spoken_at`` by a worker that had not heard of it. Any other hint is heard, however old its call,
  because it is the upstream's latest word; it can only make a pause longer.
* A gate holds jobs, not their clocks: a job's deadline is absolute, held time included.

Who is authoritative: the row in the store, written only where the generation is still the one that
the step was made from. Workers carry a copy that may be old. An old copy lets a few calls pass that
a newer one would not; they carry the old generation, so that after a trip their results can neither
hold the gate nor lengthen its pause nor free it.

What may happen at once: any number of workers make a step from the same row, and one write wins.
The others read again and make the step anew: a second trip finds the gate held and is no step, a
second lease finds the probe out and is no step, a second hint is compared with the first and the
later one stands.

If we die on any line: a step that was not written did not happen, and any worker can make it
again. A trip is found again in the samples; a hint that was lost with its worker comes back with the
next call; a resume and a probe are due for whoever looks; a probe whose worker died is lost when
its lease ends, and another is leased.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct

from perdure.model.gates import GateState
from perdure.model.limits import DELAY_S_MAX, HINT_S_MAX
from perdure.model.nouns import replace
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread, base_delay_s, jittered_s
from perdure.rules.decide import GateView
from perdure.rules.field_checks import number, whole_number
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.gate.window import WINDOW_CALLS_MAX, WindowSettings

GAP_S_MIN = 0.1  # between two probes, whatever curve and jitter say: no hot loop on an upstream
UNDECIDED_MAX = 3  # probes in a row that say nothing; then calls may tell


class HoldCause(StrEnum):
    """Why a gate is held; of two causes the later in this list is the one shown."""

    HINT = "hint"
    TRIP = "trip"
    CREDENTIAL = "credential"
    PERSON = "person"


class GateMove(StrEnum):
    """The names of the arrows between states."""

    TRIP = "trip"  # the window is sick
    HINT = "hint"  # the upstream said when to come back, or that a credential is of no use
    HOLD = "hold"  # a person says so
    RELEASE = "release"  # a person says so
    HURRY = "hurry"  # a person wants a probe now
    RESUME = "resume"  # the hold is over, and nothing has to be proved
    LEASE = "lease"  # one worker takes the probe
    PASS = "pass"  # noqa: S105  the probe succeeded, and more are wanted
    FLOW = "flow"  # the probe succeeded, and it was the last one wanted
    MISS = "miss"  # the probe failed, and it was the upstream's fault
    UNDECIDED = "undecided"  # the probe ended without a word about the upstream
    LOSE = "lose"  # the probe's lease ran out


_FLOWING, _HELD, _PROBING = GateState.FLOWING, GateState.HELD, GateState.PROBING

GATE_MOVES: tuple[tuple[GateState, GateMove, GateState], ...] = (
    (_FLOWING, GateMove.TRIP, _HELD),
    (_FLOWING, GateMove.HINT, _HELD),
    (_FLOWING, GateMove.HOLD, _HELD),
    (_HELD, GateMove.HINT, _HELD),  # extended
    (_HELD, GateMove.HOLD, _HELD),
    (_HELD, GateMove.HURRY, _HELD),  # due at once
    (_HELD, GateMove.RELEASE, _FLOWING),
    (_HELD, GateMove.RESUME, _FLOWING),
    (_HELD, GateMove.LEASE, _PROBING),
    (_PROBING, GateMove.PASS, _HELD),
    (_PROBING, GateMove.FLOW, _FLOWING),
    (_PROBING, GateMove.MISS, _HELD),
    (_PROBING, GateMove.UNDECIDED, _HELD),
    (_PROBING, GateMove.LOSE, _HELD),
    (_PROBING, GateMove.HINT, _HELD),  # the probe that is out says nothing any more
    (_PROBING, GateMove.HOLD, _HELD),
    (_PROBING, GateMove.RELEASE, _FLOWING),
)


def gate_target(state: GateState, move: GateMove) -> GateState | None:
    """Where ``move`` leads from ``state``, or None when the table has no such arrow."""
    for source, name, result in GATE_MOVES:
        if source is state and name is move:
            return result
    return None


@dataclass(frozen=True, slots=True)
class GateSettings:
    """How a gate judges, and how it comes back.

    ``gaps`` and ``jitter`` give the wait before the k-th probe. Linear, because the hazard of a long
    outage's end falls like 1/t, and then gaps that grow like √t cost least: on 456 real incidents
    27 % less than 5 → 300 s doubling. ``flow_after`` probes in a row must succeed. A probe has
    ``lease_s``, which should be longer than a call may take. A trip within ``relapse_s`` of a
    recovery goes on with the gaps where they were. A hint beyond ``hint_s_max`` is a person's case.
    A hint holds everybody, unless less than ``isolated_share`` of the latest calls was turned away.
    """

    window: WindowSettings = WindowSettings()
    gaps: Backoff = Backoff(Curve.LINEAR, base_s=2.0, cap_s=120.0)
    jitter: Jitter = Jitter(Spread.PROPORTIONAL, ratio=0.2)
    flow_after: int = 1
    lease_s: float = 300.0
    relapse_s: float = 120.0
    hint_s_max: float = HINT_S_MAX
    isolated_share: float = 0.3
    pace: PaceSettings = PaceSettings()

    def __post_init__(self) -> None:
        whole_number("gate.flow_after", self.flow_after, 1, 1_000)
        number("gate.lease_s", self.lease_s, 1.0, DELAY_S_MAX)
        number("gate.relapse_s", self.relapse_s, 0.0, DELAY_S_MAX)
        number("gate.hint_s_max", self.hint_s_max, 0.0, DELAY_S_MAX)
        number("gate.isolated_share", self.isolated_share, 0.0, 1.0)


def basic_gate(
    *, window: int = 20, fail_threshold: float = 0.5, cooldown_ms: float = 60_000.0
) -> GateSettings:
    """A gate with three knobs: hold when ``fail_threshold`` of the last ``window`` calls fail, look again after ``cooldown_ms``.

    It flows when three probes in a row, one after the other, have succeeded. A probe that fails starts the next
    cool-down.
    """
    # The hold-queue breaker of [001] (R82–R85). The probes are its "short window": the document has no half-open
    # state, but without a probe nothing would feed the window (D4).
    number("cooldown_ms", cooldown_ms, 1_000.0, DELAY_S_MAX * 1_000.0)
    whole_number("window", window, 1, WINDOW_CALLS_MAX)
    return GateSettings(
        WindowSettings(calls=window, calls_min=min(10, window), fail_share=fail_threshold),
        gaps=Backoff(Curve.FIXED, base_s=cooldown_ms / 1_000.0, cap_s=None),
        jitter=Jitter(Spread.NONE),
        flow_after=3,
        isolated_share=0.0,
    )


class Gate(Struct, frozen=True):
    """The control row of one upstream or credential; see the head of this file for its fields.

    ``gap`` counts the gaps between probes, ``passes`` the probes that succeeded in a row,
    ``undecided`` those in a row that said nothing. ``for_credential`` stays set under a person's hold.
    ``lease_by`` is the worker that has the probe. ``until_person`` and ``kept_until``, the end of a person's timed
    hold, stay set while a probe that a person asked for is out: if it fails, the gate is held as before.
    ``answered_at`` is when the upstream had last answered before it was held, ``shut_at`` when it ceased to flow.
    """

    name: str
    state: GateState = GateState.FLOWING
    generation: int = 0
    since_at: datetime | None = None
    cause: HoldCause | None = None
    reason: str = ""
    held_until: datetime | None = None
    told_until: datetime | None = None
    until_person: bool = False
    probe_first: bool = False
    lease_until: datetime | None = None
    lease_by: int | None = None
    gap: int = 0
    passes: int = 0
    proved_at: datetime | None = None
    counts_from: int = 0
    hints_from: int = 0
    spoken_at: datetime | None = None
    kept_until: datetime | None = None
    undecided: int = 0
    for_credential: bool = False
    answered_at: datetime | None = None
    shut_at: datetime | None = None

    @property
    def needs_answer(self) -> bool:
        """Whether only a good answer frees it: a credential is what it is held for, whatever hides that."""
        return self.for_credential or self.cause is HoldCause.CREDENTIAL

    @property
    def is_proved(self) -> bool:
        """Whether it flows because a probe succeeded."""
        return self.proved_at is not None and self.proved_at == self.since_at

    @property
    def starts_slowly(self) -> bool:
        """Whether this flow is a new beginning, or goes on at the speed it had before a hint."""
        return self.counts_from == self.generation


class Step(Struct, frozen=True):
    """What an event led to: the gate now, and, where it changed, the move and words for it."""

    gate: Gate
    move: GateMove | None = None
    text: str = ""


def view(gate: Gate, *, probe: bool = False) -> GateView:
    """The gate as `decide` looks at it; ``probe`` says that this attempt was sent as its probe."""
    return GateView(gate.state.value, probe)


def step_along(gate: Gate, move: GateMove, now: datetime, text: str, **changes: Any) -> Step:
    """The step along an arrow of the table, or none where there is no such arrow."""
    state = gate_target(gate.state, move)
    if state is None:
        return Step(gate)
    since_at = gate.since_at if state is gate.state else now
    ends = {"lease_until": None, "lease_by": None, **(_FREE if state is GateState.FLOWING else {})}
    number = gate.generation + 1
    shut_at = None if state is GateState.FLOWING else gate.shut_at or now
    moved = {"generation": number, "since_at": since_at, "shut_at": shut_at}
    after = replace(gate, state=state, **(moved | ends | changes))
    return Step(after, move, text)


def gap_s(settings: GateSettings, gap: int, chance: float) -> float:
    """The wait before the ``gap``-th probe: clamped first, then with its jitter."""
    return max(jittered_s(settings.jitter, base_delay_s(settings.gaps, gap), chance), GAP_S_MIN)


def after(now: datetime, wait_s: float) -> datetime:
    """The moment ``wait_s`` from now; the end of time where the calendar is too short for it."""
    try:
        return now + timedelta(seconds=wait_s)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def latest(*moments: datetime | None) -> datetime | None:
    """The latest of the moments that there are."""
    return max((moment for moment in moments if moment is not None), default=None)


_FREE: dict[str, Any] = {
    "cause": None,
    "reason": "",
    "held_until": None,
    "told_until": None,
    "until_person": False,
    "probe_first": False,
    "passes": 0,
    "kept_until": None,
    "undecided": 0,
    "for_credential": False,
}
