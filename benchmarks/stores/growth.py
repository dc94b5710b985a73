"""How long a claim takes while the tables grow: of ready, future, finished and held jobs, and of lanes.

A measurement claims 100 jobs and goes on as in life: they succeed, and as many new ones come in. What has
succeeded is let go at once, so that each table keeps the size that it stands for. The sizes stand side by side,
each in a database of its own, and are measured in turns: a noisy second disturbs all of them alike. Beside the
time on the wall, which ends with a sync to the disk, stands the CPU time of the claim: the backend's for
PostgreSQL, our thread's for SQLite.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.stores.ours import on
from benchmarks.stores.places import Places
from benchmarks.stores.work import SUCCESS, items

from perdure.app.session.opening import open_store
from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import ClaimOrder, Lane, NewJob
from perdure.model.operations import Deed

CLAIMED = 100
OPEN_JOBS = 1_000  # ready jobs in the lanes that are claimed from, whatever else there is
WARM_UP = 20  # statements are prepared, plans chosen and caches filled by then
LANES = 1_000
FILL_BATCH = 100_000
DAY_US = 86_400_000_000
KINDS = ("ready", "future", "finished", "held")

_STATES = {  # state, ready, due in, token, starts, finished at, result
    "ready": ("'queued'", "1", 0, 0, 0, "NULL", "NULL"),
    "held": ("'queued'", "1", 0, 0, 0, "NULL", "NULL"),
    "future": ("'queued'", "0", DAY_US, 0, 0, "NULL", "NULL"),
    "finished": ("'succeeded'", "NULL", 0, 2, 1, "c.now", "'\"done\"'"),
}
_IDS = {  # they grow with the number, as ours do with time
    "postgresql": "(lpad(to_hex(g.n), 12, '0') || '7' || substr(md5(g.n::text), 1, 3) || '8' "
    "|| substr(md5(g.n::text), 4, 15))::uuid",
    "sqlite": "printf('%08x-%04x-7%03x-8%03x-%012x', g.n >> 16, g.n & 65535, abs(random()) % 4096, "
    "abs(random()) % 4096, abs(random()) % 281474976710656)",
}
_NUMBERS = {
    "postgresql": "generate_series({first}, {last}) AS g (n)",
    "sqlite": "(WITH RECURSIVE s (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) "
    "SELECT n FROM s) AS g",
}
_JOBS = """
INSERT INTO perdure_jobs (
    id, owner, pipeline, lane, stage, state, ready, priority, order_at, rank_at, enqueued_at, due_at,
    updated_at, token, starts, claimed_at, finished_at, payload, result
)
SELECT {id}, '', 'p', {lane}, 'one', {state}, {ready}, 0, c.now + {due_in}, c.now + {due_in}, c.now,
    c.now + {due_in}, c.now, {token}, {starts}, {finished_at}, {finished_at}, '{payload}', {result}
FROM {numbers} CROSS JOIN (SELECT {now} AS now) AS c
"""
_ATTEMPTS = """
INSERT INTO perdure_attempts (
    job, token, stage, number, life, status, state, worker, claimed_at, settled_at, elapsed_s, message,
    policy, why, config_hash, settled_by
)
SELECT no, 1, stage, 1, 1, 'success', 'succeeded', NULL, updated_at, updated_at, 0.125, '', 'standard/1',
    '{why}', '0123456789abcdef', NULL
FROM perdure_jobs WHERE state = 'succeeded'
"""


@dataclass(slots=True)
class Times:
    """Milliseconds of each claim."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Middle and ninety-ninth percentile of both."""
        return {
            "samples": len(self.wall),
            "p50_ms": percentile(self.wall, 0.50),
            "p99_ms": percentile(self.wall, 0.99),
            "cpu_p50_ms": percentile(self.cpu, 0.50),
            "cpu_p99_ms": percentile(self.cpu, 0.99),
        }


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that this share of the values does not exceed."""
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)


class Field:
    """One store that is kept at one size and claimed from."""

    def __init__(self, url: str, *, kind: str, rows: int) -> None:
        self.ours = on(url)
        self.feeding = open_store(url)  # whoever enqueues has connections of its own
        self.scheme = url.partition(":")[0]
        self.open_lanes: tuple[int, ...] = self.ours.lanes[:1]
        self.asked_lanes = self.ours.lanes
        self.times = Times()
        self.add_rows(kind, self._lane_of(kind), rows)
        if kind != "ready":
            self.add(OPEN_JOBS)
        self.ours.ready()

    def _lane_of(self, kind: str) -> int:
        """Held jobs stand in a lane of their own, which is asked for and is closed."""
        if kind != "held":
            return self.open_lanes[0]
        (no,) = self.ours.lay([Lane("q", "held", "p", "one", upstream="slow")])
        change = GateChange("slow", 0, GateState.HELD, reason="bench")
        assert self.ours.opened.control.change_gate(change, Deed("bench")) is not None
        self.asked_lanes = (*self.ours.lanes, no)
        return no

    def add_rows(self, kind: str, lane: int, rows: int) -> None:
        """Write so many rows by SQL, far faster than by enqueueing them."""
        state, ready, due_in, token, starts, finished_at, result = _STATES[kind]
        now = time.time_ns() // 1000 - 60_000_000
        statements = [
            _JOBS.format(
                id=_IDS[self.scheme], lane=lane, state=state, ready=ready, due_in=due_in, token=token,
                starts=starts, finished_at=finished_at, result=result, now=now,
                payload=items(1)[0].payload_json,
                numbers=_NUMBERS[self.scheme].format(first=n, last=min(rows, n + FILL_BATCH - 1)),
            )
            for n in range(1, rows + 1, FILL_BATCH)
        ]  # fmt: skip
        if kind == "finished":
            assert SUCCESS.attempt is not None
            statements.append(_ATTEMPTS.format(why=SUCCESS.attempt.why_json))
        place = {"future": "waiting", "finished": "succeeded"}.get(kind, "ready")
        ended = rows if kind == "finished" else 0
        told = {"lane": lane, "rows": rows, "ended": ended, "place": place}
        statements += [_STANDING.format(**told), _CREATED.format(**told)]
        self.ours.behind(*statements)

    def add(self, count: int) -> None:
        """Enqueue so many jobs, in turns over the open lanes."""
        lanes = self.open_lanes
        self.feeding.store.enqueue(
            [
                NewJob(one.id, "p", lanes[place * len(lanes) // count], "one", one.payload_json)
                for place, one in enumerate(items(count))
            ]
        )

    def measure(self) -> tuple[float, float]:
        """Claim 100 jobs on the clock; then let them succeed, forget them, and add as many."""
        order = ClaimOrder(self.ours.worker, CLAIMED, self.asked_lanes)
        cpu_ns, begun_s = self._cpu_ns(), time.perf_counter()
        turn = self.ours.store.turn((), order, by=self.ours.worker)
        wall_ms = (time.perf_counter() - begun_s) * 1e3
        cpu_ms = (self._cpu_ns() - cpu_ns) / 1e6
        if len(turn.claims) != CLAIMED:
            raise AssertionError(f"claimed {len(turn.claims)} of {CLAIMED}")
        records = self.ours.settled(turn.claims, failing=False)
        self.ours.store.turn(records, None, by=self.ours.worker)
        numbers = ", ".join(str(claim.no) for claim in turn.claims)
        self.ours.behind(
            f"DELETE FROM perdure_attempts WHERE job IN ({numbers})",
            f"DELETE FROM perdure_jobs WHERE no IN ({numbers})",
        )
        self.add(CLAIMED)
        return wall_ms, cpu_ms

    def _cpu_ns(self) -> int:
        return self.ours.server_ns() or time.thread_time_ns()

    def close(self) -> None:
        """Disconnect."""
        self.feeding.close()
        self.ours.close()


class LanesField(Field):
    """A store with a thousand lanes, all of which are asked for; all or one of them have work."""

    def __init__(self, url: str, *, busy: int) -> None:
        super().__init__(url, kind="ready", rows=0)
        lanes = [Lane("q", "c", "p", f"stage {number}") for number in range(LANES)]
        self.asked_lanes = self.ours.lay(lanes)
        self.open_lanes = self.asked_lanes[:busy]
        for _ in range(CLAIMED * busy // 10_000 or 1):
            self.add(max(OPEN_JOBS, min(CLAIMED * busy, 10_000)))
        self.ours.ready()


_STANDING = (
    "INSERT INTO perdure_depths AS t (lane, {place}) VALUES ({lane}, {rows}) "
    "ON CONFLICT (lane, writer) DO UPDATE SET {place} = t.{place} + excluded.{place}"
)
_CREATED = (
    "INSERT INTO perdure_flows AS t (pipeline, stage, minute, created, succeeded, attempts) "
    "VALUES ('p', 'one', 0, {rows}, {ended}, {ended}) ON CONFLICT (pipeline, stage, minute, writer) "
    "DO UPDATE SET created = t.created + excluded.created, succeeded = t.succeeded + excluded.succeeded, "
    "attempts = t.attempts + excluded.attempts"
)


def grown(
    places: Places, scheme: str, kind: str, sizes: Sequence[int], samples: int
) -> dict[str, Any]:
    """Claims beside so many rows of one kind, for each of the sizes."""
    made = {str(rows): _field(kind, rows) for rows in sizes}
    return measured(places, scheme, made, samples)


def laned(places: Places, scheme: str, samples: int) -> dict[str, Any]:
    """Claims that ask for one lane, and for a thousand of which all, or one, have work."""
    made: dict[str, Callable[[str], Field]] = {
        "1 lane": _field("ready", OPEN_JOBS),
        "1,000 lanes, one with work": lambda url: LanesField(url, busy=1),
        "1,000 lanes, all with work": lambda url: LanesField(url, busy=LANES),
    }
    return measured(places, scheme, made, samples)


def _field(kind: str, rows: int) -> Callable[[str], Field]:
    return lambda url: Field(url, kind=kind, rows=rows)


def measured(
    places: Places, scheme: str, made: dict[str, Callable[[str], Field]], samples: int
) -> dict[str, Any]:
    """Measure these in turns; the first few are left out."""
    warm_up = min(WARM_UP, samples)
    with ExitStack() as stack:
        fields: dict[str, Field] = {}
        for name, make in made.items():
            fields[name] = make(stack.enter_context(places.fresh(scheme)))
            stack.callback(fields[name].close)
        places.rest()
        for number in range(warm_up + samples):
            for one in fields.values():
                wall_ms, cpu_ms = one.measure()
                if number >= warm_up:
                    one.times.wall.append(wall_ms)
                    one.times.cpu.append(cpu_ms)
        return {name: one.times.summary() for name, one in fields.items()}
