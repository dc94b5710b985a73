"""How deeds are called in the audit log, when they are allowed and what is refused; the same on every store."""

from collections.abc import Iterable

from perdure.model.errors import CallerError
from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import Busy, Conflict, RecordRefused, Revived, Settled, Stale
from perdure.model.operations import BulkStatus, BulkStep, BulkVerb, LaneScope, Refusal
from perdure.model.runs import FINISHED, RunChange, RunStatus, RunView

REVIVE = "revive job"
DISCARD = "discard job"
CANCEL = "cancel job"
RUN_NOW = "run job now"
ADMIT = "create token"
SHUT_OUT = "revoke token"
PAUSE: dict[LaneScope, str] = {scope: f"pause {scope.value}" for scope in LaneScope}
RESUME: dict[LaneScope, str] = {scope: f"resume {scope.value}" for scope in LaneScope}
BULK: dict[BulkVerb, str] = {verb: f"begin bulk {verb.value}" for verb in BulkVerb}

BULK_CHANGE: dict[BulkStatus, str] = {
    BulkStatus.RUNNING: "resume bulk",
    BulkStatus.STOPPED: "stop bulk",
    BulkStatus.DONE: "end bulk",
}

GATE: dict[GateState, str] = {
    GateState.FLOWING: "release gate",
    GateState.HELD: "hold gate",
    GateState.PROBING: "probe gate",
}

RUN: dict[RunStatus, str] = {
    RunStatus.RUNNING: RESUME[LaneScope.RUN],
    RunStatus.PAUSED: PAUSE[LaneScope.RUN],
    RunStatus.ABORTED: "abort run",
    RunStatus.CANCELLED: "cancel run",
    RunStatus.COMPLETED: "end run",
    RunStatus.PARTIAL_SUCCESS: "end run",
    RunStatus.FAILED: "end run",
}

_NUMBER_MAX = 2**63 - 1


def gate_verb(change: GateChange) -> str:
    """What a change of a gate is called: by its own word, or else by the state it leads to."""
    return change.verb or GATE[change.state]


def check_pause(scope: LaneScope, name: str) -> None:
    """Refuse the name of a run that is no number: every claim reads it as one."""
    if scope is LaneScope.RUN and not (
        name.isascii() and name.isdecimal() and str(int(name)) == name and int(name) <= _NUMBER_MAX
    ):
        raise CallerError(f"run {name!r} is not the number of a run; see: perdure runs")


def may_change(run: RunView, change: RunChange) -> bool:
    """Whether a run, read in the transaction of the change, may have another status now."""
    if run.status is not change.seen or change.seen_sealed not in (None, run.sealed_at is not None):
        return False
    if change.status in FINISHED:
        sealed = run.sealed_at is not None if change.sealed is None else change.sealed
        counted = change.counts is None or change.counts == run.counts
        return sealed and run.counts.open == 0 and counted
    is_over = run.status is RunStatus.CANCELLED and run.ended_at is not None
    return not (is_over and change.status is RunStatus.CANCELLED)


def refusals(step: BulkStep, answers: Iterable[Settled | Revived | Busy]) -> list[Refusal]:
    """What a step of a bulk operation writes down about jobs that it has left as they were."""
    found = list(step.refusals)
    for one in answers:
        if isinstance(one, Stale) and not step.again:
            found.append(Refusal(one.no, "has moved on since"))
        elif isinstance(one, Conflict):
            how = "is alive again" if one.alive else "was driven again"
            found.append(Refusal(one.no, f"its key {how} as job {one.with_id}"))
        elif isinstance(one, RecordRefused):
            found.append(Refusal(one.no, f"could not be written: {one.reason}"))
    return found
