"""What a store says of itself: a fresh one is well, and to ask changes nothing."""

from perdure.model.jobs import Lane
from perdure.testing.store_contract.fresh_store import OnAFreshStore


class ConditionsContract(OnAFreshStore):
    """A store that was just made, by somebody who may do everything to it."""

    def test_a_fresh_store_says_what_it_is_and_lacks_nothing(self) -> None:
        found = self.place.reader.condition()
        assert found.system
        assert found.version
        assert not found.read_only
        assert found.rights_missing == ()
        assert found.slots_left == ()

    def test_what_is_not_known_is_none_and_no_length_is_less_than_nothing(self) -> None:
        found = self.place.reader.condition()
        assert found.free_bytes is None or found.free_bytes > 0
        assert found.snapshot_s is None or found.snapshot_s >= 0
        assert bool(found.snapshot_of) is (found.snapshot_s is not None)
        assert found.sessions_hidden >= 0

    def test_to_ask_writes_nothing(self) -> None:
        self.place.store.lanes([Lane("q", "c", "p", "one")])
        cursor = self.place.reader.changes().cursor
        before = self.place.reader.lanes(), self.place.reader.deeds()
        assert self.place.reader.condition() is not None
        assert (self.place.reader.lanes(), self.place.reader.deeds()) == before
        assert self.place.reader.changes(cursor).entries == ()
