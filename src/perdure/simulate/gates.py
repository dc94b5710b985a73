"""The gates in front of a modelled upstream, kept as the engine keeps them, in simulated time.

Always true: every judgement here is `perdure.rules`' own; this file only carries values between
them. One gate is the upstream's, one the credential's; nothing starts unless both flow, except a
probe. The rows are the store's: they outlive workers. Windows and paces are a worker's and die with it.

Who is authoritative: the rows. All workers see them at each of their turns, and steps are made one
after the other, as compare-and-set would order them.
"""

from dataclasses import dataclass
from datetime import datetime

from perdure.model.decisions import Hold
from perdure.model.gates import GateState
from perdure.model.kinds import PauseScope, Sign
from perdure.model.nouns import replace
from perdure.rules.decide import FLOWING, GateView
from perdure.rules.gate.gate import Gate, GateMove, GateSettings, Step, view
from perdure.rules.gate.hold import hint, release, resume, trip
from perdure.rules.gate.pace import (
    Pace,
    admits,
    after_end as paced,
    after_hold,
    after_starts,
    opens_in_s,
    slow_start,
)
from perdure.rules.gate.pace_settings import settings_for_one_of
from perdure.rules.gate.probe import end_probe, lease, lose_probe, probe_due, word_about
from perdure.rules.gate.signs import Word
from perdure.rules.gate.window import (
    Reading,
    Window,
    add_call,
    fill_call,
    is_isolated,
    merge,
    reading,
)
from perdure.simulate.run_history import RunHistory
from perdure.simulate.scene import Fleet, at, since_s

OWN, CREDENTIAL = "upstream", "credential"
NOTHING = Reading(0, 0)


@dataclass(frozen=True, slots=True)
class Pass:
    """What a call carries: the generations that let it pass, and the gate that it probes."""

    name: str
    generations: tuple[int, int]
    probes: str | None = None

    def generation(self, gate: str) -> int:
        """Under which generation of that gate the call was sent."""
        return self.generations[gate == CREDENTIAL]


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended; ``hint_s`` is the wait that it asks for, ``failing_since`` its job's first failure."""

    ticket: Pass
    word: Word
    hint_s: float | None
    sent_at: datetime
    now: datetime
    chance: float
    failing_since: datetime | None = None


class SimulatedWorker:
    """What one worker keeps in memory: its window, its pace, the generations it has seen."""

    __slots__ = ("out", "pace", "seen", "window")

    def __init__(self, settings: GateSettings, now: datetime, seen: tuple[int, int]) -> None:
        self.window, self.pace, self.seen = Window(), slow_start(settings.pace, now), seen
        self.out = 0  # calls in flight that are no probes


class SimulatedGates:
    """Both gates, and what every worker knows."""

    def __init__(self, settings: GateSettings, history: RunHistory, fleet: Fleet) -> None:
        pace = settings_for_one_of(settings.pace, fleet.workers)
        self.settings, self._history = replace(settings, pace=pace), history
        self.gates = {OWN: Gate(OWN), CREDENTIAL: Gate(CREDENTIAL)}
        self.flowing = True  # whether calls pass: neither gate is shut
        self.workers: dict[int, SimulatedWorker] = {}
        self._names = 0
        self._in_flight = 0
        self._held_s = 0.0
        self._isolated = False  # whether the refusal that came last was one of few
        self._of_job = False  # whether the probe that ended last told of its job
        self._read = NOTHING  # what the failure that came last was judged by
        self._quiet = self._quiet_enough = settings.window.calls + fleet.calls_max
        history.gate.append((0.0, GateState.FLOWING.value))

    # -- what a worker asks ------------------------------------------------------------------

    def join(self, worker: int, now_s: float) -> None:
        """A worker begins; whoever had its number has died with all it knew."""
        gone = self.workers.get(worker)
        self._in_flight -= 0 if gone is None else gone.out
        self.workers[worker] = SimulatedWorker(self.settings, at(now_s), self._generations())

    def look(self, worker: int, now_s: float) -> None:
        """A turn begins: what is over by now is made so, and the worker sees it."""
        now = at(now_s)
        if not self.flowing:
            for name, gate in self.gates.items():
                if gate.state is GateState.HELD:
                    self._take(name, resume(gate, now), now_s)
                elif gate.state is GateState.PROBING:
                    self._take(name, lose_probe(gate, self.settings, now, 0.5), now_s)
        self._see(worker, now)

    def calls_free(self, worker: int, now_s: float) -> int:
        """How many calls this worker may start now."""
        if not self.flowing:
            return 0
        return admits(self.workers[worker].pace, self.settings.pace, at(now_s))

    def probe_wanted(self, now_s: float) -> bool:
        """Whether a probe is due, and nothing else stands in its way."""
        return not self.flowing and self._due_gate(at(now_s)) is not None

    def rest_s(self, worker: int, now_s: float) -> float | None:
        """How long nothing can begin here unless something else happens; None if nobody knows."""
        if self.flowing:
            return opens_in_s(self.workers[worker].pace, self.settings.pace, at(now_s))
        shut = [gate for gate in self.gates.values() if gate.state is not GateState.FLOWING]
        if any(gate.state is GateState.PROBING or gate.held_until is None for gate in shut):
            return None
        ends_s = max(since_s(gate.held_until) for gate in shut if gate.held_until is not None)
        return ends_s - now_s if ends_s > now_s else None

    # -- what a worker does ------------------------------------------------------------------

    def admit(self, worker: int, now_s: float) -> Pass:
        """A call starts."""
        now, worker_state = at(now_s), self.workers[worker]
        worker_state.pace = after_starts(worker_state.pace, self.settings.pace, 1, now)
        worker_state.out += 1
        self._in_flight += 1
        ticket = self._pass(None)
        worker_state.window = add_call(
            worker_state.window,
            self.settings.window,
            name=ticket.name,
            generation=ticket.generations[0],
            now=now,
        )
        return ticket

    def take_probe(self, now_s: float) -> Pass:
        """The probe's lease is taken."""
        name = self._due_gate(at(now_s))
        assert name is not None
        self._take(name, lease(self.gates[name], self.settings, at(now_s)), now_s)
        self._history.probes += 1
        return self._pass(name)

    def end_call(self, worker: int, call: EndedCall, now_s: float) -> None:
        """A call ended: its worker's pace and window learn of it, and the gate is judged."""
        ticket = call.ticket
        if ticket.probes is not None:
            gate, window = self.gates[ticket.probes], self._merge()
            word = word_about(call.word, self.gates[OWN], window, failing_since=call.failing_since)
            self._of_job = word.of_job
            step = end_probe(
                gate,
                self.settings,
                word=word,
                generation=ticket.generation(ticket.probes),
                until=at(now_s + call.hint_s) if call.hint_s else None,
                now=call.now,
                chance=call.chance,
            )
            self._take(ticket.probes, step, now_s)
            return
        worker_state = self.workers[worker]
        worker_state.out -= 1
        self._in_flight -= 1
        took_s = (call.now - call.sent_at).total_seconds()
        worker_state.window = fill_call(
            worker_state.window,
            self.settings.window,
            name=ticket.name,
            word=call.word,
            took_s=took_s,
        )
        bad = call.word.sign is Sign.BAD
        self._quiet = 0 if bad else self._quiet + 1
        self._isolated = (bad or call.word.refuses) and self._is_isolated(call.now)
        worker_state.pace = self._next_pace(worker_state.pace, call)
        self._judge(call, now_s)

    def heard_hold(self, hold: Hold, call: EndedCall, now_s: float) -> bool:
        """The decision asks for a pause of everything behind the upstream or the credential; whether it is made."""
        if hold.scope is PauseScope.JOB or call.word.kind is None:
            return False
        if hold.scope is PauseScope.UPSTREAM and hold.for_s is not None and self._isolated:
            return False
        name = CREDENTIAL if hold.scope is PauseScope.CREDENTIAL else OWN
        until = None if hold.for_s is None else at(now_s + hold.for_s)
        step = hint(
            self.gates[name],
            self.settings,
            kind=call.word.kind,
            generation=call.ticket.generation(name),
            until=until,
            now=call.now,
        )
        if step.move is not None and step.gate.until_person:
            self._history.alerts += 1
        self._take(name, step, now_s)
        return True

    def release(self, now_s: float) -> None:
        """A person lets everything flow."""
        for name, gate in self.gates.items():
            if gate.state is not GateState.FLOWING:
                self._take(name, release(gate, reason="paid", now=at(now_s)), now_s)

    def view(self, ticket: Pass) -> GateView:
        """The upstream's gate as `decide` sees it."""
        gate = self.gates[OWN]
        if ticket.probes is not None and self._of_job:
            return GateView(GateState.PROBING.value, probe=True, of_job=True)
        if ticket.probes == CREDENTIAL:
            return view(self.gates[CREDENTIAL], probe=True)
        if gate.state is GateState.FLOWING and ticket.probes is None:
            return replace(FLOWING, failed=self._read.failed, known=self._read.known)
        return view(gate, probe=ticket.probes is not None)

    # -- inside ------------------------------------------------------------------------------

    def _generations(self) -> tuple[int, int]:
        return self.gates[OWN].generation, self.gates[CREDENTIAL].generation

    def _pass(self, probes: str | None) -> Pass:
        self._names += 1
        return Pass(f"{self._names:09}", self._generations(), probes)

    def _due_gate(self, now: datetime) -> str | None:
        for name, gate in self.gates.items():
            other = self.gates[CREDENTIAL if name == OWN else OWN]
            if probe_due(gate, now) and other.state is GateState.FLOWING:
                return name
        return None

    def _take(self, name: str, step: Step, now_s: float) -> None:
        if step.move is None:
            return
        before = self.gates[name]
        if before.state is GateState.HELD and before.since_at is not None:
            self._held_s = now_s - since_s(before.since_at)
        self.gates[name] = step.gate
        if step.move is GateMove.TRIP:
            self._history.trips += 1
            self._history.in_flight_at_trip = max(self._history.in_flight_at_trip, self._in_flight)
        states = {gate.state for gate in self.gates.values()}
        worst = next(
            one for one in (GateState.HELD, GateState.PROBING, GateState.FLOWING) if one in states
        )
        self.flowing = worst is GateState.FLOWING
        self._history.gate.append((now_s, worst.value))

    def _see(self, worker: int, now: datetime) -> None:
        """A gate that flows anew starts slowly; after a rate limit the pace goes on as it was."""
        worker_state, seen = self.workers[worker], self._generations()
        if seen == worker_state.seen or not self.flowing:
            return
        anew = [
            gate
            for gate, before in zip(self.gates.values(), worker_state.seen, strict=True)
            if gate.starts_slowly and gate.generation != before
        ]
        worker_state.seen = seen
        if not anew:
            worker_state.pace = after_hold(
                worker_state.pace, self.settings.pace, held_s=self._held_s, now=now
            )
        else:
            worker_state.pace = slow_start(
                self.settings.pace,
                now,
                in_flight=worker_state.out,
                before=worker_state.pace,
                proved=all(gate.is_proved for gate in anew),
            )

    def _next_pace(self, pace: Pace, call: EndedCall) -> Pace:
        return paced(
            pace,
            self.settings.pace,
            call.word,
            sent_at=call.sent_at,
            now=call.now,
            wait_s=call.hint_s or 0.0,
            isolated=self._isolated,
        )

    def _merge(self) -> Window:
        return merge(
            self.settings.window, *(worker_state.window for worker_state in self.workers.values())
        )

    def _is_isolated(self, now: datetime) -> bool:
        counts_from = self.gates[OWN].counts_from
        share = self.settings.isolated_share
        return is_isolated(
            self._merge(), self.settings.window, share, counts_from=counts_from, now=now
        )

    def _judge(self, call: EndedCall, now_s: float) -> None:
        """Where no failure can be in the window any more there is nothing to judge."""
        gate, self._read = self.gates[OWN], NOTHING
        if gate.state is not GateState.FLOWING:
            return
        quiet = self._quiet > self._quiet_enough and self.settings.window.slow_s is None
        if quiet and call.word.sign is Sign.GOOD:
            return
        window = self._merge()
        self._take(OWN, trip(gate, self.settings, window, call.now, call.chance), now_s)
        crowded = call.word.refuses and not self._isolated  # then each job stays away for longer
        if call.word.sign is not Sign.GOOD and not crowded:
            found = reading(
                window, self.settings.window, counts_from=gate.counts_from, now=call.now
            )
            self._read = found if found.known >= self.settings.window.calls_min else NOTHING
