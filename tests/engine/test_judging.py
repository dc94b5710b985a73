"""A policy with code of its own: what that code does wrong is told, and costs no job."""

from perdure.model.states import State
from perdure.testing.nouns import replace
from tests.engine.kit import Shop, stage
from tests.engine.test_pump import FAILED


def broken(failures, kind) -> float:
    raise ZeroDivisionError("my own arithmetic")


def test_an_end_that_a_policys_own_code_cannot_judge_is_judged_by_its_curve(caplog):
    policy = replace(stage("one").policy, own_delay=broken)
    shop = Shop(stage("one", policy=policy), concurrency=2)
    shop.place.put_many(2)
    shop.pump.once()
    shop.finish_all(FAILED)
    shop.pump.once()
    jobs = shop.place.reader.jobs()
    assert [job.state for job in jobs] == [State.QUEUED] * 2
    assert {job.error_kind for job in jobs} == {"network"}
    assert all(job.counters.failures == 1 for job in jobs)
    assert "my own arithmetic" in caplog.text
    assert "the policy's own code failed on job" in caplog.text
    assert shop.pump.empty
    shop.close()
