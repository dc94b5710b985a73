"""The SQL views: the same answers as the reader's, on both stores, and every statement of their page runs."""

import re
from datetime import UTC, datetime

import pytest

from perdure.model.jobs import Capture
from perdure.model.nouns import replace
from perdure.model.runs import NANO
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    failing,
    retry,
    spending,
    success,
)
from perdure.testing.store_contract.fresh_store import Place, uuid_of
from tests.house.markdown import fences
from tests.house.tree import ROOT
from tests.stores.rigs import SqliteRig

PAGE = ROOT / "docs" / "sql-views.md"
NAMED = re.compile(r"\bperdure_\w+")


class Books:
    """A run with everything in it, another one beside it, and jobs of no run; asked in SQL and by the reader."""

    def __init__(self, rig) -> None:
        self.rig = rig
        self.clock = VirtualClock()
        self.place = Place(rig.open(self.clock), self.clock)
        self.worker = self.place.hire()
        self.run, self.other = self.place.begin_run("march"), self.place.begin_run("april")
        self.walk(self.run.no)
        self.walk(self.other.no, tries=3)
        self.fail(kind="timeout", fingerprint="ff")
        self.reader = self.place.reader

    def take(self):
        (claim,) = self.place.take(self.worker)
        return claim

    def settle(self, record, took_s: float = 1.0) -> None:
        self.clock.push(took_s)
        told = replace(record.attempt, elapsed_s=took_s)
        self.place.settle(replace(record, attempt=told), by=self.worker)

    def fail(self, run: int | None = None, **words: str) -> None:
        self.place.put(run=run)
        self.settle(failing(self.take(), self.worker, **words))

    def walk(self, run: int, tries: int = 2) -> None:
        """Items with so many retries, dead letters of two fingerprints, a cancelled one, an open one."""
        for count in range(tries + 1):
            self.place.put(run=run)
            for took_s in range(count):
                again = retry(self.take(), self.worker, delay_s=0.0)
                self.settle(spending(again, tokens_in=10, cost_nusd=250_000_000), 1.0 + took_s)
            step = advance(self.take(), self.worker, self.place.lanes["two"])
            self.settle(spending(step, tokens_in=7, tokens_out=3, cost_nusd=500_000_000))
            end = success(self.take(), self.worker)
            raw = Capture(uuid_of(run * 100 + count, 0xABC), "raw", "text/plain", b"x", 1, None)
            self.settle(replace(end, captures=(raw,)) if count else end, 0.5 * (count + 1))
        for number in (1, 2):
            self.fail(
                run, kind="invalid_output", code="E7", fingerprint="aa", detail=f"row {number}"
            )
        self.fail(run, kind="network", fingerprint="bb")
        self.place.put(run=run)
        self.settle(cancellation(self.take(), self.worker))

    def view(self, name: str, run: int) -> list[tuple]:
        return self.rig.rows(f"SELECT * FROM perdure_run_{name} WHERE run = {run} ORDER BY 1, 2")

    def ask(self, statement: str) -> list[tuple]:
        return self.rig.rows(statement.replace("run = 7", f"run = {self.run.no}"))


@pytest.fixture
def books(rig):
    books = Books(rig)
    yield books
    books.place.clean()
    books.place.close()


def statements() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return ["\n".join(one.lines) for one in fences(text) if one.language == "sql"]


def moment(value: object) -> datetime:
    """A moment as either store gives it."""
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    assert isinstance(value, datetime)
    return value.astimezone(UTC)


@pytest.mark.parametrize("which", ["run", "other"])
def test_retries_and_errors_are_those_of_the_report(books, which):
    run = getattr(books, which).no
    figures = books.reader.run_figures(run)
    assert dict(row[1:] for row in books.view("retries", run)) == figures.retries
    errors = {tuple(row[1:]) for row in books.view("errors", run)}
    assert errors == {(one.kind, one.code, one.attempts, one.final) for one in figures.errors}
    assert len(figures.retries) > 2


@pytest.mark.parametrize("which", ["run", "other"])
def test_stages_are_those_of_the_report(books, which):
    run = getattr(books, which).no
    rows = books.rig.rows(f"SELECT * FROM perdure_run_stages WHERE run = {run} ORDER BY entered")
    found = [(*row[1:6], *row[8:12], row[12], row[13]) for row in rows]
    assert found == [
        (
            one.stage,
            one.attempts,
            one.succeeded,
            one.retried,
            one.failed,
            one.p50_s,
            one.p95_s,
            one.tokens_in,
            one.tokens_out,
            one.cost_nusd / NANO,
            one.wasted_nusd / NANO,
        )
        for one in books.reader.run_figures(run).stages
    ]
    for row in rows:
        assert (row[6], row[7]) == (row[4] / row[2], row[5] / row[2])


@pytest.mark.parametrize("which", ["run", "other"])
def test_waste_and_times_are_those_of_the_report(books, which):
    run = getattr(books, which).no
    figures = books.reader.run_figures(run)
    (waste,), (times,) = books.view("waste", run), books.view("times", run)
    assert waste[1:] == (
        figures.attempts,
        figures.wasted_attempts,
        figures.cost_nusd / NANO,
        figures.wasted_nusd / NANO,
        figures.invalid_outputs,
        figures.attempts_captured,
    )
    assert all((waste[2], waste[4], waste[6]))
    assert times[1:4] == (len(figures.retries), figures.success_p50_s, figures.success_p95_s)
    assert times[4] == pytest.approx(figures.success_mean_s)


def test_progress_is_what_a_run_counts(books):
    for run in books.reader.runs():
        ((*row, created, sealed, ended),) = books.view("progress", run.no)
        counts = run.counts
        assert [str(one) for one in row[:8]] == [
            str(run.no),
            run.id,
            run.owner,
            run.pipeline,
            run.name,
            run.status.value,
            run.why,
            "None",
        ]
        assert tuple(row[8:13]) == (
            counts.total,
            counts.open,
            counts.succeeded,
            counts.failed,
            counts.cancelled,
        )
        assert row[13] == counts.failed / counts.processed
        assert tuple(row[14:]) == (
            counts.attempts,
            counts.retries,
            counts.tokens_in,
            counts.tokens_out,
            counts.cost_usd,
        )
        assert moment(created).replace(microsecond=0) == run.created_at.replace(microsecond=0)
        assert (sealed, ended) == (None, None)


def test_a_run_without_items_has_progress_and_no_share(books):
    empty = books.place.begin_run("empty")
    (row,) = books.view("progress", empty.no)
    assert (row[8], row[9], row[13]) == (0, 0, None)
    assert books.view("waste", empty.no) == books.view("times", empty.no) == []


def test_dead_letters_are_grouped_as_the_reader_groups_them(books):
    (statement,) = [one for one in statements() if "GROUP BY fingerprint" in one]
    assert [
        (row[0], row[1], row[2], row[3], row[4] or "", row[5], *map(moment, row[6:]))
        for row in books.ask(statement)
    ] == [
        (
            one.fingerprint,
            one.pipeline,
            one.stage,
            one.kind,
            one.code,
            one.count,
            one.first_at,
            one.last_at,
        )
        for one in books.reader.dead_groups()
    ]


def test_a_discarded_or_revived_letter_is_none_any_more(books):
    letters = "SELECT job FROM perdure_dead_letters ORDER BY job"
    before = books.rig.rows(letters)
    discarded, revived = (
        books.reader.jobs(limit=500)[0],
        books.place.see(_newest_of(books, "march")),
    )
    books.place.discard(discarded)
    books.place.revive(revived)
    gone = {(discarded.no,), (revived.no,)}
    assert len(gone) == 2
    assert books.rig.rows(letters) == [row for row in before if row not in gone]


def test_what_is_driven_again_counts_in_both_runs(books):
    child = books.place.begin_run("again", parent=books.run.no)
    job = books.place.see(_newest_of(books, "march"))
    before = books.view("waste", books.run.no)[0][1]
    books.place.revive(job, redrive_run=child.no)
    books.settle(success(books.take(), books.worker))
    figures = books.reader.run_figures(child.no)
    assert books.view("waste", child.no)[0][1] == figures.attempts == 1
    assert books.view("waste", books.run.no)[0][1] == before + 1
    assert books.rig.rows(f"SELECT job FROM perdure_run_jobs WHERE run = {child.no}") == [(job.no,)]


@pytest.fixture
def children(books):
    """Two runs that drove the same letters again, one after the other: the first one twice, and for nothing."""
    first = books.place.begin_run("again", parent=books.run.no)
    second = books.place.begin_run("and again", parent=books.run.no)
    letters = [job for job in books.reader.jobs(limit=500) if job.run == books.run.no]
    for job in [job for job in letters if job.failed_reason][:2]:
        for run in (first.no, None, second.no):
            books.place.revive(books.place.see(job.id), redrive_run=run)
            books.settle(retry(books.take(), books.worker, delay_s=0.0), 1.5)
            if run == second.no:
                books.settle(success(books.take(), books.worker), 2.0)
            else:
                books.settle(failing(books.take(), books.worker, kind="network"))
    return first.no, second.no


def test_what_a_second_run_took_over_still_counts_in_the_first(books, children):
    first, second = (books.reader.run_figures(no) for no in children)
    assert (first.attempts, second.attempts) == (8, 4)
    for run, figures in zip(children, (first, second), strict=True):
        (waste,) = books.view("waste", run)
        assert (waste[1], waste[2]) == (figures.attempts, figures.wasted_attempts)
        assert dict(row[1:] for row in books.view("retries", run)) == figures.retries == {1: 2}
        assert {tuple(row[1:]) for row in books.view("errors", run)} == {
            (one.kind, one.code, one.attempts, one.final) for one in figures.errors
        }
        stages = [(row[1], row[2], row[3]) for row in books.view("stages", run)]
        assert stages == [(one.stage, one.attempts, one.succeeded) for one in figures.stages]
    assert books.view("times", children[0]) == []
    assert [row[1:3] for row in books.view("times", children[1])] == [(2, second.success_p50_s)]


def test_each_life_that_was_driven_again_stands_for_itself(books, children):
    where = f"WHERE run IN ({children[0]}, {children[1]}) ORDER BY run, job, life"
    rows = books.rig.rows(f"SELECT run, life, driven, state, last FROM perdure_run_jobs {where}")
    first, second = children
    of_one = [(first, 2, 2, "failed", 0), (first, 3, 3, "failed", 1)]
    assert rows == [*of_one * 2, *[(second, 4, 4, "succeeded", 1)] * 2]
    own = f"SELECT DISTINCT driven, last FROM perdure_run_jobs WHERE run = {books.run.no}"
    assert books.rig.rows(own) == [(None, 1)]


@pytest.mark.parametrize("number", range(len(statements())))
def test_every_statement_of_the_page_runs_and_answers(books, number):
    statement = statements()[number]
    if "fingerprint = '" in statement:
        statement = re.sub(r"fingerprint = '\w+'", "fingerprint = 'aa'", statement)
    assert books.ask(statement)


def test_the_page_asks_of_every_view_that_it_names(books):
    text = PAGE.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(perdure_\w+)`", text, re.MULTILINE))
    asked = {name for one in statements() for name in NAMED.findall(one)}
    assert asked <= listed
    assert listed - asked == {"perdure_run_jobs"}
    for name in listed:
        assert books.rig.rows(f"SELECT count(*) FROM {name}")[0][0] > 0


def test_one_run_is_found_by_its_index_on_sqlite():
    """The whole of a large store is not walked for one run's counts, retries, errors or waste."""
    rig = SqliteRig()
    books = Books(rig)
    for name in ("progress", "retries", "errors", "waste"):
        plan = rig.rows(f"EXPLAIN QUERY PLAN SELECT * FROM perdure_run_{name} WHERE run = 1")
        tables = [row[3] for row in plan if re.match(r"(SCAN|SEARCH) [rdjacn]\b", row[3])]
        assert tables, plan
        assert [one for one in tables if one.startswith("SCAN")] == []
    books.place.close()
    rig.close()


def test_one_run_is_found_by_its_index_on_postgres(postgres_rig):
    """There the ranked ones, too; indexes are made cheap, as a dozen rows would not be worth one."""
    books = Books(postgres_rig)
    postgres_rig.rows("SELECT set_config('enable_seqscan', 'off', false)")
    for name in ("retries", "errors", "stages", "waste", "times"):
        rows = postgres_rig.rows(f"EXPLAIN SELECT * FROM perdure_run_{name} WHERE run = 1")
        plan = "\n".join(line for (line,) in rows)
        for index in ("perdure_jobs_run", "perdure_redrives_pkey"):
            assert re.search(index + r"\b.*\n +Index Cond: \(\(?run = 1\)", plan), plan
    books.place.close()


def test_a_view_that_counts_otherwise_would_be_noticed():
    """The broken twin: retries of every life, waits among them."""
    rig = SqliteRig()
    books = Books(rig)
    run = books.run.no
    books.fail(run, kind="network")
    job = books.place.see(_newest_of(books, "march"))
    books.place.revive(job)
    books.settle(retry(books.take(), books.worker, delay_s=0.0))
    books.settle(replace(failing(books.take(), books.worker), captures=()))
    books.place.revive(books.place.see(job.id))
    books.settle(success(books.take(), books.worker))
    wanted = books.reader.run_figures(run).retries
    assert dict(row[1:] for row in books.view("retries", run)) == wanted
    (text,) = rig.rows("SELECT sql FROM sqlite_master WHERE name = 'perdure_run_retries'")[0]
    rig.damage("DROP VIEW perdure_run_retries", text.replace("AND a.life = o.life", ""))
    assert dict(row[1:] for row in books.view("retries", run)) != wanted
    books.place.close()
    rig.close()


def _newest_of(books: Books, run: str) -> str:
    no = {"march": books.run.no, "april": books.other.no}[run]
    return next(
        job.id for job in books.reader.jobs(limit=500) if job.run == no and job.failed_reason
    )
