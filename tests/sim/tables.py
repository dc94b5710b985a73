"""Compares the real tables with the ledger, job by job, and runs the real audit."""

from typing import Any

from perdure.ports import Reader
from perdure.stores.sqlite.connection import SqliteConnection
from tests.sim.checker import Checker
from tests.sim.ledger import JobAccount

_JOBS = """
SELECT no, id, state, stage, token, isolation, worker, result,
    life, finished_at, discarded_at, starts, failures, waits, crashes, snoozes, releases, probes
FROM perdure_jobs ORDER BY no
"""
_ATTEMPTS = "SELECT job, token, tokens_in, tokens_out, cost_nusd FROM perdure_attempts"
_DEAD = """
SELECT j.no, j.payload, j.error_kind, (SELECT count(*) FROM perdure_attempts AS a WHERE a.job = j.no)
FROM perdure_jobs AS j WHERE j.state = 'failed'
"""
_COUNTERS = ("starts", "failures", "waits", "crashes", "snoozes", "releases", "probes")


def check_tables(checker: Checker, connection: SqliteConnection, reader: Reader) -> None:
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
    _check_dead_letters(checker, connection)
    _check_payloads(checker, connection)
    check_runs(checker, reader)
    check_bulks(checker, reader)
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
        job.id,
        job.state.value,
        job.stage,
        job.token,
        job.isolation,
        job.holder,
        job.result_json,
    )
    if said != known:
        checker.broken("S15", f"the row of #{job.no} is {said}, the history says {known}")
    start_us = checker.start_us
    moments = tuple(None if one is None else one - start_us for one in row[9:11])
    if (row[8], *moments) != (job.life, job.finished_us, job.discarded_us):
        checker.broken("S15", f"#{job.no}: life {row[8]}, ended and discarded {moments}: {job}")
    counts = tuple(job.counted(what, job.stage) for what in _COUNTERS)
    if row[11:] != counts:
        checker.broken("S15", f"#{job.no} counts {row[11:]} of {_COUNTERS}, the history {counts}")


def _check_checkpoints(checker: Checker, connection: SqliteConnection) -> None:
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


def _check_attempts(checker: Checker, connection: SqliteConnection) -> None:
    """An attempt is a row, as long as its job is there, and says what it cost."""
    rows = connection.raw.execute(_ATTEMPTS).fetchall()
    said = {(job, token): tuple(money) for job, token, *money in rows}
    known = {
        (job.no, token): (attempt.tokens_in, attempt.tokens_out, attempt.cost_nusd)
        for job in checker.ledger.jobs.values()
        if not job.pruned
        for token, record in job.settled.items()
        if (attempt := record.attempt) is not None
    }
    if said.keys() != known.keys():
        odd = sorted(said.keys() ^ known.keys())[:5]
        checker.broken("S15", f"attempts of (job, token) {odd} are in one place only")
    if said != known:
        odd = [place for place, money in known.items() if said[place] != money][:5]
        checker.broken("S16", f"attempts of (job, token) {odd} have cost something else")


def _check_dead_letters(checker: Checker, connection: SqliteConnection) -> None:
    """A dead letter has its payload, its kind, and the attempts of all of its lives."""
    rows = connection.raw.execute(_DEAD).fetchall()
    for no, payload, kind, attempts in rows:
        job = checker.ledger.jobs[no]
        known = [one for one in job.settled.values() if one.attempt is not None]
        if (payload, kind, attempts) != (job.payload_json, job.error_kind, len(known)):
            checker.broken("S19", f"dead letter #{no} has {attempts} attempts, {kind}: {payload}")


def _check_payloads(checker: Checker, connection: SqliteConnection) -> None:
    """What was replaced is kept with the life that it was for."""
    rows = connection.raw.execute("SELECT job, life, payload FROM perdure_payloads").fetchall()
    known = {
        (job.no, life, payload)
        for job in checker.ledger.jobs.values()
        if not job.pruned
        for life, payload in job.payloads.items()
    }
    if {tuple(row) for row in rows} != known:
        checker.broken("S19", f"old payloads {sorted({tuple(row) for row in rows} ^ known)[:3]}")


def check_runs(checker: Checker, reader: Reader) -> None:
    """Every run is there, and counts what its jobs are."""
    views = reader.runs(limit=500)
    checker.speaker = "the tables"
    if {view.no for view in views} != checker.ledger.runs.keys():
        checker.broken("E13", f"there are {len(views)} runs, not {len(checker.ledger.runs)}")
    for view in views:
        checker.runs.seen(view)


def check_bulks(checker: Checker, reader: Reader) -> None:
    """Every bulk operation stands where it is known to, and what it has refused is written down once."""
    for view in reader.bulks(limit=500):
        checker.letters.seen(view)
        bulk = checker.ledger.bulks[view.no]
        refused = [one.job_no for one in reader.refusals(view.no)]
        if sorted(refused) != sorted(bulk.refused):
            odd = sorted(set(refused) ^ bulk.refused)
            checker.broken("E11", f"{bulk.verb.value} {bulk.no}: of the refused, {odd} are amiss")


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


def _check_workers(checker: Checker, connection: SqliteConnection) -> None:
    rows = connection.raw.execute("SELECT no, dead_at IS NOT NULL FROM perdure_workers").fetchall()
    for no, dead in rows:
        if bool(dead) != (checker.ledger.workers[no].death is not None):
            checker.broken("S4", f"worker {no} is dead in the table: {bool(dead)}")
