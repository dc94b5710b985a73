"""The columns that are read from the tables: the fields of a noun are the one list of them.

From the fields come both the SQL that selects them, in their order (a piece of statements, such as ``{j.claim_columns}``), and
the noun that is made from a row. A field is the column of its name, without ``_json``, and is read as its type says; what
is otherwise is said below. Whatever a statement selects besides stands behind these columns.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import lru_cache, partial
from operator import attrgetter
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec

from perdure.model.access import AccessScope, AccessToken
from perdure.model.gates import GateRow
from perdure.model.jobs import ZERO, Claim, Counters, Expired
from perdure.model.kinds import KINDS, Sign
from perdure.model.operations import BulkView, LanePause, LoggedDeed, ScheduleView
from perdure.model.runs import ItemView, RunCounts, RunView
from perdure.model.views import AttemptView, CaptureView, JobView
from perdure.model.workers import WorkerView
from perdure.stores.moments import from_us, maybe_us

Read = Callable[[Any], Any]
Noun = TypeVar("Noun")

COUNTERS: Mapping[str, type] = get_type_hints(Counters)
COUNTED = tuple(name for name in COUNTERS if name != "starts")
counted: Callable[[Counters], tuple[float, ...]] = attrgetter(*COUNTED)
RUN_COUNTS = tuple(get_type_hints(RunCounts))

_counters = msgspec.json.Decoder(Counters)
_kinds = msgspec.json.Decoder(dict[str, int])
_moment = lru_cache(maxsize=4096)(from_us)  # most claims of a batch share their moments


class Columns(Generic[Noun]):
    """The columns of a noun, and ``read``, which makes one from a row.

    ``@`` in their SQL is where the name of their table may stand. Fields that are no columns are given to ``read``.
    """

    def __init__(
        self,
        noun: type[Noun],
        *,
        without: Iterable[str] = (),
        sql: Mapping[str, str] | None = None,
        read: Mapping[str, Read] | None = None,
    ) -> None:
        """Every field of the noun but those ``without``, with the SQL and the reading of those that need their own."""
        self._sql: list[str] = []
        self.places: dict[str, int] = {}
        reads: dict[str, Any] = {"noun": noun}
        fields = []
        for field, kind in get_type_hints(noun).items():
            if field in without:
                fields.append(field)
                continue
            reads[f"read_{field}"] = how = (read or {}).get(field) or _reading(kind)
            place = self.places[field] = len(self._sql)
            own = (sql or {}).get(field, f"@{field.removesuffix('_json')}")
            self._sql += [own.replace(field, one) for one in _PARTS.get(how, (field,))]
            fields.append(_expression(f"read_{field}", how, place, len(self._sql)))
            if field == "request_id":  # a caller that gave none is known by the job's id
                fields[-1] += f" or row[{self.places['id']}]"
        self.width = len(self._sql)
        # Written out, as dataclasses do it: a loop over the columns takes two thirds longer, for every claim.
        written = f"lambda {', '.join(('row', *without))}: noun({', '.join(fields)})"
        self.read: Callable[..., Noun] = eval(written, reads)  # noqa: S307 of nothing but names of fields

    def sql(self, otherwise: Mapping[str, str]) -> str:
        """The columns as a statement selects them; a store says some ``otherwise``."""
        return ", ".join(otherwise.get(one, one) for one in self._sql)

    def read_all(self, rows: Iterable[Sequence[Any]]) -> list[Noun]:
        """The nouns from rows."""
        return [self.read(row) for row in rows]

    def blank(self, row: Sequence[Any], field: str) -> list[Any]:
        """A row in which a field that cannot be read is null."""
        values = list(row)
        values[self.places[field]] = None
        return values


def _expression(name: str, read: Read | None, begin: int, end: int) -> str:
    """How a field is read from a row, in Python, by a reading of this name."""
    if read is None:
        return f"row[{begin}]"
    return f"{name}(tuple(row[{begin}:{end}]))" if read in _PARTS else f"{name}(row[{begin}])"


def _reading(kind: Any) -> Read | None:
    """How a stored value becomes one of this type; None when it is one."""
    if kind in (Counters, RunCounts):
        return _counters_of if kind is Counters else _run_counts_of
    if NoneType in get_args(kind):
        (inner,) = (_reading(one) for one in get_args(kind) if one is not NoneType)
        if inner is None:
            return None
        return maybe_us if inner is from_us else partial(_unless_null, inner)
    if kind is datetime:
        return from_us
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else None


def _unless_null(read: Read, value: Any) -> Any:
    return None if value is None else read(value)


@lru_cache(maxsize=4096)
def _counters_of(columns: tuple[Any, ...]) -> Counters:
    """Most claims of a batch count alike; building the noun is half the cost of reading a claim."""
    return Counters(*columns)


def _run_counts_of(columns: tuple[Any, ...]) -> RunCounts:
    """Drivers sum whole numbers to types of their own."""
    return RunCounts(*(int(one) for one in columns))


_PARTS: Mapping[Any, Iterable[str]] = {_counters_of: COUNTERS, _run_counts_of: RUN_COUNTS}


def _past_of(text: str | None) -> Counters:
    """The counters of earlier stages."""
    return ZERO if text is None else _counters.decode(text)


def _scopes_of(text: str) -> tuple[AccessScope, ...]:
    return tuple(map(AccessScope, text.split()))


def _kinds_of(text: str | None) -> dict[str, int]:
    """The failed jobs of a run by their kind, from one JSON object."""
    found = {} if text is None else _kinds.decode(text)
    return {kind: failed for kind, failed in sorted(found.items()) if failed}


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000


_INPUT = (
    "(SELECT c.value FROM perdure_checkpoints AS c WHERE c.job = @no AND c.stage = @input_from)"
)

# What a stage is given is null where it is the payload itself, and empty where its checkpoint is gone.
CLAIM_INPUT = f"CASE WHEN @input_from IS NOT NULL THEN coalesce({_INPUT}, '') END"
CLAIM = Columns(
    Claim,
    without=("input_json", "damage"),
    sql={"ordered_at": "@order_at"},
    read={"past": _past_of, "claimed_at": _moment, "due_at": _moment, "ordered_at": _moment},
)
EXPIRED = Columns(Expired, read={"past": _past_of})
JOB = Columns(
    JobView,
    sql={
        "queue": "coalesce(l.queue, '')",
        "category": "coalesce(l.category, '')",
        "input_json": f"CASE WHEN @input_from IS NULL THEN @payload ELSE {_INPUT} END",
        "ordered_at": "@order_at",
        "deadline_s": "@deadline_us",
        "policies_s": "@policies_us",
    },
    read={
        "past": _past_of,
        "ready": lambda ready: ready == 1,
        "input_json": lambda value: value or "null",
        "deadline_s": _seconds,
        "policies_s": _seconds,
    },
)
ATTEMPT = Columns(AttemptView, sql={"job_no": "@job"})
RUN = Columns(RunView, sql={"counts": "c.counts", "kinds": "k.kinds"}, read={"kinds": _kinds_of})
ITEM = Columns(ItemView)
CAPTURE = Columns(CaptureView, sql={"job_no": "@job", "bytes_kept": "length(@content)"})
BULK = Columns(BulkView)
GATE = Columns(GateRow)
WORKER = Columns(WorkerView, sql={"ttl_s": "@ttl_us"}, read={"ttl_s": _seconds})
PAUSE = Columns(LanePause)
SCHEDULE = Columns(ScheduleView)
DEED = Columns(LoggedDeed)
ACCESS_TOKEN = Columns(AccessToken, read={"scopes": _scopes_of})


def pieces(otherwise: Mapping[str, str]) -> dict[str, str]:
    """The columns as pieces of a store's statements, some of them ``otherwise`` than in the other store."""
    lists: dict[str, Columns[Any]] = {
        "claim": CLAIM,
        "expired": EXPIRED,
        "job": JOB,
        "attempt": ATTEMPT,
        "run": RUN,
        "item": ITEM,
        "capture": CAPTURE,
        "bulk": BULK,
        "gate": GATE,
        "worker": WORKER,
        "pause": PAUSE,
        "schedule": SCHEDULE,
        "deed": DEED,
        "access_token": ACCESS_TOKEN,
    }
    found = {f"{name}_columns": columns.sql(otherwise) for name, columns in lists.items()}
    cleared = ", ".join(f"{one} = 0" for one in COUNTED)
    bad = ", ".join(f"'{kind.value}'" for kind, facts in KINDS.items() if facts.sign is Sign.BAD)
    return found | {"claim_input": CLAIM_INPUT, "counters_cleared": cleared, "bad_kinds": bad}
