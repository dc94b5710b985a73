"""When a run is given up, and what to call it when it is over: arithmetic over cumulative counts.

The budget bounds failed / processed over the *whole* run so far. (Failures of the last chunk over
everything processed, as the document that asks for it has it, falls as the run grows: it would never
see an upstream that breaks half-way. D2.) It is looked at first when ``sample_min`` processed items say something, and
from then on when their count passes a multiple of ``check_every``.

A run whose first items have all failed in the same way, and in the code of its stages, is given up before that: a
defect fails the rest as well, and it is the person who wrote it that has to act.

The two thresholds of a run do different things and do not meet. The budget ends a run early, to save
what a systematic fault would waste; the status names a run that went to its end. So a run may end
``partial_success`` with 8 % failures, within its budget, and an aborted run stays ``aborted`` however
well its finished items look; what is left of it can be resumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec
from msgspec import Struct

from perdure.model.errors import ConfigError
from perdure.model.kinds import KINDS, FailureClass, Kind
from perdure.model.runs import RunStatus
from perdure.rules.field_checks import flag, nearest, number, whole_number


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run's items came to so far. A cancelled item is no longer wanted and not in here."""

    succeeded: int = 0
    failures: Mapping[Kind, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "failures", MappingProxyType(dict(self.failures)))

    @property
    def failed(self) -> int:
        """Dead-lettered items, of whatever kind."""
        return sum(self.failures.values())

    @property
    def processed(self) -> int:
        """Items that reached an end."""
        return self.succeeded + self.failed

    def without_rate_limits(self) -> "Tally":
        """The same without the items that rate limits ended: they say nothing about the run."""
        kept = {
            kind: count
            for kind, count in self.failures.items()
            if KINDS[kind].failure_class is not FailureClass.RATE_LIMITED
        }
        return Tally(self.succeeded, kept)


class Budget(Struct, frozen=True):
    """What a run may fail and cost before it is aborted, and what it is called when it went to its end.

    ``failure_budget`` is the share of failures that it may have; None means that failures never end it. ``kinds`` gives
    single kinds a budget of their own. The first check falls to item ``sample_min``, or later where rate limits, left out
    with ``rate_limits=False``, leave little to judge by; the others fall to every ``check_every``-th item.
    From the share of success ``completed_at`` on it is completed, from ``partial_at`` on partly so.
    """

    failure_budget: float | None = 0.10
    check_every: int = 1_000
    sample_min: int = 100
    rate_limits: bool = True
    kinds: Mapping[str, float] = msgspec.field(default_factory=dict)
    completed_at: float = 0.95
    partial_at: float = 0.50
    cost_max_usd: float | None = None

    def __post_init__(self) -> None:
        if self.failure_budget is not None:
            number("failure_budget", self.failure_budget, 0.0, 1.0)
        whole_number("check_every", self.check_every, 1, 1_000_000_000)
        whole_number("sample_min", self.sample_min, 1, 1_000_000_000)
        flag("count_rate_limits", self.rate_limits)
        for kind, share in self.kinds.items():
            if kind not in set(Kind):
                names = tuple(one.value for one in Kind)
                raise ConfigError(
                    f"failure_budgets names {kind!r}, which is no kind of failure; {nearest(str(kind), names)}"
                )
            number(f"failure_budgets[{kind!r}]", share, 0.0, 1.0)
        number("completed_at", self.completed_at, 0.0, 1.0)
        number("partial_at", self.partial_at, 0.0, self.completed_at)
        if self.cost_max_usd is not None:
            number("cost_max_usd", self.cost_max_usd, 0.0, 1e9)


STANDARD = Budget()
# First items that have to fail alike: a few bad ones may stand at the head of a file.
ALIKE_MIN = 20


def check_due(budget: Budget, *, checked: int, processed: int) -> bool:
    """Whether ``processed`` has passed the end of the sample, or a multiple of the interval, since ``checked`` was looked at.

    Several workers settle batches, so the count may jump over the multiple itself.
    """
    if budget.failure_budget is None and not budget.kinds:
        return False
    return _checks(budget, processed) > _checks(budget, checked)


def _checks(budget: Budget, processed: int) -> int:
    """How many checks so many items have called for."""
    if processed < budget.sample_min:
        return 0
    return 1 + processed // budget.check_every - budget.sample_min // budget.check_every


def first_look_due(budget: Budget, tally: Tally, *, checked: int) -> bool:
    """Whether it is time to see if the first items have all failed alike: before the first check, and once.

    Who lets all items fail, or never wants a run to end for its failures, is not asked to look at them.
    """
    share = budget.failure_budget
    if share is None or share >= 1 or tally.succeeded:
        return False
    return checked < ALIKE_MIN <= tally.failed < budget.sample_min


def has_sample(budget: Budget, tally: Tally) -> bool:
    """Whether there is enough to judge by."""
    return _tally_judged(budget, tally).processed >= budget.sample_min


def _tally_judged(budget: Budget, tally: Tally) -> Tally:
    return tally if budget.rate_limits else tally.without_rate_limits()


def overspent(budget: Budget, tally: Tally) -> str | None:
    """Why the run must be aborted, in words for its owner; None while it is within its budget."""
    judged = _tally_judged(budget, tally)
    if judged.processed < budget.sample_min:
        return None
    share_max = budget.failure_budget
    shares = [] if share_max is None else [("failures", judged.failed, share_max)]
    shares += [
        (f"{Kind(kind).value} failures", judged.failures.get(Kind(kind), 0), share)
        for kind, share in budget.kinds.items()
    ]
    left_out = tally.processed - judged.processed
    for what, failed, share_max in shares:
        rate = failed / judged.processed
        if rate > share_max:
            return (
                f"aborted: the rate of {what} is {_rate_beside(rate, share_max)}, the budget is "
                f"{_percent(share_max)} ({judged.processed} processed, {failed} failed"
                + (f"; {left_out} rate limited are left out)" if left_out else ")")
            )
    return None


def run_status(tally: Tally, budget: Budget = STANDARD, *, aborted: bool = False) -> RunStatus:
    """What to call a run that is over.

    A run without items is completed: nothing that was asked for is missing.
    """
    if aborted:
        return RunStatus.ABORTED
    share = tally.succeeded / tally.processed if tally.processed else 1.0
    if share >= budget.completed_at:
        return RunStatus.COMPLETED
    return RunStatus.PARTIAL_SUCCESS if share >= budget.partial_at else RunStatus.FAILED


def _percent(share: float) -> str:
    return f"{share * 100:.6g} %"


def _rate_beside(rate: float, share_max: float) -> str:
    """A rate in three digits, or in as many as tell it from the budget that it is over."""
    short = f"{rate * 100:.3g} %"
    return short if short != _percent(share_max) else _percent(rate)
