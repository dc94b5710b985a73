"""Dead letters: found by all that is said of them, and grouped by how they failed."""

from datetime import timedelta
from typing import Any

from perdure.model.filters import DEAD_LETTERS, JobFilter
from perdure.model.nouns import replace
from perdure.model.states import State
from perdure.model.views import DeadGroup, JobView
from perdure.testing.store_contract.attempt_ends import failing, retry, success
from perdure.testing.store_contract.fresh_store import OnAFreshStore


class DeadLettersContract(OnAFreshStore):
    """What people work through."""

    def _letter(self, *, put: dict[str, Any] | None = None, **said: Any) -> JobView:
        return self.place.dead_letter(
            self.worker, end=lambda claim, worker: failing(claim, worker, **said), **(put or {})
        )

    def _found_ids(self, **chosen: Any) -> list[str]:
        return [job.id for job in self.place.reader.jobs(JobFilter(**chosen))]

    # -- filters -----------------------------------------------------------------------------

    def test_a_filter_may_name_the_code(self) -> None:
        one, two = self._letter(code="422"), self._letter(code="500")
        self._letter()
        assert self._found_ids(code="422") == [one.id]
        assert self._found_ids(code="500", states=(State.FAILED,)) == [two.id]
        assert self._found_ids(code="") == self._found_ids(code="42") == []
        assert self.place.reader.preview(JobFilter(code="422")).count == 1

    def test_a_code_may_be_that_of_a_failure_that_is_tried_again(self) -> None:
        claim = self.one_claim()
        self.place.settle(replace(retry(claim, self.worker), error_code="503"), by=self.worker)
        assert self._found_ids(code="503") == [claim.id]
        assert self._found_ids(code="503", states=(State.FAILED,)) == []

    def test_a_filter_may_name_the_fingerprint(self) -> None:
        one, two = self._letter(fingerprint="aa"), self._letter(fingerprint="bb")
        three = self._letter(fingerprint="aa")
        self._letter()
        assert self._found_ids(fingerprint="aa") == [three.id, one.id]
        assert self._found_ids(fingerprint="bb", states=(State.FAILED,)) == [two.id]
        assert self._found_ids(fingerprint="aa", states=(State.QUEUED,)) == []
        assert self._found_ids(fingerprint="a") == []
        self.place.revive(one)
        assert self._found_ids(fingerprint="aa") == [three.id]

    def test_a_text_is_looked_for_in_the_message_and_in_the_detail(self) -> None:
        one = self._letter(message="The Vendor said no.")
        two = self._letter(message="no luck", detail="vendor: Straße 7")
        three = self._letter(detail=None)
        assert self._found_ids(text="VENDOR") == [two.id, one.id]
        assert self._found_ids(text="strasse") == [two.id]
        assert self._found_ids(text="broken") == [three.id]
        assert self._found_ids(text="%") == []

    def test_a_filter_may_say_when_a_job_ended(self) -> None:
        jobs = []
        for _ in range(3):
            self.clock.push(10)
            jobs.append(self._letter())
        self.place.put()
        ends = [job.finished_at for job in jobs]
        ids = [job.id for job in jobs]
        assert self._found_ids(finished_from=ends[1]) == [ids[2], ids[1]]
        assert self._found_ids(finished_until=ends[1]) == [ids[0]]
        assert self._found_ids(finished_from=ends[0], finished_until=ends[2]) == [ids[1], ids[0]]
        later = self.clock.now() + timedelta(seconds=1)
        assert self._found_ids(finished_from=later) == []
        assert self._found_ids(finished_until=later) == ids[::-1]
        self.place.revive(jobs[0])
        assert self._found_ids(finished_until=ends[1]) == []

    def test_everything_that_is_given_must_hold(self) -> None:
        run = self.place.begin_run()
        one = self._letter(
            code="1", fingerprint="f", kind="network", detail="d", put={"run": run.no}
        )
        self._letter(code="2", fingerprint="f", kind="network", detail="d")
        whole = {
            "code": "1",
            "fingerprint": "f",
            "kind": "network",
            "text": "D",
            "run": run.no,
            "discarded": False,
            "finished_from": one.finished_at,
        }
        assert self._found_ids(**whole) == [one.id]
        for name in ("code", "fingerprint", "kind", "text"):
            assert self._found_ids(**{**whole, name: "other"}) == [], name

    # -- groups ------------------------------------------------------------------------------

    def test_dead_letters_are_grouped_by_their_fingerprint(self) -> None:
        assert self.place.reader.dead_groups() == []
        said: Any = {"kind": "network", "code": "E", "fingerprint": "bb"}
        first = self._letter(**said, detail="host a")
        self.clock.push(10)
        lone = self._letter(fingerprint="aa", kind="timeout")
        self.clock.push(10)
        last = self._letter(**said, detail="host b")
        assert self.place.reader.dead_groups() == [
            DeadGroup(
                "bb",
                "p",
                "one",
                "network",
                "E",
                2,
                first.finished_at or self.clock.now(),
                last.finished_at or self.clock.now(),
                last.id,
                "host b",
            ),
            DeadGroup(
                "aa",
                "p",
                "one",
                "timeout",
                "",
                1,
                lone.finished_at or self.clock.now(),
                lone.finished_at or self.clock.now(),
                lone.id,
                "The item is broken.",
            ),
        ]

    def test_what_differs_in_anything_is_another_group(self) -> None:
        for kind, code, fingerprint in (
            ("a", "1", "f"),
            ("a", "2", "f"),
            ("b", "1", "f"),
            ("a", "1", "g"),
            (None, None, None),
        ):
            self._letter(kind=kind, code=code, fingerprint=fingerprint)
        groups = self.place.reader.dead_groups()
        assert sorted((one.fingerprint, one.kind, one.code) for one in groups) == [
            ("", "", ""),
            ("f", "a", "1"),
            ("f", "a", "2"),
            ("f", "b", "1"),
            ("g", "a", "1"),
        ]
        assert {one.count for one in groups} == {1}

    def test_groups_of_one_size_stand_by_fingerprint_and_so_many_are_told(self) -> None:
        for fingerprint in ("b", "c", "c", "a"):
            self._letter(fingerprint=fingerprint)
        groups = self.place.reader.dead_groups
        assert [one.fingerprint for one in groups()] == ["c", "a", "b"]
        assert [one.fingerprint for one in groups(limit=2)] == ["c", "a"]
        assert groups(limit=0) == []

    def test_only_what_the_filter_means_is_grouped(self) -> None:
        run = self.place.begin_run()
        one = self._letter(fingerprint="a", put={"run": run.no, "owner": "ann"})
        two = self._letter(fingerprint="a")
        self.place.dead_letter(self.worker, end=success)
        self.place.put()
        groups = self.place.reader.dead_groups
        assert [group.count for group in groups()] == [2]
        (mine,) = groups(replace(DEAD_LETTERS, owner="ann"))
        assert (mine.count, mine.example_id) == (1, one.id)
        assert [group.count for group in groups(JobFilter(run=run.no))] == [1]
        assert groups(JobFilter(states=(State.QUEUED, State.SUCCEEDED))) == []
        self.place.discard(two)
        assert [group.count for group in groups()] == [1]
        assert [group.count for group in groups(JobFilter())] == [2]
        assert [group.count for group in groups(JobFilter(discarded=True))] == [1]
