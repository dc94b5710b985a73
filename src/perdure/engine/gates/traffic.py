"""One upstream as one worker sees it: the calls it has out, how they ended, and how many more may start.

Here is only what a worker keeps in memory and what dies with it; the gate's row is the store's, and this
is a copy of it. Everything is judged by `rules`.
"""

from bisect import insort
from datetime import datetime
from math import inf

import msgspec
from msgspec import Struct, to_builtins

from perdure.engine.gates.pacing import PaceNotes, PaceShown, PaceTold
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.model.gates import GateState
from perdure.model.kinds import Sign
from perdure.model.nouns import replace
from perdure.rules.decide import FLOWING, GateView
from perdure.rules.gate import limit_allowance, pace
from perdure.rules.gate.gate import Gate, after, view
from perdure.rules.gate.limit_allowance import Allowance, Shares
from perdure.rules.gate.limit_slices import Slice, Wish, usable
from perdure.rules.gate.pace import Pace
from perdure.rules.gate.pace_settings import settings_for_one_of
from perdure.rules.gate.signs import Word
from perdure.rules.gate.window import (
    LEFT_OUT_MAX,
    Reading,
    Sample,
    Window,
    is_isolated,
    merge,
    prune_samples,
    reading,
)
from perdure.rules.hints.calls_left import Room

_windows = msgspec.json.Decoder(Window)
_encode = msgspec.json.Encoder().encode

Key = tuple[int, int]  # a job and its token
_SHARED_MAX = 100  # calls in flight that others are told of: the newest, as the window is of those


class Ticket(Struct, frozen=True):
    """What a call carries: the gates' generations that let it pass, and which gate it is the probe of."""

    sent_at: datetime
    own: int
    credential: int
    probes: str | None = None
    estimate: float = 0.0


class CallEnd(Struct, frozen=True):
    """How a call ended, and ``wait_s``, the pause that it was told to make.

    ``took_s`` is how long it took, where that is known: by ``now`` it may have ended long ago.
    """

    word: Word
    now: datetime
    tokens: int | None = None
    room: Room | None = None
    wait_s: float = 0.0
    took_s: float | None = None

    def answered_at(self, sent_at: datetime) -> datetime:
        """When it was over: else it would seem to be answered when we found the time to hear of it."""
        return self.now if self.took_s is None else min(self.now, after(sent_at, self.took_s))


class Checked(Struct, frozen=True):
    """How a probe or a health check ended, and when, if it was not just now."""

    gate: str
    generation: int
    word: Word
    wait_s: float = 0.0
    answered_at: datetime | None = None


class Traffic:
    """The way to one upstream."""

    def __init__(self, upstream: DeclaredUpstream, now: datetime, worker: int) -> None:
        self.upstream = upstream
        self.gate = Gate(upstream.name)
        self.credential: Gate | None = None
        if upstream.credential is not None:
            self.credential = Gate(upstream.credential)
        self._other_windows: tuple[Window, ...] = ()
        self.slices: dict[int, Slice] = {}
        self.slices_generation = 0
        self.bound = False  # whether our slice was what kept calls from starting
        self.began_at: datetime | None = None  # our latest call
        self.promised = 0  # calls that are set aside for what goes on here
        self.unshared = False  # whether others have not been told of what ended since
        self._worker = worker
        self._pace_settings = upstream.gate.pace
        self._pace = pace.slow_start(self._pace_settings, now)
        self._notes = PaceNotes(now)
        self._allowance = Allowance(now, mean_tokens=float(upstream.tokens_per_call))
        self._in_flight: dict[Key, Ticket] = {}
        self._ended: list[tuple[tuple[int, datetime, str], Sample]] = []
        self._seen: tuple[int, int] = (0, 0)
        self._held_at: datetime | None = None  # since when it has not flowed, as we have seen
        self.isolated = False  # whether the refusal that came last was one of few

    @property
    def flowing(self) -> bool:
        """Whether calls pass."""
        own = self.gate.state is GateState.FLOWING
        return own and (self.credential is None or self.credential.state is GateState.FLOWING)

    @property
    def out(self) -> int:
        """Calls that are in flight."""
        return len(self._in_flight)

    def heed(self, others: tuple[Window, ...]) -> None:
        """What other workers know of their calls; the more there are, the slower each of us climbs."""
        if len(others) != len(self._other_windows):
            self._pace_settings = settings_for_one_of(self.upstream.gate.pace, 1 + len(others))
        self._other_windows = others

    def view(self, word: Word | None = None, now: datetime | None = None) -> GateView:
        """The gate as the decision about a job must see it; the credential's gate if that is the one that holds.

        For a call that failed it also says how many others did.
        """
        if self.gate.state is not GateState.FLOWING:
            return view(self.gate)
        if self.credential is not None and self.credential.state is not GateState.FLOWING:
            return view(self.credential)
        if word is None or now is None or word.sign is Sign.GOOD:
            return FLOWING
        if word.refuses and not self.isolated:  # then each job stays away for longer and longer
            return FLOWING
        found = self.reading(now)
        if found.known < self.upstream.gate.window.calls_min:
            return FLOWING
        return replace(FLOWING, failed=found.failed, known=found.known)

    def reading(self, now: datetime) -> Reading:
        """What everybody's latest calls came to."""
        settings, counts_from = self.upstream.gate.window, self.gate.counts_from
        return reading(self.window(), settings, counts_from=counts_from, now=now)

    def see(self, now: datetime) -> None:
        """A gate that flows anew starts slowly; after a rate limit the pace goes on as it was."""
        seen = self._generations()
        if not self.flowing:
            self._held_at = self._held_at or now
        if seen == self._seen or not self.flowing:
            return
        before, self._seen = self._seen, seen
        held_at, self._held_at = self._held_at or now, None
        anew = [
            gate
            for gate, was in zip((self.gate, self.credential), before, strict=True)
            if gate is not None and gate.starts_slowly and gate.generation != was
        ]
        if anew:
            paced = sum(ticket.probes is None for ticket in self._in_flight.values())
            probed = all(gate.is_proved for gate in anew)
            self._pace = pace.slow_start(
                self._pace_settings, now, in_flight=paced, before=self._pace, proved=probed
            )
            self._notes.note_slow_start(self._pace, now, probed=probed)
            # Who has no calls has nothing to tell.
            self.unshared = self.unshared or bool(self._ended)
        else:
            held_s = (now - held_at).total_seconds()
            self._pace = pace.after_hold(self._pace, self._pace_settings, held_s=held_s, now=now)

    def room(self, now: datetime, slots: int) -> int:
        """How many of so many calls may start now."""
        if not self.flowing:
            return 0
        by_pace = pace.admits(self._pace, self._pace_settings, now)
        shares = self._shares(now)
        self._allowance = limit_allowance.forward(self._allowance, shares, now)
        by_limits = limit_allowance.calls_admitted(self._allowance, shares, in_flight=self.out)
        self.bound = self.bound or by_limits < min(by_pace, slots)
        return int(max(0, min(by_pace - self.promised, by_limits - self.promised, slots)))

    def set_aside(self, now: datetime) -> bool:
        """Keep a call for a job that goes on here, if there is one; it starts when that is written."""
        may = self.room(now, 1) > 0
        self.promised += may
        return may

    def opens_in_s(self, now: datetime) -> float:
        """How long until one more call may start; infinite where that is not a matter of time."""
        if not self.flowing:
            gates = [self.gate] if self.credential is None else [self.gate, self.credential]
            ends = [end for one in gates for end in (one.held_until, one.lease_until) if end]
            return max(0.0, (min(ends) - now).total_seconds()) if ends else inf
        by_pace = pace.opens_in_s(self._pace, self._pace_settings, now)
        shares = self._shares(now)
        self._allowance = limit_allowance.forward(self._allowance, shares, now)
        by_limits = limit_allowance.opens_in_s(self._allowance, shares)
        return max(inf if by_pace is None else by_pace, by_limits)

    def start(self, key: Key, now: datetime, *, tokens: int | None, probes: str | None) -> None:
        """A call starts."""
        self.began_at = now
        self._allowance, estimate = limit_allowance.take_call(self._allowance, tokens)
        self._in_flight[key] = Ticket(now, *self._generations(), probes, estimate)
        if probes is None:
            self._pace = pace.after_starts(self._pace, self._pace_settings, 1, now)

    def ticket(self, key: Key) -> Ticket | None:
        """What that call carries, while it is out."""
        return self._in_flight.get(key)

    def end_call(self, key: Key, call_end: CallEnd) -> Ticket | None:
        """A call has ended; None where it was not one of ours."""
        ticket = self._in_flight.pop(key, None)
        if ticket is None:
            return None
        self._allowance = limit_allowance.correct_estimate(
            self._allowance, ticket.estimate, call_end.tokens
        )
        self.isolated = False
        if ticket.probes is None:
            self._note(key, ticket, call_end)
            self.isolated = self._is_isolated(call_end)
            self._pace = self._next_pace(ticket, call_end)
            self._notes.note(self._pace, self._pace_settings, call_end.word, call_end.now)
        return ticket

    def window(self) -> Window:
        """Everybody's calls as one."""
        return merge(self.upstream.gate.window, self._own_window(), *self._other_windows)

    def shared_window(self) -> Window:
        """What others are told of ours."""
        return self._own_window(_SHARED_MAX)

    def told_json(self, now: datetime) -> str:
        """What is written of us: our calls for the other workers, the rest for people."""
        limits = self.upstream.limits
        calls = self.upstream.gate.window.calls
        told = PaceTold(self.pace_shown(now), limits if limits.any else None, calls)
        return _encode(to_builtins(self.shared_window()) | to_builtins(told)).decode()

    def pace_shown(self, now: datetime) -> PaceShown:
        """Our pace, as people see it."""
        return self._notes.show(self._pace, self._pace_settings, now)

    def pace_news(self, now: datetime) -> PaceShown | None:
        """What is to be told of our pace as an event, if there is something."""
        return self._notes.news(self.pace_shown(now), now)

    def wish(self, *, ready: bool, free: int) -> Wish:
        """What we could use of the limits: all, while jobs are ready and we have ``free`` slots for them.

        Without a free slot we keep what we use; without ready jobs we give back more and more of it.
        """
        self.bound = False
        mine = self.slices.get(self._worker)
        share = 0.0 if mine is None else mine.share
        if ready and free > 0:
            return Wish(1.0, min(self.upstream.limits.concurrency or 0, self.out + free))
        if not self.out:
            return Wish(0.0, 0)
        if ready:
            return Wish(max(share, 0.05), self.out)
        return Wish(max(share / 2, 0.05), self.out + min(free, self.out // 4 + 1))

    def credit(self, now: datetime, began_at: datetime | None) -> None:
        """Credit our new share with what it would have saved since the latest call of anybody, one call at most."""
        idle_s = inf if began_at is None else max(0.0, (now - began_at).total_seconds())
        self._allowance = limit_allowance.credit(self._allowance, self._shares(now), idle_s, now)

    # -- inside ------------------------------------------------------------------------------

    def _generations(self) -> tuple[int, int]:
        return self.gate.generation, 0 if self.credential is None else self.credential.generation

    def _shares(self, now: datetime) -> Shares:
        limits = self.upstream.limits
        if not limits.any:
            return Shares()
        mine = self.slices.get(self._worker)
        if mine is None or mine.until <= now:
            return Shares.of(limits, 0.0, 0)
        calls = usable(self.slices, self._worker, concurrency=limits.concurrency, now=now)
        return Shares.of(limits, mine.share, calls)

    def _next_pace(self, ticket: Ticket, call_end: CallEnd) -> Pace:
        return pace.after_end(
            self._pace,
            self._pace_settings,
            call_end.word,
            sent_at=ticket.sent_at,
            now=call_end.now,
            wait_s=call_end.wait_s,
            room=call_end.room,
            isolated=self.isolated,
        )

    def _is_isolated(self, call_end: CallEnd) -> bool:
        """Whether hardly any other call was turned away; asked only of one that was."""
        if call_end.word.sign is not Sign.BAD and not call_end.word.refuses:
            return False
        settings, counts_from = self.upstream.gate, self.gate.counts_from
        return is_isolated(
            self.window(),
            settings.window,
            settings.isolated_share,
            counts_from=counts_from,
            now=call_end.now,
        )

    def _note(self, key: Key, ticket: Ticket, call_end: CallEnd) -> None:
        """Keep the last calls, in the order in which they were sent."""
        word = call_end.word
        took_s = (call_end.answered_at(ticket.sent_at) - ticket.sent_at).total_seconds()
        sample = replace(self._sample(key, ticket), sign=word.sign, kind=word.kind, took_s=took_s)
        insort(self._ended, (sample.place, sample))
        settings = self.upstream.gate.window
        if len(self._ended) > settings.calls + LEFT_OUT_MAX:
            kept = prune_samples((one for _, one in self._ended), settings)
            self._ended = [(one.place, one) for one in kept]
        self.unshared = True

    def _own_window(self, in_flight_max: int = 1_000) -> Window:
        in_flight = [
            self._sample(key, ticket)
            for key, ticket in list(self._in_flight.items())[-in_flight_max:]
            if ticket.probes is None
        ]
        samples = [*in_flight, *(sample for _, sample in self._ended)]
        return Window(tuple(sorted(samples, key=lambda one: one.place)))

    def _sample(self, key: Key, ticket: Ticket) -> Sample:
        return Sample(ticket.own, ticket.sent_at, f"{self._worker}.{key[0]}.{key[1]}")


def window_in(samples_json: str) -> Window | None:
    """A window as another worker wrote it; None where that is of another version."""
    try:
        return _windows.decode(samples_json)
    except msgspec.DecodeError:
        return None
