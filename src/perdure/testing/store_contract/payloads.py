"""Fidelity: what goes in comes out, byte for byte, wherever text is kept."""

from perdure.engine.payloads import admit
from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import Lane
from perdure.model.limits import PAYLOAD_BYTES_MAX
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LaneScope
from perdure.testing.payloads import PAYLOADS, TEXTS
from perdure.testing.store_contract.attempt_ends import advance, failure, retry, success
from perdure.testing.store_contract.fresh_store import OnAFreshStore


def _admit_corpus() -> dict[str, str]:
    """The corpus as the door lets it in."""
    return {
        name: admit(value, what=name, bytes_max=PAYLOAD_BYTES_MAX)
        for name, value in PAYLOADS.items()
    }


class PayloadsContract(OnAFreshStore):
    """The corpus, in every place that holds text."""

    def test_payloads_come_out_as_they_went_in(self) -> None:
        corpus = _admit_corpus()
        made = self.place.store.enqueue(
            [self.place.new(payload_json=one) for one in corpus.values()]
        )
        claims = self.place.take(self.worker, len(corpus))
        for name, job, claim in zip(corpus, made, claims, strict=True):
            assert claim.id == job.id, name
            assert claim.payload_json == claim.input_json == corpus[name], name
            assert self.place.see(job.id).payload_json == corpus[name], name
        assert [claim.payload_json for claim in self.place.store.claims_held(self.worker)] == list(
            corpus.values()
        )

    def test_results_come_out_as_they_went_in(self) -> None:
        corpus = _admit_corpus()
        self.place.put_many(len(corpus))
        claims = self.place.take(self.worker, len(corpus))
        records = [
            success(claim, self.worker, result_json=one)
            for claim, one in zip(claims, corpus.values(), strict=True)
        ]
        self.place.settle(*records, by=self.worker)
        for name, claim in zip(corpus, claims, strict=True):
            assert self.place.see(claim.id).result_json == corpus[name], name

    def test_checkpoints_come_out_as_they_went_in(self) -> None:
        corpus = _admit_corpus()
        self.place.put_many(len(corpus))
        claims = self.place.take(self.worker, len(corpus))
        lane = self.place.lanes["two"]
        records = [
            advance(claim, self.worker, lane, value_json=one, reclaim=place % 2 == 0)
            for place, (claim, one) in enumerate(zip(claims, corpus.values(), strict=True))
        ]
        self.place.settle(*records, by=self.worker)
        self.place.take(self.worker, len(corpus))
        held = {claim.no: claim.input_json for claim in self.place.store.claims_held(self.worker)}
        for name, claim in zip(corpus, claims, strict=True):
            assert held[claim.no] == corpus[name], name
            assert self.place.see(claim.id).input_json == corpus[name], name

    def test_error_texts_come_out_as_they_went_in(self) -> None:
        for name, text in TEXTS.items():
            claim = self.one_claim()
            told = failure(claim, self.worker)
            assert told.attempt is not None
            attempt = replace(
                told.attempt,
                message=text,
                kind=text,
                policy=text,
                why_json=text,
                evidence_json=text,
                config_hash=text,
                counted=text,
            )
            record = replace(told, error_message=text, error_kind=text, attempt=attempt)
            self.place.settle(record, by=self.worker)
            job = self.place.see(claim.id)
            assert (job.error_message, job.error_kind) == (text, text), name
            (seen,) = self.place.reader.attempts(claim.no)
            assert (seen.message, seen.kind, seen.policy, seen.counted) == (text,) * 4, name
            assert (seen.why_json, seen.evidence_json) == (text, text), name

    def test_labels_come_out_as_they_went_in(self) -> None:
        for name, text in TEXTS.items():
            claim = self.one_claim()
            self.place.settle(replace(success(claim, self.worker), label=text), by=self.worker)
            assert self.place.see(claim.id).label == text, name

    def test_keys_and_owners_come_out_as_they_went_in_and_find_their_job_again(self) -> None:
        made = {
            name: self.place.put(key=text, owner=text, priority=-place)
            for place, (name, text) in enumerate(TEXTS.items())
        }
        claims = self.place.take(self.worker, len(made))
        for (name, job), claim in zip(made.items(), claims, strict=True):
            text = TEXTS[name]
            assert job.created, name
            assert (claim.id, claim.key, claim.owner) == (job.id, text, text), name
            seen = self.place.see(job.id)
            assert (seen.key, seen.owner) == (text, text), name
            again = self.place.put(key=text, owner=text)
            assert (again.id, again.created) == (job.id, False), name

    def test_names_of_lanes_come_out_as_they_went_in(self) -> None:
        lanes = [Lane(text, text, text, text, upstream=text) for text in TEXTS.values()]
        numbers = self.place.store.lanes(lanes)
        assert len(set(numbers.values())) == len(lanes)
        assert self.place.store.lanes(lanes) == numbers
        assert {one.no: one.lane for one in self.place.reader.lanes()}.items() >= {
            no: lane for lane, no in numbers.items()
        }.items()

    def test_a_lane_of_any_name_can_be_closed_and_opened(self) -> None:
        for name, text in TEXTS.items():
            lane = Lane(text, "c", text, "one", upstream=text)
            self.place.lanes = {"one": self.place.store.lanes([lane])[lane]}
            deed = Deed(text, text)
            self.place.control.pause(LaneScope.QUEUE, text, deed)
            change = GateChange(text, 0, GateState.HELD, reason=text, control_json=text)
            gate = self.place.control.change_gate(change, deed)
            assert gate is not None, name
            assert (gate.name, gate.reason, gate.control_json) == (text, text, text), name
            assert gate == self.place.reader.gate(text), name
            id = self.place.put(pipeline=text).id
            assert self.place.take(self.worker) == [], name
            self.place.control.resume(LaneScope.QUEUE, text, deed)
            assert self.place.take(self.worker) == [], name
            self.place.control.change_gate(GateChange(text, 1, GateState.FLOWING), deed)
            assert self.place.taken_ids(self.worker) == [id], name
            last = self.place.reader.deeds(limit=1)[0]
            assert (last.subject, last.by_whom, last.reason) == (text, text, text), name

    def test_a_hostile_text_beside_others_spoils_none_of_them(self) -> None:
        self.place.put_many(len(TEXTS))
        claims = self.place.take(self.worker, len(TEXTS))
        records = [
            replace(retry(claim, self.worker), error_message=text)
            for claim, text in zip(claims, TEXTS.values(), strict=True)
        ]
        answers = self.place.settle(*records, by=self.worker)
        assert {type(answer).__name__ for answer in answers} == {"Receipt"}
        for claim, text in zip(claims, TEXTS.values(), strict=True):
            assert self.place.see(claim.id).error_message == text
        self.place.clean()
