"""Gates on both stores: what the tables hold afterwards, and that who only looks waits for nobody."""

import pytest

from perdure.model.errors import StoreBusy
from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import Lane
from perdure.model.outcomes import Death
from perdure.stores.fair_ranks import Lines
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import Place as AnyPlace
from tests.stores import mutants
from tests.stores.kit import DEED, Place, file_in
from tests.stores.rigs import broken

SAMPLES = "SELECT gate, worker FROM perdure_gate_samples ORDER BY 1, 2"


@pytest.fixture
def rigged(rig):
    """A place on a rig, to look into its tables."""
    clock = VirtualClock()
    place = AnyPlace(rig.open(clock), clock)
    yield place
    place.close()


def test_what_a_worker_has_noted_goes_with_it(rig, rigged):
    living, dead, late = rigged.hire(), rigged.hire(), rigged.hire()
    for worker in (living, dead):
        rigged.store.look_at_gates(["g"], worker=worker, samples={"g": "[1]", "h": "[2]"})
    for worker in (dead, late):
        rigged.store.end_worker(worker, Death("exited"))
    rigged.store.look_at_gates(["g"], worker=late, samples={"g": "[1]"})  # it has not heard yet
    rigged.store.mark_dead(by=living)
    assert rig.rows(SAMPLES) == [("g", living), ("h", living)]


def test_a_gate_that_is_not_probed_for_want_of_a_job_has_no_line_in_the_log(rig, rigged):
    lane = Lane("q", "c", "p", "one", upstream="vendor")
    rigged.store.lanes([lane])
    rigged.control.change_gate(GateChange("vendor", 0, GateState.HELD), DEED)
    worker = rigged.hire()
    change = GateChange("vendor", 1, GateState.PROBING)
    assert rigged.store.probe(rigged.order(worker), change, DEED) is None
    assert [one.verb for one in rigged.reader.deeds()] == ["hold gate"]


def test_a_look_without_samples_waits_for_no_writer(tmp_path):
    place, other = Place(file_in(tmp_path)), Place(file_in(tmp_path), wait_s_max=0.2)
    with place.connection.write() as (cx, _):
        cx.execute("UPDATE perdure_lanes SET category = category")
        look = other.store.look_at_gates(["g"], worker=1, samples={})
        with pytest.raises(StoreBusy):
            other.store.look_at_gates(["g"], worker=1, samples={"g": "[1]"})
    assert look.rows == ()
    for one in (place, other):
        one.close()


FAIRNESS = (
    "test_ten_jobs_do_not_wait_for_a_thousand_of_somebody_else",
    "test_three_owners_share_evenly_whatever_each_has",
    "test_an_owner_that_was_idle_has_no_credit_for_it",
    "test_old_ranks_behind_a_held_gate_do_not_matter_to_the_others",
)


def test_a_rank_that_is_not_fair_is_noticed(rig, monkeypatch):
    """Everybody in one line, credit for the idle, or old ranks of closed lanes."""
    assert broken(rig, FAIRNESS) == {}
    right = Lines.rank

    def in_one_line(self, job, owner, lane):
        return right(self, job, "everybody", lane) + 1000 * len(self._given) * (owner != "a")

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "rank", in_one_line)
        assert set(broken(rig, FAIRNESS[:2])) == set(FAIRNESS[:2])

    def with_credit(self, job, owner, lane):
        return 0 if owner == "b" else right(self, job, owner, lane)

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "rank", with_credit)
        assert FAIRNESS[2] in broken(rig, FAIRNESS[2:3])
    statement = "fair_lines" if rig.name == "postgres" else "fair_starts"
    text = getattr(mutants.STATEMENTS[rig.name], statement)
    closed = "NOT IN (SELECT c.lane FROM perdure_closed_lanes AS c)"
    assert closed in text
    with monkeypatch.context() as patch:
        shorter = text.replace(closed, "IS NOT NULL")
        patch.setattr(mutants.STATEMENTS[rig.name], statement, shorter)
        assert set(broken(rig, FAIRNESS[3:])) == set(FAIRNESS[3:])


Broken = tuple[dict[str, mutants.Patch], tuple[str, ...]]


def on_each(
    statement: str, sqlite: tuple[str, str], postgres: tuple[str, str]
) -> dict[str, mutants.Patch]:
    """One clause of a statement that both stores have."""
    both = mutants.reworded(statement, sqlite=sqlite, postgres=postgres)
    return {"sqlite": both, "postgres": both}


def on_both(
    sqlite: tuple[str, str, str], postgres: tuple[str, str, str]
) -> dict[str, mutants.Patch]:
    """A clause of another statement on each."""
    return {
        "sqlite": mutants.reworded(sqlite[0], sqlite=sqlite[1:]),
        "postgres": mutants.reworded(postgres[0], postgres=postgres[1:]),
    }


SEEN = (("AND generation = :generation", ""), ("AND generation = %(generation)s", ""))

BROKEN: dict[str, Broken] = {
    "a probe goes through whatever else closes the lane": (
        on_each(
            "lanes_behind",
            ("WHERE c.gate IS NOT :gate", "WHERE false"),
            ("WHERE c.gate IS DISTINCT FROM %(gate)s", "WHERE false"),
        ),
        (
            "test_a_lane_that_something_else_closes_too_is_left_alone",
            "test_a_lane_of_a_paused_run_is_left_alone",
            "test_the_gate_of_a_credential_is_probed_through_the_lanes_of_its_upstreams",
        ),
    ),
    "a gate is changed by who has seen another generation": (
        on_each("gate_change", *SEEN), ("test_a_gate_that_has_moved_on_is_not_probed",),
    ),
    "limits are parted by who has seen another generation": (
        on_each("slices_change", *SEEN), ("test_limits_are_parted_by_who_has_seen_the_generation",),
    ),
    "the dead are asked what they have noted": (
        on_both(
            ("samples_among", "AND w.dead_at IS NULL", ""),
            ("gates_look", "bigint AND w.dead_at IS NULL", "bigint"),
        ),
        ("test_what_a_dead_worker_has_noted_is_not_shown_and_it_notes_nothing_more",),
    ),
    "the probe is simply the first": (
        on_both(
            ("probe_pick", "ORDER BY starts, rank_at", "ORDER BY rank_at"),
            ("probe_claim", "ORDER BY starts, rank_at", "ORDER BY rank_at"),
        ),
        ("test_the_probe_is_the_least_tried_of_the_first",),
    ),
    "what fell due behind the gate is not looked for": (
        on_both(
            ("promote", "due_at <= :now", "due_at <= 0 * :now"),
            ("probe_promote", "j.due_at <= %(now)s::bigint", "j.due_at <= 0 * %(now)s::bigint"),
        ),
        ("test_a_retry_that_fell_due_behind_the_closed_gate_can_be_the_probe",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_gate_that_is_broken_is_found_by_the_contract(rig, name, monkeypatch):
    plants, killed_by = BROKEN[name]
    assert broken(rig, killed_by) == {}
    with monkeypatch.context() as patch:
        plants[rig.name](patch, rig)
        assert set(broken(rig, killed_by)) == set(killed_by)
