"""How deeds are called in the audit log, and what they mean to lanes; the same on every store."""

from perdure.model.errors import CallerError
from perdure.model.gates import GateChange, GateState
from perdure.model.operations import BulkVerb, LaneScope
from perdure.model.runs import RunStatus

REVIVE = "revive job"
DISCARD = "discard job"
PAUSE: dict[LaneScope, str] = {scope: f"pause {scope.value}" for scope in LaneScope}
RESUME: dict[LaneScope, str] = {scope: f"resume {scope.value}" for scope in LaneScope}
BULK: dict[BulkVerb, str] = {verb: f"begin bulk {verb.value}" for verb in BulkVerb}

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

ENDED = frozenset(
    {RunStatus.COMPLETED, RunStatus.PARTIAL_SUCCESS, RunStatus.FAILED, RunStatus.CANCELLED}
)
CLOSING = frozenset(
    {RunStatus.PAUSED, RunStatus.ABORTED}
)  # what is left stays queued, in closed lanes

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
