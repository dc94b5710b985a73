"""The audit of the tallies: what the rows can show of them it proves, and what happens to jobs never looks like damage."""

import pytest

from perdure.model.limits import FINGERPRINT_KEPT_S
from perdure.model.operations import Retention
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import failing, retry, spending, success
from perdure.testing.store_contract.fresh_store import Place
from tests.stores.busy import busy_store

DEATHS, FLOWS = "UPDATE perdure_deaths SET ", "UPDATE perdure_flows SET "
LETTERS, EVERYTHING = " of pipeline p, stage one", "everything in pipeline p, stage one"
ONE = " WHERE stage = 'one'"

# What is done, how it is undone, and whom which checks name meanwhile. In this store all letters died at one moment.
DAMAGES: list[tuple[str, str, dict[str, set[str]]]] = [
    (DEATHS + "ever = ever + 7", DEATHS + "ever = ever - 7", {"deaths_differ": {EVERYTHING}}),
    (DEATHS + "ever = ever - 1", DEATHS + "ever = ever + 1", {"deaths_differ": {EVERYTHING, LETTERS}}),
    (DEATHS + "first_at = first_at - 1", DEATHS + "first_at = last_at", {"deaths_differ": {LETTERS}}),
    (DEATHS + "first_at = first_at + 1", DEATHS + "first_at = last_at", {"deaths_differ": {LETTERS}}),
    (DEATHS + "first_at = NULL", DEATHS + "first_at = last_at", {"deaths_differ": {LETTERS}}),
    (DEATHS + "last_at = last_at - 1", DEATHS + "last_at = first_at", {"deaths_differ": {LETTERS}}),
    (DEATHS + "last_at = last_at + 1", DEATHS + "last_at = first_at", {"deaths_differ": {LETTERS}}),
    (DEATHS + "last_at = NULL", DEATHS + "last_at = first_at", {"deaths_differ": {LETTERS}}),
    (FLOWS + "failed = failed + 1, revived = revived + 1" + ONE,
     FLOWS + "failed = failed - 1, revived = revived - 1" + ONE,
     {"deaths_differ": {EVERYTHING}, "flows_differ": {"p"}, "minutes_differ": set()}),
    (FLOWS + "minute = minute - 3 WHERE minute > 0", FLOWS + "minute = minute + 3 WHERE minute > 0",
     {"minutes_differ": {"p", "p, stage one", "p, stage two"}}),
]  # fmt: skip


def test_what_is_wrong_in_the_tallies_is_found_and_nothing_once_it_is_mended(rig):
    with busy_store(rig) as busy:
        for damage, undone, named in DAMAGES:
            busy.damage(damage)
            for check, subjects in named.items():
                assert {name for name, _ in busy.found(check)} == subjects, damage
            busy.damage(undone)
            busy.place.clean()


@pytest.fixture
def place(rig):
    clock = VirtualClock()
    place = Place(rig.open(clock), clock)
    yield place
    place.close()


def test_of_letters_that_were_dealt_with_the_rows_show_bounds(rig, place):
    """What nobody can show is not called damage; what those that are left contradict is."""
    worker = place.hire()
    letters = []
    for _ in range(3):
        place.clock.push(60)
        letters.append(place.dead_letter(worker, end=failed_of_f))
    place.discard(letters[0])
    place.clean()
    minute = 60 * 10**6
    for change, found in (
        (f"first_at = first_at + {minute}", False),
        (f"first_at = first_at + {minute}", True),
        (f"first_at = first_at - {3 * minute}, last_at = last_at + {minute}", False),
        (f"last_at = last_at - {2 * minute}", True),
    ):
        rig.damage(DEATHS + change)
        assert bool(place.reader.audit()) is found, change


def failed_of_f(claim, worker):
    return spending(failing(claim, worker, fingerprint="f"), tokens_in=3, cost_nusd=5)


def test_more_of_owners_than_of_all_is_found(rig, place):
    worker = place.hire()
    place.dead_letter(worker, end=failed_of_f, owner="ann")
    place.clean()
    rig.damage(DEATHS + "ever = ever + 1 WHERE owner = 'ann'")
    assert {one.subject for one in place.reader.audit()} == {"every owner in pipeline p, stage one"}


def test_lives_endings_adding_up_and_pruning_are_no_damage(place):
    """With each step something leaves the rows or the tallies that was there before."""
    worker = place.hire()
    letters = [
        place.dead_letter(worker, end=failed_of_f, owner=owner)
        for owner in ("ann", "bob", "", "ann", "ann")
    ]

    def finished(job) -> None:
        """It lives again, and does it this time, after one more failure."""
        place.revive(job)
        (claim,) = place.take(worker)
        place.settle(retry(claim, worker, delay_s=0.0), by=worker)
        (claim,) = place.take(worker)
        place.settle(success(claim, worker), by=worker)

    def die_again(job) -> None:
        place.revive(job)
        (claim,) = place.take(worker)
        place.settle(failed_of_f(claim, worker), by=worker)

    def add_up() -> None:
        place.control.prune_workers(10 * FINGERPRINT_KEPT_S, limit=10)

    steps = (
        lambda: place.clock.push(90),
        lambda: finished(letters[0]),
        lambda: place.clock.push(90),
        lambda: die_again(letters[1]),
        add_up,
        lambda: place.discard(letters[2]),
        lambda: place.control.prune(Retention(succeeded_s=1.0, discarded_s=1.0), limit=9),
        lambda: place.clock.push(5),
        lambda: place.control.prune(Retention(succeeded_s=1.0, discarded_s=1.0), limit=9),
        lambda: place.clock.push(3_600),
        add_up,
        lambda: place.put_many(3, owner="ann"),
        lambda: place.control.prune(Retention(failed_s=1.0), limit=1),
        lambda: place.clock.push(FINGERPRINT_KEPT_S + 3_600),
        add_up,
        lambda: place.control.prune(Retention(failed_s=1.0), limit=9),
        add_up,
    )
    for step in steps:
        step()
        place.clean()
    assert {job.state for job in place.reader.jobs()} == {"queued"}
    (death,) = place.reader.deaths()
    assert (death.letters, death.ever) == (0, 6)
