"""Orders in parts: lanes behind an upstream get no more than their own slots, the others what is left."""

from datetime import timedelta

from perdure.model.errors import BugError
from perdure.model.jobs import Claim, ClaimOrder, Lane, Part
from perdure.model.operations import LaneScope
from perdure.testing.store_contract.attempt_ends import success
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, raises


class SlotsContract(OnAFreshStore):
    """Three lanes: ``a`` and ``b`` are parts, ``rest`` is not."""

    def _lane(self, name: str) -> int:
        lane = Lane("q", "c", f"p {name}", "one")
        return self.place.store.lanes([lane])[lane]

    def _fill(self, **counts: int) -> dict[str, int]:
        """So many jobs in lanes of these names, and the lanes' numbers."""
        lanes = {name: self._lane(name) for name in counts}
        for name, count in counts.items():
            if count:
                self.place.put_many(count, pipeline=f"p {name}", lane=lanes[name])
        return lanes

    def _took(self, order: ClaimOrder) -> list[Claim]:
        return list(self.place.store.turn([], order, by=self.worker).claims)

    def _by_lane(self, order: ClaimOrder) -> dict[int, int]:
        claims = self._took(order)
        return {
            lane: sum(claim.lane == lane for claim in claims) for lane in {c.lane for c in claims}
        }

    def test_each_part_gets_its_own_slots_and_the_other_lanes_get_the_rest(self) -> None:
        lanes = self._fill(a=9, b=9, rest=9)
        parts = (Part((lanes["a"],), 2), Part((lanes["b"],), 3))
        order = ClaimOrder(self.worker, 9, (lanes["rest"],), parts=parts)
        assert self._by_lane(order) == {lanes["a"]: 2, lanes["b"]: 3, lanes["rest"]: 4}
        self.place.clean()

    def test_parts_are_served_in_their_order_and_before_the_others(self) -> None:
        lanes = self._fill(rest=3, b=3, a=3)  # by rank it would be the other way round
        parts = (Part((lanes["a"],), 2), Part((lanes["b"],), 2))
        order = ClaimOrder(self.worker, 5, (lanes["rest"],), parts=parts)
        took = [claim.lane for claim in self._took(order)]
        assert took == [lanes["a"]] * 2 + [lanes["b"]] * 2 + [lanes["rest"]]

    def test_what_a_part_leaves_goes_to_the_other_lanes(self) -> None:
        lanes = self._fill(a=1, b=0, rest=20)
        parts = (Part((lanes["a"],), 4), Part((lanes["b"],), 4))
        for slots, rest in ((8, 7), (9, 9)):
            order = ClaimOrder(self.worker, slots, (lanes["rest"],), parts=parts)
            assert self._by_lane(order).get(lanes["rest"]) == rest
        self.place.clean()

    def test_what_a_part_leaves_does_not_go_to_another_part(self) -> None:
        lanes = self._fill(a=0, b=9)
        parts = (Part((lanes["a"],), 5), Part((lanes["b"],), 2))
        assert self._by_lane(ClaimOrder(self.worker, 9, (), parts=parts)) == {lanes["b"]: 2}

    def test_lanes_of_one_part_are_merged_by_rank(self) -> None:
        one, two = self._lane("a"), self._lane("b")
        made = [self.place.put(lane=lane).id for lane in (one, two, one, two)]
        order = ClaimOrder(self.worker, 9, (), parts=(Part((two, one), 3),))
        assert [claim.id for claim in self._took(order)] == made[:3]

    def test_a_part_without_slots_is_left_alone(self) -> None:
        lanes = self._fill(a=2, rest=2)
        order = ClaimOrder(self.worker, 9, (lanes["rest"],), parts=(Part((lanes["a"],), 0),))
        assert self._by_lane(order) == {lanes["rest"]: 2}

    def test_a_closed_lane_of_a_part_is_left_alone(self) -> None:
        lanes = self._fill(a=2, b=2)
        self.place.control.pause(LaneScope.PIPELINE, "p a", DEED)
        order = ClaimOrder(self.worker, 4, (), parts=(Part((lanes["a"], lanes["b"]), 4),))
        assert self._by_lane(order) == {lanes["b"]: 2}

    def test_what_has_fallen_due_in_a_part_is_claimed_from_it(self) -> None:
        lanes = self._fill(a=0, rest=0)
        soon = self.clock.now() + timedelta(seconds=5)
        for name in ("a", "rest"):
            self.place.put_many(2, pipeline=f"p {name}", lane=lanes[name], run_at=soon)
        order = ClaimOrder(self.worker, 4, (lanes["rest"],), parts=(Part((lanes["a"],), 1),))
        assert self._took(order) == []
        self.clock.push(5)
        assert self._by_lane(order) == {lanes["a"]: 1, lanes["rest"]: 2}

    def test_records_and_parts_go_in_one_turn(self) -> None:
        lanes = self._fill(a=3, rest=1)
        order = ClaimOrder(self.worker, 2, (lanes["rest"],), parts=(Part((lanes["a"],), 1),))
        first = self._took(order)
        records = [success(claim, self.worker) for claim in first]
        turn = self.place.store.turn(records, order, by=self.worker)
        assert (len(first), len(turn.settled), len(turn.claims)) == (2, 2, 1)
        self.place.clean()

    def test_the_wait_by_lane_the_lanes_of_parts_that_may_take_something(self) -> None:
        lanes = self._fill(a=0, b=0, rest=0)
        for name, in_s in (("a", 5), ("b", 9)):
            run_at = self.clock.now() + timedelta(seconds=in_s)
            self.place.put(pipeline=f"p {name}", lane=lanes[name], run_at=run_at)
        closed, opened = Part((lanes["a"],), 0), Part((lanes["b"],), 2)
        order = ClaimOrder(self.worker, 3, (lanes["rest"],), parts=(closed, opened))
        assert self.place.store.waiting(order) == 9.0
        assert self.place.store.turn([], order, by=self.worker).next_due_s == 9.0
        order = ClaimOrder(self.worker, 3, (lanes["rest"],), parts=(Part((lanes["a"],), 1), opened))
        assert self.place.store.waiting(order) == 5.0
        assert self.place.store.turn([], order, by=self.worker).next_due_s == 5.0
        self.clock.push(5)
        assert self.place.store.waiting(order) == 0.0

    def test_nobody_waits_for_a_part_that_got_all_of_its_slots(self) -> None:
        lanes = self._fill(a=3)
        run_at = self.clock.now() + timedelta(seconds=5)
        self.place.put(pipeline="p a", lane=lanes["a"], run_at=run_at)
        order = ClaimOrder(self.worker, 9, (), parts=(Part((lanes["a"],), 2),))
        turn = self.place.store.turn([], order, by=self.worker)
        assert (len(turn.claims), turn.next_due_s) == (2, None)
        turn = self.place.store.turn([], order, by=self.worker)
        assert (len(turn.claims), turn.next_due_s) == (1, 5.0)

    def test_parts_that_ask_for_more_than_the_order_are_refused(self) -> None:
        with raises(BugError):
            ClaimOrder(self.worker, 3, (), parts=(Part((1,), 2), Part((2,), 2)))
