"""What a tour has to complain about, and when it has nothing."""

import pytest

from perdure.demo.script import Fault
from perdure.demo.summary import Summary
from perdure.model.jobs import ZERO
from perdure.model.nouns import replace
from perdure.model.views import Books, Finding

GOOD = Summary(
    items=100,
    seed=1,
    elapsed_s=20.0,
    books=Books(100, 0, 0, 97, 3, 0, 0),
    findings=(),
    failures=(),
    faults=dict.fromkeys(Fault, 1),
    sums=ZERO,
    bereaved=0,
    rescued=0,
    history=None,
)


def test_a_tour_as_promised_has_no_complaint():
    assert GOOD.complaints == []


@pytest.mark.parametrize("fault", list(Fault))
def test_a_fault_that_never_struck_is_named(fault):
    for faults in ({**GOOD.faults, fault: 0}, {**GOOD.faults}):
        faults[fault] = 0
        (complaint,) = replace(GOOD, faults=faults).complaints
        assert complaint.startswith(f"this fault never struck: {fault.value} ")
    absent = {one: 1 for one in Fault if one is not fault}
    assert len(replace(GOOD, faults=absent).complaints) == 1


def test_books_that_do_not_balance_are_a_complaint():
    (complaint,) = replace(GOOD, books=replace(GOOD.books, succeeded=96)).complaints
    assert complaint == "100 items came in, 99 are accounted for"


def test_an_item_that_never_came_in_is_a_complaint():
    books = Books(99, 0, 0, 96, 3, 0, 0)
    (complaint,) = replace(GOOD, books=books).complaints
    assert complaint == "100 items were enqueued, 99 came in"


def test_every_finding_of_the_audit_is_a_complaint():
    finding = Finding("stage_done_twice", "01a1", "fetch has two successes")
    (complaint,) = replace(GOOD, findings=(finding,)).complaints
    assert complaint == "audit: stage_done_twice: 01a1 fetch has two successes"


def test_a_worker_that_ended_by_itself_is_a_complaint():
    assert replace(GOOD, trouble=("worker A ended",)).complaints == ["worker A ended"]
