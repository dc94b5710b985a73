"""The usual record: a job that succeeded in its last stage with nothing counted before. It changes few columns."""

from perdure.model.jobs import ZERO, Counters, Record
from perdure.model.states import AttemptStatus, State


def is_plain(record: Record, by: int | None) -> bool:
    """Whether there is nothing to write but the success itself, its result and its attempt."""
    attempt = record.attempt
    return (
        record.state is State.SUCCEEDED
        and attempt is not None
        and attempt.status is AttemptStatus.SUCCESS
        and attempt.worker == by
        and attempt.stage == record.stage
        and attempt.kind is None
        and attempt.counted is None
        and attempt.evidence_json is None
        and attempt.code is None
        and not (attempt.tokens_in or attempt.tokens_out or attempt.cost_nusd)
        and not attempt.message
        and record.past is ZERO
        and not record.isolation
        and record.delay_s is None
        and record.error_kind is None
        and record.error_message is None
        and record.error_code is None
        and record.error_detail is None
        and record.fingerprint is None
        and record.failed_reason is None
        and record.checkpoint_stage is None
        and not record.captures
        and not record.reclaim
        and record.lane_from is None
        and _nothing_counted(record.counters)
    )


def _nothing_counted(counters: Counters) -> bool:
    return not (
        counters.failures
        or counters.waits
        or counters.crashes
        or counters.snoozes
        or counters.probes
        or counters.releases
        or counters.waited_s
    )
