"""How many requests of an owner are let in: one bucket for each owner, whoever asks."""

from concurrent.futures import ThreadPoolExecutor

from perdure.testing.store_contract.fresh_store import OnAFreshStore

WEEK_S = 7 * 86_400.0


class OwnerRatesContract(OnAFreshStore):
    """Three at once, and one more every half second."""

    def _ask(self, owner: str = "ann", *, burst: int = 3, every_s: float = 0.5) -> float:
        return self.place.control.take_request(owner, burst=burst, every_s=every_s)

    def _ask_many(self, count: int, owner: str = "ann") -> list[float]:
        return [self._ask(owner) for _ in range(count)]

    def test_a_burst_is_let_in_and_who_comes_then_hears_how_long_to_wait(self) -> None:
        assert self._ask_many(4) == [0.0, 0.0, 0.0, 0.5]
        self.clock.push(0.2)
        assert self._ask() == 0.3

    def test_who_is_refused_takes_nothing(self) -> None:
        assert self._ask_many(8) == [0.0] * 3 + [0.5] * 5
        self.clock.push(0.5)
        assert self._ask_many(2) == [0.0, 0.5]

    def test_requests_come_back_one_by_one_and_never_more_than_a_burst(self) -> None:
        self._ask_many(3)
        self.clock.push(1.0)
        assert self._ask_many(3) == [0.0, 0.0, 0.5]
        self.clock.push(3_600)
        assert self._ask_many(4) == [0.0, 0.0, 0.0, 0.5]

    def test_owners_have_buckets_of_their_own(self) -> None:
        assert self._ask_many(4)[-1] == 0.5
        self.clock.push(0.25)
        assert self._ask_many(4, "bob") == [0.0, 0.0, 0.0, 0.5]

    def test_a_moment_that_no_bucket_can_have_is_that_of_a_full_one(self) -> None:
        """As after a clock that was set back, or under a smaller limit than before."""
        assert self._ask(burst=1, every_s=WEEK_S) == 0.0
        assert self._ask(burst=1, every_s=WEEK_S) == WEEK_S
        assert self._ask_many(4) == [0.0, 0.0, 0.0, 0.5]

    def test_of_many_who_ask_at_once_no_more_than_a_burst_is_let_in(self) -> None:
        with ThreadPoolExecutor(12) as pool:
            asked = list(pool.map(lambda _: self._ask(every_s=60.0), range(48)))
        assert asked.count(0.0) == 3

    def test_what_is_forgotten_of_full_buckets_lets_nobody_in_twice(self) -> None:
        self._ask_many(1, "bob")
        self.clock.push(0.5)
        self._ask_many(3)
        self.place.control.prune_workers(WEEK_S, limit=100)
        assert self._ask() == 0.5
        assert self._ask_many(4, "bob") == [0.0, 0.0, 0.0, 0.5]
