"""An order in parts is one round trip, unless a part leaves slots that other lanes can use; floors hold for parts too."""

import threading

import pytest

from perdure.model.jobs import ClaimOrder, Lane, Part
from perdure.stores.postgres import claim
from perdure.stores.postgres.connection_pool import LentConnection
from tests.stores.postgres.kit import Place


@pytest.fixture
def trips(monkeypatch) -> list[str]:
    """What this thread sends and waits for: a pipeline, or a statement outside of one.

    Not what sets a new connection up: whoever tells others of new jobs may have the one that we had.
    """
    made: list[str] = []
    us = threading.get_ident()
    pipeline, execute = LentConnection.pipeline, LentConnection.execute

    def counted_pipeline(self):
        made.extend(["pipeline"] if threading.get_ident() == us else [])
        return pipeline(self)

    def counted_execute(self, query, *values, **options):
        of_set_up = options.get("prepare") is False or str(query).startswith("SET ")
        made.extend(["statement"] if threading.get_ident() == us and not of_set_up else [])
        return execute(self, query, *values, **options)

    monkeypatch.setattr(LentConnection, "pipeline", counted_pipeline)
    monkeypatch.setattr(LentConnection, "execute", counted_execute)
    return made


def lanes_with(place: Place, *counts: int) -> list[int]:
    """Lanes of their own, with so many jobs in each."""
    wanted = [Lane("q", "c", f"p{n}", "one") for n in range(len(counts))]
    numbers = place.store.lanes(wanted)
    for lane, count in zip(wanted, counts, strict=True):
        if count:
            place.put_many(count, lane=numbers[lane], pipeline=lane.pipeline)
    return [numbers[lane] for lane in wanted]


def test_an_order_in_parts_that_is_filled_is_one_round_trip(place, worker, trips):
    a, b, rest = lanes_with(place, 9, 9, 9)
    order = ClaimOrder(worker, 9, (rest,), parts=(Part((a,), 2), Part((b,), 3)))
    trips.clear()
    assert len(place.store.turn([], order, by=worker).claims) == 9
    assert trips == ["pipeline"]


def test_slots_that_a_part_leaves_cost_another_round_trip(place, worker, trips):
    a, rest = lanes_with(place, 1, 9)
    order = ClaimOrder(worker, 6, (rest,), parts=(Part((a,), 4),))
    trips.clear()
    assert len(place.store.turn([], order, by=worker).claims) == 6
    assert trips == ["pipeline", "pipeline"]


def test_a_part_below_its_floor_is_asked_again_from_the_bottom(place, worker, monkeypatch):
    """A job made ready below a floor by somebody else is found when its part falls short."""
    monkeypatch.setattr(claim, "_SLOW_S", -1.0)
    monkeypatch.setattr(claim, "_SLOW_JOB_S", -1.0)
    monkeypatch.setattr(claim, "_KEEP_S", 3600.0)
    a, b = lanes_with(place, 3, 9)
    order = ClaimOrder(worker, 4, (), parts=(Part((a,), 2), Part((b,), 2)))
    assert len(place.store.turn([], order, by=worker).claims) == 4
    low = place.put(lane=a, priority=5).id
    assert place.store._floors._ranks
    turn = place.store.turn([], order, by=worker)
    assert low in [claim.id for claim in turn.claims]
    assert [claim.lane for claim in turn.claims].count(b) == 2
    assert len(turn.claims) == 4
