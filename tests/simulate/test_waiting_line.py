"""Who is next: by arrival, or fair between owners; retries keep their place."""

import pytest

from perdure.model.decisions import Counted
from perdure.simulate.waiting_line import WaitingLine


def line_of(*owners, fair):
    line = WaitingLine(fair=fair)
    for owner in owners:
        line.arrive(owner, 0.0)
    return line


def claims(line, count):
    line.count_ready(0.0)
    return "".join(line.claim().owner for _ in range(count))


def test_a_plain_line_goes_by_arrival():
    assert claims(line_of(*"aaab", fair=False), 4) == "aaab"


def test_a_fair_line_takes_turns():
    assert claims(line_of(*"aaaabb", fair=True), 6) == "abab" + "aa"


def test_who_comes_late_neither_waits_for_the_past_nor_is_owed_it():
    line = line_of(*"aaaaaaaa", fair=True)
    assert claims(line, 4) == "aaaa"
    for _ in range(3):
        line.arrive("b", 0.0)
    assert claims(line, 7) in ("bababaa", "abababa", "baababa")


def test_a_retry_keeps_its_place():
    line = line_of(*"ab", fair=False)
    line.count_ready(0.0)
    first = line.claim()
    line.put(first, 5.0)
    assert line.count_ready(4.9) == 1
    assert line.next_due_s() == 5.0
    assert line.count_ready(5.0) == 2
    assert line.claim() is first


@pytest.mark.parametrize(
    "counted", [Counted.PROBES, Counted.FAILURES, Counted.WAITS, Counted.SNOOZES]
)
def test_a_probe_is_the_least_tried_of_the_first_hundred(counted):
    line = line_of(*["a"] * 150, fair=False)
    line.count_ready(0.0)
    seen = []
    for _ in range(101):
        job = line.claim_probe()
        seen.append(job.no)
        job.counters = job.counters.after_event(counted)
        line.put(job, 0.0)
        line.count_ready(0.0)
    assert seen == [*range(100), 0]
