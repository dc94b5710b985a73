"""The audit of runs that drove dead letters again, and of what was pruned: exact, and it names whose it is."""

from dataclasses import dataclass

import pytest

from perdure.model.operations import BulkStatus, BulkStep, BulkVerb, NewBulk, Retention, Revival
from perdure.model.runs import RunStatus, RunView
from perdure.testing.store_contract.attempt_ends import failing, spending
from perdure.testing.store_contract.fresh_store import DEED, uuid_of
from tests.stores.busy import Busy, busy_store
from tests.stores.kit import retry, success


@pytest.fixture
def busy(rig):
    with busy_store(rig) as made:
        yield made


@dataclass
class Driven:
    """Two dead letters, of which a bulk operation has driven the first again, in vain, and the second with success.

    The first has failed in the child run in two lives, after a retry; then another child took it over, where it
    waits.
    """

    busy: Busy
    first: str
    second: str
    child: RunView
    other: RunView
    bulk: str

    def damage(self, statement: str) -> None:
        self.busy.damage(self.told(statement))

    def told(self, text: str) -> str:
        nos = {name: self.busy.place.see(getattr(self, name)).no for name in ("first", "second")}
        for name, value in {
            "<child>": self.child.no,
            "<other>": self.other.no,
            "<child_id>": self.child.id,
            "<other_id>": self.other.id,
            "<first>": nos["first"],
            "<second>": nos["second"],
            "<first_id>": self.first,
            "<second_id>": self.second,
            "<bulk_id>": self.bulk,
        }.items():
            text = text.replace(name, str(value))
        return text


@pytest.fixture
def driven(busy):
    place, worker = busy.place, busy.worker
    place.take(worker, 9)  # what is ready already is in somebody's hands
    parent = place.begin_run("parent")
    first, second = (place.dead_letter(worker, run=parent.no) for _ in range(2))
    child = place.begin_run("child", parent=parent.no)
    other = place.begin_run("other", parent=parent.no)
    new = NewBulk(uuid_of(6), BulkVerb.REDRIVE, "{}", DEED, run=child.no)
    bulk = place.control.add_bulk(new)
    chosen = [
        Revival(
            job.no, job.id, job.token, job.stage, job.lane, job.input_from, redrive_run=child.no
        )
        for job in (first, second)
    ]
    place.control.revive(chosen, DEED, step=BulkStep(bulk.no, None, 1, status=BulkStatus.DONE))
    one, two = place.take(worker, 2)
    place.settle(
        spending(retry(one, worker, delay_s=0.0), tokens_in=2, cost_nusd=5),
        spending(success(two, worker), tokens_out=3, cost_nusd=11),
        by=worker,
    )
    for revived_in in (None, other.no):
        (one,) = place.take(worker)
        place.settle(spending(failing(one, worker, kind="network"), cost_nusd=13), by=worker)
        place.revive(place.see(first.id), redrive_run=revived_in)
    place.clean()
    return Driven(busy, first.id, second.id, child, other, bulk.id)


def test_a_child_counts_the_lives_that_it_gave(driven):
    counts = driven.busy.place.see_run(driven.child).counts
    assert (counts.total, counts.succeeded, counts.failed, counts.attempts) == (2, 1, 1, 4)
    assert (counts.retries, counts.cost_nusd) == (1, 5 + 11 + 13 + 13)


# The check, what is done, whom the audit must name.
DAMAGES: list[tuple[str, str, str]] = [
    *(
        (check, f"UPDATE perdure_run_counts SET {column} = {column} + 1 WHERE run = <child> AND {some}", "<child_id>")
        for check, column, some in (
            ("run_counts_differ", "succeeded", "succeeded > 0"), ("run_counts_differ", "total", "total > 0"),
            ("run_counts_differ", "cancelled", "succeeded > 0"), ("run_counts_differ", "failed", "succeeded > 0"),
            ("run_spending_differs", "attempts", "succeeded > 0"),
            ("run_spending_differs", "retries", "succeeded > 0"),
            ("run_spending_differs", "tokens_in", "succeeded > 0"),
            ("run_spending_differs", "tokens_out", "succeeded > 0"),
            ("run_spending_differs", "cost_nusd", "succeeded > 0"),
        )
    ),
    ("run_counts_differ", "UPDATE perdure_run_counts SET total = total + 1 WHERE run = <other>", "<other_id>"),
    ("run_kinds_differ", "DELETE FROM perdure_run_kinds WHERE run = <child>", "<child_id>"),
    ("bulk_done_differs", "UPDATE perdure_bulks SET done = 3 WHERE verb = 'redrive'", "<bulk_id>"),
    ("bulk_done_differs", "UPDATE perdure_bulks SET done = 1 WHERE verb = 'redrive'", "<bulk_id>"),
    ("bulk_done_differs", "UPDATE perdure_bulks SET run = <other> WHERE verb = 'redrive'", "<bulk_id>"),
    ("run_of_no_run", "UPDATE perdure_bulks SET run = 777000777 WHERE verb = 'redrive'", "<bulk_id>"),
    ("run_of_no_run", "UPDATE perdure_runs SET parent = 777000777 WHERE no = <child>", "<child_id>"),
    ("run_of_no_run", "UPDATE perdure_redrives SET run = 777000777 WHERE job = <second>", "<second_id>"),
    ("redrive_differs", "UPDATE perdure_redrives SET job = 777000777 WHERE job = <second>", "job number 777000777, <second_id>"),
    ("redrive_differs", "UPDATE perdure_redrives SET run = <child> WHERE run = <other>", "<first_id>"),
    ("redrive_differs", "UPDATE perdure_jobs SET redrive_run = NULL WHERE no = <second>", "<second_id>"),
    ("redrive_differs", "UPDATE perdure_jobs SET redrive_run = <other> WHERE no = <second>", "<second_id>"),
    ("redrive_differs", "DELETE FROM perdure_redrives WHERE job = <second>", "<second_id>"),
    ("redrive_differs", "DELETE FROM perdure_redrives WHERE job = <first> AND life = 3", "<first_id>"),
    ("redrive_differs", "UPDATE perdure_redrives SET life = 9 WHERE job = <first> AND life = 2", "<first_id>"),
    ("run_counts_differ", "DELETE FROM perdure_redrives WHERE job = <first> AND life < 4", "<child_id>"),
    ("lives_differ", "UPDATE perdure_jobs SET retries_manual = 2 WHERE no = <first>", "<first_id>"),
    ("attempt_missing",
     "DELETE FROM perdure_attempts WHERE job = <first> AND life = 2 AND status = 'retrying'", "<first_id>"),
    ("attempt_missing", "DELETE FROM perdure_attempts WHERE job = <first> AND life = 1", "<first_id>"),
    ("run_spending_differs", "DELETE FROM perdure_attempts WHERE job = <second> AND life = 2", "<child_id>"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "damage", "subjects"), DAMAGES)
def test_of_what_was_driven_again_the_audit_finds_and_names(driven, check, damage, subjects):
    wanted = set(driven.told(subjects).split(", "))
    driven.damage(damage)
    found = {name for name, _ in driven.busy.found(check)}
    assert wanted <= found
    assert found <= wanted | {run.id for run in driven.busy.place.reader.runs()}


@pytest.fixture
def pruned(driven):
    """The second was pruned, when its runs were over; the first has come to its end in the other run."""
    place, worker = driven.busy.place, driven.busy.worker
    (one,) = place.take(worker)
    place.settle(spending(failing(one, worker, kind="network"), cost_nusd=17), by=worker)
    for name in ("parent", "child", "other"):
        (run,) = [one for one in place.reader.runs() if one.name == name]
        place.control.seal_run(run.no)
        assert place.change_run(run, RunStatus.PARTIAL_SUCCESS) is not None
    place.clock.push(100)
    retention = Retention(succeeded_s=1.0)
    before = len(list(place.every_job()))
    assert (
        place.control.prune(retention, limit=100).jobs == before - len(list(place.every_job())) > 0
    )
    assert place.reader.job(driven.second) is None
    place.clean()
    return driven


@pytest.mark.parametrize(
    ("check", "column"),
    [
        ("run_counts_differ", "total"), ("run_counts_differ", "succeeded"), ("run_counts_differ", "failed"),
        ("run_counts_differ", "cancelled"), ("run_kinds_differ", "failed"),
        ("run_spending_differs", "attempts"), ("run_spending_differs", "retries"),
        ("run_spending_differs", "tokens_in"), ("run_spending_differs", "tokens_out"),
        ("run_spending_differs", "cost_nusd"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("name", ["parent", "child"])
def test_the_counts_of_a_run_stay_exact_when_its_jobs_were_pruned(pruned, check, column, by, name):
    place = pruned.busy.place
    (run,) = [one for one in place.reader.runs() if one.name == name]
    assert pruned.busy.found(check) == []
    pruned.busy.damage(
        f"UPDATE perdure_run_counts SET {column} = {column} + {by} WHERE run = {run.no} AND writer = "
        f"(SELECT max(writer) FROM perdure_run_counts WHERE run = {run.no})"
    )
    assert [found for found, _ in pruned.busy.found(check)] == [run.id]


@pytest.mark.parametrize("column", ["succeeded", "failed", "cancelled", "attempts", "cost_nusd"])
def test_what_is_written_down_of_pruned_jobs_is_checked_as_well(pruned, column):
    child = pruned.child
    pruned.busy.damage(
        f"UPDATE perdure_run_pruned SET {column} = {column} + 1 WHERE run = {child.no}"
    )
    assert {name for _, name in named(pruned.busy)} == {child.id}


def named(busy: Busy) -> list[tuple[str, str]]:
    """Every finding: its check, and whom it names."""
    return [(one.check, one.subject) for one in busy.place.reader.audit()]


def test_pruning_takes_the_lives_of_a_job_with_it_and_no_others(pruned):
    pruned.busy.damage("UPDATE perdure_redrives SET job = 777000777 WHERE life = 3")
    assert ("redrive_differs", "job number 777000777") in named(pruned.busy)
    assert pruned.busy.place.see(pruned.first).life == 4


def test_the_audit_of_a_run_tells_of_what_is_driven_again_in_it(busy):
    child = busy.place.begin_run("again", parent=busy.run)
    busy.place.revive(busy.place.see(busy.ids[10]), redrive_run=child.no)
    assert busy.place.reader.audit(run=child.no) == []
    busy.damage("UPDATE perdure_jobs SET starts = 9 WHERE no = {no10}")
    for run in (busy.run, child.no):
        assert [name for name, _ in busy.found("counters_differ", run)] == [busy.ids[10]]


def test_a_child_run_and_its_parent_are_clean_through_lives_and_pruning(busy):
    place, worker = busy.place, busy.worker
    child = place.begin_run("again", parent=busy.run)
    place.revive(place.see(busy.ids[10]), redrive_run=child.no)
    (claim,) = [one for one in place.take(worker, 9) if one.id == busy.ids[10]]
    record = spending(failing(claim, worker, kind="network"), cost_nusd=11)
    place.settle(record, by=worker)
    place.clean()
    other = place.begin_run("once more", parent=busy.run)
    place.revive(place.see(busy.ids[10]), redrive_run=other.no)
    place.clean()
    place.discard(place.see(busy.ids[11]))
    place.clock.push(100)
    assert place.control.prune(Retention(discarded_s=1.0), limit=100).jobs == 1
    place.clean()
