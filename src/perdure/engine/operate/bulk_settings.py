"""How a bulk operation goes, and which jobs it means."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec
from msgspec import Struct

from perdure.engine.operate.eligible import dead_letters, only_open, waiting_jobs
from perdure.engine.operate.revival import Restart
from perdure.model.filters import JobFilter
from perdure.model.nouns import replace
from perdure.model.operations import BulkVerb, BulkView
from perdure.rules import field_checks

_US = timedelta(microseconds=1)


class BulkSettings(Struct, frozen=True):
    """How an operation goes: from which stage, how many first, how many a second, with corrected payloads or not."""

    stage: str | None = None
    from_start: bool = False
    canary: int = 0
    canary_share: float = 0.9
    rate_per_s: float | None = None
    payloads: bool = False

    def __post_init__(self) -> None:
        Restart(self.stage, self.from_start)  # refuses what cannot be both
        field_checks.whole_number("canary", self.canary, 0, 1_000_000)
        field_checks.number("canary_share", self.canary_share, 0.0, 1.0)
        if self.rate_per_s is not None:
            field_checks.number("rate, a second,", self.rate_per_s, 1e-6, 1_000_000.0)

    @property
    def restart(self) -> Restart:
        """From where the new lives begin."""
        return Restart(self.stage, self.from_start)


PLAIN = BulkSettings()
NO_PAYLOADS: Mapping[str, str] = {}
MEANT: Mapping[BulkVerb, Callable[[JobFilter], JobFilter]] = {
    BulkVerb.REDRIVE: dead_letters,
    BulkVerb.RETRY: dead_letters,
    BulkVerb.DISCARD: dead_letters,
    BulkVerb.CANCEL: only_open,
    BulkVerb.RUN_NOW: waiting_jobs,
}


def filter_of(bulk: BulkView) -> JobFilter:
    """The filter with which it was begun."""
    return msgspec.json.decode(bulk.filter_json, type=JobFilter)


def filter_meant_by(bulk: BulkView) -> JobFilter:
    """The jobs of the operation that were there when it began, as what they are to be."""
    meant = filter_of(bulk)
    end = bulk.begun_at + _US
    is_open = bulk.verb in (BulkVerb.CANCEL, BulkVerb.RUN_NOW)
    until = meant.enqueued_until if is_open else meant.finished_until
    until = end if until is None else min(until, end)
    return replace(meant, enqueued_until=until) if is_open else replace(meant, finished_until=until)
