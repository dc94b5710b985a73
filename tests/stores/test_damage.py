"""A row that somebody has damaged by hand: its job is set aside with what is wrong, the others go on."""

import pytest

from perdure.model.errors import StoreDamaged
from perdure.model.filters import JobFilter
from perdure.model.jobs import ZERO, Receipt
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import Place
from tests.stores.kit import advance, failure, success

UNREADABLE = ["oops", "{", "[1,2]", '{"starts":"many"}', "", "null", '{"starts":1e400}', "\\u0000"]


@pytest.fixture
def place(rig):
    clock = VirtualClock()
    place = Place(rig.open(clock), clock)
    yield place
    place.close()


def damaged(rig, place: Place, past: str) -> tuple[str, list[str]]:
    """One job of five whose counters of earlier stages cannot be read; its id, and the others'."""
    ids = [one.id for one in place.put_many(5)]
    quoted = past.replace("'", "''")
    rig.damage(f"UPDATE perdure_jobs SET past = '{quoted}' WHERE id = '{ids[2]}'")
    return ids[2], [*ids[:2], *ids[3:]]


@pytest.mark.parametrize("past", UNREADABLE)
def test_a_damaged_job_is_claimed_with_its_damage_and_the_rest_go_on(rig, place, past):
    bad, others = damaged(rig, place, past)
    worker = place.hire()
    claims = {claim.id: claim for claim in place.take(worker, 9)}
    assert set(claims) == {bad, *others}
    assert "cannot be read" in claims[bad].damage
    assert claims[bad].past == ZERO
    assert [claims[id].damage for id in others] == [None] * 4
    records = [success(claims[id], worker) for id in others]
    answers = place.settle(*records, failure(claims[bad], worker), by=worker)
    assert {type(answer) for answer in answers} == {Receipt}
    assert place.see(bad).state is State.FAILED
    assert place.reader.books().succeeded == 4


def test_a_damaged_job_that_was_lost_is_found_with_its_damage(rig, place):
    bad, _ = damaged(rig, place, "oops")
    worker = place.hire()
    place.take(worker, 9)
    place.store.end_worker(worker, Death("silent"))
    lost = {one.claim.id: one.claim.damage for one in place.store.lost_claims(limit=9)}
    assert len(lost) == 5
    assert [id for id, damage in lost.items() if damage is not None] == [bad]


def test_a_missing_result_of_the_stage_before_is_damage(rig, place):
    worker = place.hire()
    place.put_many(2)
    for claim in place.take(worker, 2):
        place.settle(advance(claim, worker, place.lanes["two"]), by=worker)
    first, second = sorted(place.every_job(), key=lambda job: job.no)
    rig.damage(f"DELETE FROM perdure_checkpoints WHERE job = {first.no}")
    claims = {claim.id: claim for claim in place.take(worker, 9)}
    assert claims[first.id].damage == "the result of the stage before is gone"
    assert claims[first.id].input_json == "null"
    assert claims[second.id].damage is None
    assert claims[second.id].input_json == '{"from":"one"}'


def test_a_page_shows_what_can_be_read_and_the_job_itself_says_what_cannot(rig, place):
    bad, others = damaged(rig, place, "oops")
    assert {job.id for job in place.reader.jobs()} == {bad, *others}
    with pytest.raises(StoreDamaged, match=rf"job {bad} .* perdure audit"):
        place.reader.job(bad)
    assert [one.subject for one in place.reader.audit()] == [bad]


def test_what_is_no_moment_is_damage_of_that_job_alone(rig, place):
    bad, other = (one.id for one in place.put_many(2))
    wrong = "'soon'" if rig.name == "sqlite" else 2**63 - 1  # PostgreSQL takes no word there
    rig.damage(f"UPDATE perdure_jobs SET enqueued_at = {wrong} WHERE id = '{bad}'")
    with pytest.raises(StoreDamaged, match=f"job {bad} "):
        place.reader.job(bad)
    assert place.see(other).state is State.QUEUED


def test_a_job_in_a_state_of_no_table_is_left_alone_and_the_rest_go_on(rig, place):
    bad, *others = (one.id for one in place.put_many(4))
    rig.damage(f"UPDATE perdure_jobs SET state = 'limbo', ready = NULL WHERE id = '{bad}'")
    worker = place.hire()
    assert set(place.taken_ids(worker, 9)) == set(others)
    assert [job.id for job in place.reader.jobs()] == others[::-1]
    assert place.reader.jobs(JobFilter(states=(State.QUEUED,))) == []
    assert {one.subject for one in place.reader.audit()} == {
        bad,
        f"lane number {place.lanes['one']}",
    }


def test_a_kind_that_nobody_knows_is_shown_as_it_is(rig, place):
    worker = place.hire()
    job = place.dead_letter(worker)
    rig.damage("UPDATE perdure_jobs SET error_kind = 'from the future'")
    assert place.see(job.id).error_kind == "from the future"
    assert place.reader.failures()[0].kind == "from the future"
    assert isinstance(place.revive(job), Receipt)
