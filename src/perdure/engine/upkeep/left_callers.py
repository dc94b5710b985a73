"""What becomes of a job whose caller is gone: a worker takes it over, or it is cancelled, as was asked."""

from typing import assert_never

from perdure.engine.record import Ending, record_of
from perdure.engine.stages import LaidPipeline, Stage
from perdure.model.decisions import CancelJob, HandOver, Why
from perdure.model.jobs import OnLost, Record

_RULE = "caller lost"


def record_of_left_caller(ending: Ending, wish: OnLost, laid: LaidPipeline, stage: Stage) -> Record:
    """What is to be written. Nothing has failed: the stage's own policy begins afresh."""
    policy = stage.policy.label
    match wish:
        case OnLost.DROP:
            why = Why("cancelled: its caller is gone, and had asked for that", _RULE, policy)
            return record_of(ending, CancelJob(why), laid, stage)
        case OnLost.HAND_OVER:
            why = Why("handed over: its caller is gone, so a worker takes it", _RULE, policy)
            return record_of(ending, HandOver(0.0, None, why), laid, stage)
        case _:  # pragma: no cover
            assert_never(wish)
