"""The gatekeeper: one worker's part in keeping the gates of its upstreams.

Always true: the row in the store is the gate, and is written only where it still has the generation that a
step was made from. Every judgement is made in `rules`; what is kept here of a call dies with this worker and is
not missed: the others have their own calls.

What may happen at once: other workers do the same. One write wins; a second trip finds the gate held, a
second lease finds the probe out, the later of two hints stands.

If we die on any line: what was not written did not happen. A probe in our hands is lost, and its lease says
when another may go; our slices of the limits are free when we are declared dead or their lease is over.

Only the pump's thread calls this; a health check runs elsewhere, and the pump passes its answer on.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from math import inf
from random import Random

from perdure.engine.gates.limit_shares import LimitShares, slices_of
from perdure.engine.gates.rows import GateRows
from perdure.engine.gates.traffic import CallEnd, Checked, Key, Ticket, Traffic, window_in
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.engine.observe import Observers
from perdure.engine.record import Ending
from perdure.engine.stages import Catalogue
from perdure.model.decisions import Decision, Fail, HandOver, Retry
from perdure.model.errors import StoreError
from perdure.model.events import EventName
from perdure.model.gates import GateLook, GateState
from perdure.model.jobs import Claim, ClaimOrder, Part
from perdure.model.kinds import PauseScope, Sign
from perdure.model.nouns import replace
from perdure.model.verdicts import Failure, Verdict
from perdure.ports import Clock, Control, Store
from perdure.rules.decide import FLOWING, GateView
from perdure.rules.gate.gate import Gate, Step, after
from perdure.rules.gate.hold import hint, resume, trip
from perdure.rules.gate.probe import end_probe, lease, lose_probe, probe_due, word_about
from perdure.rules.gate.signs import Word, word_of
from perdure.rules.hints.calls_left import room_of

LOOK_S = 1.0
_SOON_S = 0.05  # between two looks when calls fail

Check = Callable[[DeclaredUpstream, int], None]


class Gatekeeper:
    """Keeps the gates of the upstreams that a worker's stages name."""

    def __init__(
        self,
        store: Store,
        control: Control,
        upstreams: Mapping[str, DeclaredUpstream],
        worker: int,
        *,
        catalogue: Catalogue,
        clock: Clock,
        chance: Random,
        observers: Observers,
    ) -> None:
        self._store = store
        self._upstreams = upstreams
        self._worker = worker
        self._catalogue = catalogue
        self._clock = clock
        self._chance = chance
        self._observers = observers
        self._traffic: dict[str, Traffic] = {}
        self._traffic_by_call: dict[Key, Traffic] = {}
        self._last_ticket: Ticket | None = None  # of the call that ended last
        self._failing_since: dict[Key, datetime] = {}  # of jobs that are out as probes
        self._dead: deque[int] = deque(maxlen=100)
        self._failing = False
        self._turn = 0
        self._probed_s = -inf
        self._limit_shares = LimitShares(store, worker, clock)
        self._rows = GateRows(
            store,
            control,
            upstreams,
            worker,
            clock=clock,
            observers=observers,
            on_look=self._take_in,
            on_change=self._show,
            samples=self._samples,
        )

    # -- what the pump asks ------------------------------------------------------------------

    def once(self, *, isolation: int = 0, free: int = 1) -> None:
        """Read what has changed, write what we know, and do what is due; ``free`` slots are left here."""
        if not self._upstreams:
            return
        seen_s = self._clock.monotonic() - self._rows.seen_s
        if self._rows.stale or seen_s >= (_SOON_S if self._failing else LOOK_S):
            self._failing = False
            self._rows.look()
        self._end_what_is_due()
        self._rows.write()
        behind = self._catalogue.lanes_behind()
        now = self._rows.now()
        if not self._limit_shares.once(self._traffic, behind, now, isolation=isolation, free=free):
            self._rows.stale = True  # somebody was quicker: read the slices first, then take again

    def look(self) -> None:
        """See what the store has, now."""
        if self._upstreams:
            self._rows.look()

    def fit_order(self, order: ClaimOrder | None) -> ClaimOrder | None:
        """The order, with as much from behind each upstream as may start there now."""
        if order is None or not self._traffic:
            return order
        lanes, parts, left = set(order.lanes), list[Part](), order.slots
        now = self._rows.now()
        for name, its_lanes in self._in_turn():
            behind = tuple(lane for lane in its_lanes if lane in lanes)
            room = self._traffic[name].room(now, order.slots) if behind else 0
            if behind and room < order.slots:
                lanes.difference_update(behind)
                room = min(room, left)
                left -= room
                parts += [Part(behind, room)] if room else []
        kept = tuple(lane for lane in order.lanes if lane in lanes)
        if not kept and not parts:
            return None
        return replace(order, lanes=kept, parts=tuple(parts))

    def probe(self, *, isolation: int, check: Check) -> Claim | None:
        """A job that is now the probe of a gate, if one is due and some job waits behind it.

        ``check`` starts a health check elsewhere, for an upstream that has one; `heed` wants its answer.
        """
        now_s = self._clock.monotonic()
        if not self._traffic or now_s - self._probed_s < _SOON_S:
            return None
        for gate in self._rows.stored_gates():
            behind = self._rows.behind(gate.name)
            if not behind or not probe_due(gate, self._rows.now()):
                continue
            self._probed_s = now_s  # where no job waits, asking again and again finds none
            step = lease(gate, self._rows.settings(gate.name), self._rows.now(), by=self._worker)
            upstream = self._upstreams.get(gate.name)
            if upstream is not None and upstream.health is not None:
                if self._rows.set(step):
                    check(upstream, step.gate.generation)
                continue
            claim = self._claim_probe(step, behind, isolation)
            if claim is not None:
                return claim
            if self._rows.some_behind_shut(gate.name):
                self._look_again()  # a person may have released it since
                self._rows.happen(gate.name, self._give_way_step)
        return None

    def start_calls(self, claims: Iterable[Claim]) -> None:
        """These jobs begin; those behind an upstream are calls."""
        if self._traffic:
            for claim in claims:
                if (claim.no, claim.token) not in self._traffic_by_call:
                    self._start(claim, self._our_probe(claim))

    def may_carry_on(self, upstream: str | None) -> bool:
        """Whether a job may go on at once behind that upstream; then a call is set aside for it, until `forget_promises`."""
        traffic = None if upstream is None else self._traffic.get(upstream)
        return traffic is None or traffic.set_aside(self._rows.now())

    def forget_promises(self) -> None:
        """All that was to go on has been written, and is begun or not."""
        for traffic in self._traffic.values():
            traffic.promised = 0

    def rest_s(self) -> float:
        """How long nothing is due here: a hold that ends, a call that may start, the next look."""
        if not self._traffic:
            return inf
        now = self._rows.now()
        waits = [one.opens_in_s(now) for one in self._traffic.values()]
        look_s = self._rows.seen_s + LOOK_S - self._clock.monotonic()
        return max(0.001, min([look_s, *(wait_s for wait_s in waits if wait_s > 0)]))

    def leave(self) -> None:
        """Give our slices back: nothing more is started here. What cannot be told runs out by itself."""
        with suppress(StoreError):
            self._limit_shares.leave(self._traffic)

    # -- what settling tells -----------------------------------------------------------------

    def end_call(self, ending: Ending, verdict: Verdict) -> GateView:
        """A call has ended: judge the gate by it, and return the gate as the decision about the job must see it."""
        claim, usage = ending.claim, ending.usage
        call = (claim.no, claim.token)
        traffic, self._last_ticket = self._traffic_by_call.pop(call, None), None
        if traffic is None:  # a call of another worker's, or of an earlier life of ours
            other = self._traffic_of(claim)
            return FLOWING if other is None else other.view()
        word = word_of(verdict)
        if word.sign is Sign.BAD:
            self._look_again()
        now = self._rows.now()
        wait_s = (verdict.hint_s or 0.0) if isinstance(verdict, Failure) else 0.0
        room = None if ending.told is None else room_of(ending.told, now)
        tokens = None if usage is None else usage.tokens_in + usage.tokens_out
        call_end = CallEnd(word, now, tokens, room, wait_s, ending.elapsed_s)
        ticket = self._last_ticket = traffic.end_call(call, call_end)
        assert ticket is not None
        if ticket.probes is not None:
            word = self._word_about(claim, traffic, word)
        self._judge(traffic, ticket, word, call_end)
        if ticket.probes is not None:
            return GateView(GateState.PROBING.value, probe=True, of_job=word.of_job)
        return traffic.view(word, now)

    def hear_decision(self, claim: Claim, decision: Decision) -> None:
        """What was decided may ask for a pause of all that is behind the upstream or the credential."""
        if not isinstance(decision, Retry | Fail | HandOver) or decision.hold is None:
            return
        held, kind, traffic = decision.hold, decision.kind, self._traffic_of(claim)
        if kind is None or traffic is None or held.scope is PauseScope.JOB:
            return
        ticket, name = self._last_ticket, traffic.upstream.name
        seen = 0 if ticket is None else ticket.own
        if held.scope is PauseScope.CREDENTIAL and traffic.upstream.credential is not None:
            name = traffic.upstream.credential
            seen = 0 if ticket is None else ticket.credential
        if ticket is not None and ticket.probes == name:  # its own probe has told it
            return
        alone = ticket is not None and traffic.isolated  # else it is about an earlier call
        if held.scope is PauseScope.UPSTREAM and held.for_s is not None and alone:
            return  # most calls are admitted: this one was told, and it alone stays away
        settings, asked_at = self._rows.settings(name), self._rows.now_at_most()
        until = None if held.for_s is None else after(asked_at, held.for_s)
        self._rows.happen(
            name,
            lambda gate: hint(
                gate,
                settings,
                kind=kind,
                generation=seen,
                until=until,
                now=self._rows.now(),
                claimed_at=claim.claimed_at,
            ),
        )

    def heed(self, checked: Checked) -> None:
        """A probe or a health check has ended so."""
        until = after(self._rows.now_at_most(), checked.wait_s) if checked.wait_s > 0 else None
        step = partial(
            end_probe,
            settings=self._rows.settings(checked.gate),
            word=checked.word,
            generation=checked.generation,
            until=until,
            answered_at=checked.answered_at,
            now=self._rows.now(),
            chance=self._chance.random(),
        )
        self._rows.happen(checked.gate, step)

    def note_death(self, worker: int) -> None:
        """A worker is dead: a probe that it had out is lost at once."""
        self._dead.append(worker)  # its lease may be newer than what we have seen

    # -- inside: what a call brings about ----------------------------------------------------

    def _claim_probe(self, step: Step, behind: Sequence[str], isolation: int) -> Claim | None:
        served = self._catalogue.lanes_behind()
        lanes = tuple(lane for name in behind for lane in served.get(name, ()))
        if not lanes:
            return None
        order = ClaimOrder(self._worker, 1, lanes, isolation)
        probe = self._store.probe(order, self._rows.change(step), self._rows.deed(step))
        if probe is None:
            return None
        self._rows.become(step)
        self._start(probe.claim, step.gate.name)
        if probe.failing_since is not None:
            self._failing_since[probe.claim.no, probe.claim.token] = probe.failing_since
        return probe.claim

    def _look_again(self) -> None:
        """Where an old copy would mislead: somebody may have changed a gate since our last look."""
        if self._clock.monotonic() - self._rows.seen_s >= _SOON_S:
            with suppress(StoreError):  # then our copy has to do; the turn that follows will say so
                self._rows.look()

    def _start(self, claim: Claim, probes: str | None) -> None:
        traffic = self._traffic_of(claim)
        if traffic is not None:
            key = (claim.no, claim.token)
            self._traffic_by_call[key] = traffic
            traffic.start(key, self._rows.now(), tokens=claim.tokens, probes=probes)

    def _our_probe(self, claim: Claim) -> str | None:
        """The gate whose probe this is: its news was lost on the way, and found again by asking."""
        traffic = self._traffic_of(claim)
        gates = () if traffic is None else (traffic.gate, traffic.credential)
        ours = [one.name for one in gates if one is not None and one.lease_by == self._worker]
        return ours[0] if ours else None

    def _word_about(self, claim: Claim, traffic: Traffic, word: Word) -> Word:
        failing_since = self._failing_since.pop((claim.no, claim.token), None)
        return word_about(word, traffic.gate, traffic.window(), failing_since=failing_since)

    def _judge(self, traffic: Traffic, ticket: Ticket, word: Word, end: CallEnd) -> None:
        if (name := ticket.probes) is not None:
            generation = ticket.own if name == traffic.upstream.name else ticket.credential
            answered_at = end.answered_at(ticket.sent_at)
            self.heed(Checked(name, generation, word, end.wait_s, answered_at))
            return
        counts = word.sign is Sign.BAD
        if counts or traffic.upstream.gate.window.slow_s is not None:
            self._failing = self._failing or counts
            self._rows.happen(traffic.upstream.name, partial(self._trip_step, traffic))

    def _trip_step(self, traffic: Traffic, gate: Gate) -> Step:
        if gate.state is not GateState.FLOWING:
            return Step(gate)
        now, settings = self._rows.now(), traffic.upstream.gate
        return trip(gate, settings, traffic.window(), now, self._chance.random())

    def _end_what_is_due(self) -> None:
        """What only waits for its time: the end of a hold, the loss of a probe."""
        if self._rows.some_may_give_way():
            self._look_again()  # a person may have released what is behind it since
        for gate in self._rows.stored_gates():
            if gate.state is not GateState.FLOWING:
                self._rows.happen(gate.name, partial(self._end_step, self._chance.random()))

    def _end_step(self, chance: float, gate: Gate) -> Step:
        now = self._rows.now()
        if gate.state is GateState.HELD:
            shut = self._rows.all_behind_shut(gate.name)
            return self._give_way_step(gate) if shut else resume(gate, now)
        died = gate.lease_by if gate.lease_by in self._dead else None
        return lose_probe(gate, self._rows.settings(gate.name), now, chance, died=died)

    def _give_way_step(self, gate: Gate) -> Step:
        """No job can be a credential's probe: it resumes, and its upstreams' own probes tell as much."""
        shut = self._rows.some_behind_shut(gate.name)
        return resume(replace(gate, probe_first=False), self._rows.now()) if shut else Step(gate)

    # -- inside: what others have written ----------------------------------------------------

    def _samples(self) -> dict[str, str]:
        return {
            name: traffic.told_json(self._rows.now())
            for name, traffic in self._traffic.items()
            if traffic.unshared
        }

    def _take_in(self, seen: GateLook) -> None:
        if not self._traffic:
            self._traffic = {
                name: Traffic(one, seen.now, self._worker) for name, one in self._upstreams.items()
            }
        for name, traffic in self._traffic.items():
            windows = [window_in(one.samples_json) for one in seen.samples if one.gate == name]
            traffic.heed(tuple(window for window in windows if window is not None))
            traffic.slices, traffic.slices_generation = {}, 0
            traffic.unshared = False
        for one in seen.slices:
            traffic = self._traffic[one.gate]
            traffic.slices_generation = one.generation
            traffic.slices = slices_of(one, seen.alive | {self._worker})
        for name, traffic in self._traffic.items():
            news = traffic.pace_news(seen.now)
            if news is not None:
                self._observers.tell(
                    EventName.GATE_PACED,
                    gate=name,
                    rate_per_s=news.rate_per_s,
                    was_per_s=news.was_per_s,
                    reason=news.reason,
                    rises_in_s=news.rises_in_s(seen.now),
                    rise_per_s=news.rise_per_s,
                )

    def _show(self, gate: Gate) -> None:
        for traffic in self._traffic.values():
            if traffic.upstream.name == gate.name:
                traffic.gate = gate
            elif traffic.upstream.credential == gate.name:
                traffic.credential = gate
            else:
                continue
            traffic.see(self._rows.now())

    def _traffic_of(self, claim: Claim) -> Traffic | None:
        stage = self._catalogue.stage(claim.pipeline, claim.stage)
        if stage is None or stage.upstream is None:
            return None
        return self._traffic.get(stage.upstream)

    def _in_turn(self) -> Sequence[tuple[str, tuple[int, ...]]]:
        """Upstreams and their lanes; another one is first each time, so that none goes without."""
        found = [
            (name, lanes)
            for name, lanes in self._catalogue.lanes_behind().items()
            if name in self._traffic
        ]
        self._turn += 1
        first = self._turn % len(found) if found else 0
        return found[first:] + found[:first]
