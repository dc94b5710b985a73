"""Compares the real tables with the ledger, job by job, and runs the real audit."""

from typing import Any

from perdure.ports import Reader
from perdure.stores.sqlite.connection import Connection
from tests.sim.checker import Checker
from tests.sim.ledger import JobAccount

_JOBS = """
SELECT no, id, state, stage, token, isolation, worker, result,
    life, finished_at, discarded_at, starts, failures, waits, crashes, snoozes, releases, probes
FROM perdure_jobs ORDER BY no
"""
_COUNTERS = ("starts", "failures", "waits", "crashes", "snoozes", "releases", "probes")


def check_tables(checker: Checker, connection: Connection, reader: Reader) -> None:
    """Every accepted job is there once, and its row says what the history says."""
    ledger = checker.ledger
    rows = connection.raw.execute(_JOBS).fetchall()
    kept = {no: job for no, job in ledger.jobs.items() if not job.pruned}
    missing = kept.keys() - {row[0] for row in rows}
    if missing:
        checker.broken("S1", f"jobs {sorted(missing)} were accepted and are gone")
    for row in rows:
        job = kept.get(row[0])
        if job is None:
            checker.broken("S15", f"job {row[1]} is there and was never accepted, or is pruned")
        assert job is not None
        _check_row(checker, job, row)
    _check_checkpoints(checker, connection)
    _check_attempts(checker, connection)
    _check_workers(checker, connection)
    _check_lanes_and_schedules(checker, reader)
    _check_gates(checker, reader)
    books = reader.books()
    here = (len(ledger.jobs), len(ledger.jobs) - len(kept))
    if not books.balanced or (books.accepted, books.pruned) != here:
        checker.broken("S15", f"accepted and pruned {here}, the books say {books}")
    findings = reader.audit()
    if findings:
        checker.broken("S15", f"the audit found {findings[:3]}")


def _check_row(checker: Checker, job: JobAccount, row: tuple[Any, ...]) -> None:
    said = row[1:8]
    known = (
        job.id, job.state.value, job.stage, job.token, job.isolation, job.holder, job.result_json,
    )  # fmt: skip
    if said != known:
        checker.broken("S15", f"the row of #{job.no} is {said}, the history says {known}")
    start_us = checker.start_us
    moments = tuple(None if one is None else one - start_us for one in row[9:11])
    if (row[8], *moments) != (job.life, job.finished_us, job.discarded_us):
        checker.broken("S15", f"#{job.no}: life {row[8]}, ended and discarded {moments}: {job}")
    counts = tuple(job.counted(what, job.stage) for what in _COUNTERS)
    if row[11:] != counts:
        checker.broken("S15", f"#{job.no} counts {row[11:]} of {_COUNTERS}, the history {counts}")


def _check_checkpoints(checker: Checker, connection: Connection) -> None:
    rows = connection.raw.execute("SELECT job, stage, value FROM perdure_checkpoints").fetchall()
    saved = {(no, stage): value for no, stage, value in rows}
    known = {
        (job.no, stage): value
        for job in checker.ledger.jobs.values()
        if not job.pruned
        for stage, value in job.done.items()
    }
    for place in saved.keys() | known.keys():
        if saved.get(place) != known.get(place):
            checker.broken("S14", f"the result of {place} is {saved.get(place)}")


def _check_attempts(checker: Checker, connection: Connection) -> None:
    """An attempt is a row, as long as its job is there."""
    rows = connection.raw.execute("SELECT job, token FROM perdure_attempts").fetchall()
    known = {
        (job.no, token)
        for job in checker.ledger.jobs.values()
        if not job.pruned
        for token, record in job.settled.items()
        if record.attempt is not None
    }
    if set(rows) != known:
        odd = sorted(set(rows) ^ known)[:5]
        checker.broken("S15", f"attempts of (job, token) {odd} are in one place only")


def _check_lanes_and_schedules(checker: Checker, reader: Reader) -> None:
    paused = {(one.scope, one.name) for one in reader.pauses()}
    if paused != checker.ledger.paused:
        checker.broken("E5", f"paused are {paused}, the history says {checker.ledger.paused}")
    next_at = {one.name: one.next_at for one in reader.schedules()}
    known = {one.name: one.next_at for one in checker.ledger.schedules.values()}
    if next_at != known:
        checker.broken("E6", f"the schedules stand at {next_at}, the history says {known}")


def _check_gates(checker: Checker, reader: Reader) -> None:
    rows = {one.name: (one.generation, one.state, one.parent) for one in reader.gates()}
    known = {
        name: (one.row.generation, one.row.state, one.parent)
        for name, one in checker.ledger.gates.items()
        if one.row.generation
    }
    if rows != known:
        checker.broken("E9", f"the gates are {rows}, the history says {known}")


def _check_workers(checker: Checker, connection: Connection) -> None:
    rows = connection.raw.execute("SELECT no, dead_at IS NOT NULL FROM perdure_workers").fetchall()
    for no, dead in rows:
        if bool(dead) != (checker.ledger.workers[no].death is not None):
            checker.broken("S4", f"worker {no} is dead in the table: {bool(dead)}")
