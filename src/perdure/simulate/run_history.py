"""The books of one simulated run: every call, every end, every change of the gate."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from perdure.model.gates import GateState
from perdure.simulate.replies import Form, Reply

_HELD_ANEW = (GateState.FLOWING.value, GateState.HELD.value)
_ANSWERED = frozenset({Form.OK, Form.MISFIT, Form.OWN_BUG})


@dataclass(slots=True)
class RunHistory:
    """What happened. ``given_up`` jobs ended failed; those neither done nor given up were left over.

    Of those given up ``defective`` had to be, because something was wrong with them.

    ``waited_s`` holds, by owner, each job's time from its arrival to its first call. ``early`` counts
    calls that began before the upstream had said they may. ``limit_per_s`` is the highest rate that the
    upstream ever admitted calls at.
    """

    jobs: int = 0
    done: int = 0
    given_up: int = 0
    defective: int = 0
    early: int = 0
    probes: int = 0
    trips: int = 0
    in_flight_at_trip: int = 0
    alerts: int = 0
    tokens_wasted: int = 0
    spent_held: int = 0
    limit_per_s: float | None = None
    finished_s: float = 0.0
    ended_s: float = 0.0
    answers: Counter[Form] = field(default_factory=Counter)
    starts_s: list[float] = field(default_factory=list)
    depth: dict[int, int] = field(default_factory=dict)
    gate: list[tuple[float, str]] = field(default_factory=list)
    waited_s: dict[str, list[float]] = field(default_factory=dict)
    done_s: dict[str, list[float]] = field(default_factory=dict)

    @property
    def wasted(self) -> int:
        """Calls that the upstream did not answer as it should."""
        return sum(count for form, count in self.answers.items() if form not in _ANSWERED)

    @property
    def answered_calls(self) -> int:
        """Calls that it did answer so, whatever became of their jobs."""
        return sum(self.answers[form] for form in _ANSWERED)

    @property
    def ended(self) -> int:
        """Jobs that ended as they should."""
        return self.done + self.defective

    @property
    def lost(self) -> int:
        """Jobs that ended failed though nothing was wrong with them."""
        return self.given_up - self.defective

    @property
    def holds(self) -> int:
        """Times that a gate which let calls pass was held."""
        states = [state for _, state in self.gate]
        return sum(two == _HELD_ANEW for two in pairwise(states))

    @property
    def left_over(self) -> int:
        """Jobs that were still waiting when the run was ended."""
        return self.jobs - self.done - self.given_up

    def add_answer(self, reply: Reply) -> None:
        """A call came back."""
        self.answers[reply.form] += 1
        if reply.form is not Form.OK:
            self.tokens_wasted += reply.tokens

    def add_success(self, owner: str, now_s: float) -> None:
        """A job is done."""
        self.done += 1
        self.finished_s = now_s
        self.done_s.setdefault(owner, []).append(now_s)

    def gave_up(self, now_s: float, *, defective: bool) -> None:
        """A job has ended failed."""
        self.given_up += 1
        if defective:
            self.defective += 1
            self.finished_s = now_s

    def add_look(self, now_s: float, waiting: int) -> None:
        """The queue is so long now; the last look in a second stands for it."""
        self.depth[int(now_s)] = waiting

    def calls_between(self, from_s: float, until_s: float) -> int:
        """Calls that began in that time."""
        return bisect_left(self.starts_s, until_s) - bisect_left(self.starts_s, from_s)

    def peak_per_s(self, from_s: float) -> int:
        """The most calls that began within one second, from then on."""
        late = self.starts_s[bisect_left(self.starts_s, from_s) :]
        end = most = 0
        for n, start_s in enumerate(late):
            while end < len(late) and late[end] < start_s + 1.0:
                end += 1
            most = max(most, end - n)
        return most

    def jain(self, from_s: float) -> float | None:
        """Jain's index of what the owners got done from then on, while all of them had jobs."""
        if len(self.done_s) < 2:
            return None
        until_s = min(ends[-1] for ends in self.done_s.values())
        got = [
            bisect_left(ends, until_s) - bisect_left(ends, from_s) for ends in self.done_s.values()
        ]
        squares = sum(one * one for one in got)
        return sum(got) ** 2 / (len(got) * squares) if squares else None


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of them lies."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
