"""Captures: put aside with the attempt, read by whom they belong to, forgotten when their time is over."""

from datetime import timedelta
from typing import Any

from perdure.model.jobs import Capture, Claim, Receipt, Record, RecordRefused, Stale
from perdure.model.limits import PRUNE_BATCH_MAX
from perdure.model.nouns import replace
from perdure.model.operations import Retention
from perdure.model.views import CaptureView
from perdure.testing.store_contract.attempt_ends import ENDINGS, advance, retry, success
from perdure.testing.store_contract.fresh_store import OnAFreshStore, uuid_of

EVERY_BYTE = bytes(range(256))


def capture(number: int, content: bytes = b"raw", **changes: Any) -> Capture:
    """Raw output of a model."""
    plain = Capture(
        uuid_of(number, 0xCA9), "model_output", "text/plain", content, len(content), None
    )
    return replace(plain, **changes)


def putting_aside(record: Record, *contents: bytes, **changes: Any) -> Record:
    """The same record, with captures of its own."""
    first = record.no * 1000 + record.token * 10
    some = tuple(capture(first + n, one, **changes) for n, one in enumerate(contents))
    return replace(record, captures=some)


class CapturesContract(OnAFreshStore):
    """Raw output, stored beside the attempt that it came from."""

    def _end_with(self, record: Record) -> None:
        self.place.settle(record, by=self.worker)

    def _put_aside(self, *contents: bytes, owner: str = "", **changes: Any) -> list[CaptureView]:
        claim = self.one_claim(owner=owner)
        self._end_with(putting_aside(success(claim, self.worker), *contents, **changes))
        return self.place.reader.captures(claim.no)

    # -- writing -----------------------------------------------------------------------------

    def test_a_capture_is_stored_with_its_attempt(self) -> None:
        claim = self.one_claim()
        self.clock.push(2)
        kept = Capture(uuid_of(1), "invalid_output", "application/json", EVERY_BYTE, 70_000, 3600.5)
        self._end_with(replace(retry(claim, self.worker), captures=(kept,)))
        (seen,) = self.place.reader.captures(claim.no)
        now = self.clock.now()
        assert seen == CaptureView(
            no=seen.no,
            id=uuid_of(1),
            job_no=claim.no,
            token=claim.token,
            stage="one",
            kind="invalid_output",
            media_type="application/json",
            bytes_kept=256,
            bytes_whole=70_000,
            saved_at=now,
            expires_at=now + timedelta(seconds=3600.5),
        )
        assert self.place.reader.capture(uuid_of(1), owner=None) == (seen, EVERY_BYTE)
        self.place.clean()

    def test_every_ending_may_come_with_captures(self) -> None:
        for end in ENDINGS:
            claim = self.one_claim()
            record = putting_aside(end(claim, self.worker), b"one", b"")
            (answer,) = self.place.settle(record, by=self.worker)
            assert isinstance(answer, Receipt), end.__name__
            found = self.place.reader.captures(claim.no)
            assert [(one.bytes_kept, one.expires_at) for one in found] == [(3, None), (0, None)]
            while self._take_rest():
                self.clock.push(5)
        self.place.clean()

    def _take_rest(self) -> bool:
        """Out of the way: what waits is taken."""
        return (
            any(self.place.take(self.worker, isolation=level) for level in (0, 1, 2))
            or self.place.standing("waiting", "retrying") > 0
        )

    def test_a_capture_belongs_to_the_stage_in_which_it_was_made(self) -> None:
        claim = self.one_claim()
        step = advance(claim, self.worker, self.place.lanes["two"], reclaim=True)
        self._end_with(putting_aside(step, b"first"))
        (held,) = self.place.store.claims_held(self.worker)
        self._end_with(putting_aside(success(held, self.worker), b"second"))
        found = self.place.reader.captures(claim.no)
        assert [(one.stage, one.token) for one in found] == [
            ("one", claim.token),
            ("two", held.token),
        ]

    def test_a_stale_record_puts_nothing_aside(self) -> None:
        claim = self.one_claim()
        record = putting_aside(success(claim, self.worker), b"raw")
        (answer,) = self.place.settle(replace(record, token=99), by=self.worker)
        assert isinstance(answer, Stale)
        assert self.place.reader.captures(claim.no) == []

    def test_a_record_that_comes_again_puts_nothing_aside_again(self) -> None:
        claim = self.one_claim()
        record = putting_aside(success(claim, self.worker), b"raw")
        self._end_with(record)
        (answer,) = self.place.settle(record, by=self.worker)
        assert isinstance(answer, Receipt)
        assert answer.repeated
        assert len(self.place.reader.captures(claim.no)) == 1

    def test_a_record_that_is_refused_puts_nothing_aside(self) -> None:
        claim = self.one_claim()
        broken = replace(success(claim, self.worker), result_json="\ud800")
        (answer,) = self.place.settle(putting_aside(broken, b"raw"), by=self.worker)
        assert isinstance(answer, RecordRefused)
        assert self.place.reader.captures(claim.no) == []

    def test_the_captures_of_a_batch_stay_with_their_own_jobs(self) -> None:
        self.place.put_many(3)
        claims = self.place.take(self.worker, 3)
        self.place.settle(*map(self._marked_record, claims), by=self.worker)
        for claim in claims:
            (seen,) = self.place.reader.captures(claim.no)
            found = self.place.reader.capture(seen.id, owner="")
            assert found == (seen, claim.id.encode())

    def _marked_record(self, claim: Claim) -> Record:
        return putting_aside(success(claim, self.worker), claim.id.encode())

    # -- reading -----------------------------------------------------------------------------

    def test_a_capture_is_read_by_the_owner_of_its_job_and_by_operators(self) -> None:
        (seen,) = self._put_aside(b"secret", owner="ann")
        read = self.place.reader.capture
        assert read(seen.id, owner="ann") == (seen, b"secret")
        assert read(seen.id, owner=None) == (seen, b"secret")
        for stranger in ("bob", "", "Ann"):
            assert read(seen.id, owner=stranger) is None, stranger

    def test_a_job_of_nobody_has_captures_of_nobody(self) -> None:
        (seen,) = self._put_aside(b"raw")
        assert self.place.reader.capture(seen.id, owner="") == (seen, b"raw")
        assert self.place.reader.capture(seen.id, owner="ann") is None

    def test_a_capture_that_is_not_there_is_none(self) -> None:
        self._put_aside(b"raw")
        for stranger in ("nobody", "", uuid_of(99), "🎉"):
            assert self.place.reader.capture(stranger, owner=None) is None, stranger
        assert self.place.reader.captures(999_999) == []

    # -- forgetting --------------------------------------------------------------------------

    def test_a_capture_goes_when_its_time_is_over(self) -> None:
        (short,) = self._put_aside(b"a", kept_s=10.0)
        (long,) = self._put_aside(b"b", kept_s=20.0)
        (ever,) = self._put_aside(b"c")
        prune = self.place.control.prune_captures
        self.clock.push(9.999999)
        assert prune(limit=10) == 0
        self.clock.push(0.000001)
        assert prune(limit=10) == 1
        assert prune(limit=10) == 0
        left = [
            one.id
            for gone in (short, long, ever)
            for one in self.place.reader.captures(gone.job_no)
        ]
        assert left == [long.id, ever.id]
        self.clock.push(86_400 * 365)
        assert prune(limit=10) == 1
        assert len(self.place.reader.captures(ever.job_no)) == 1
        self.place.clean()

    def test_so_many_captures_go_at_a_time(self) -> None:
        self._put_aside(*(b"x" for _ in range(5)), kept_s=1.0)
        self.clock.push(1)
        prune = self.place.control.prune_captures
        assert [prune(limit=n) for n in (0, 2, PRUNE_BATCH_MAX + 5, 2)] == [0, 2, 3, 0]

    def test_of_captures_that_expire_together_those_with_the_lowest_ids_go_first(self) -> None:
        self.place.put_many(2)
        claims = self.place.take(self.worker, 2)
        numbers = iter((74, 71, 73, 72))
        records = [
            replace(
                success(claim, self.worker),
                captures=tuple(capture(next(numbers), kept_s=1.0) for _ in range(2)),
            )
            for claim in claims
        ]
        self.place.settle(*records, by=self.worker)
        self.clock.push(1)
        for gone in (71, 72, 73):
            assert self.place.control.prune_captures(limit=1) == 1
            left = {one.id for claim in claims for one in self.place.reader.captures(claim.no)}
            assert left == {capture(number).id for number in range(gone + 1, 75)}

    def test_captures_go_with_their_job(self) -> None:
        (seen,) = self._put_aside(b"raw")
        self.clock.push(100)
        pruned = self.place.control.prune(Retention(succeeded_s=10.0), limit=10)
        assert pruned.jobs == 1
        assert self.place.reader.captures(seen.job_no) == []
        assert self.place.reader.capture(seen.id, owner=None) is None
        self.place.clean()
