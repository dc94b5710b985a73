"""What a job can be, and the only ways it can change.

The table below is the single source of the state machine. The check constraints of every schema
and the diagram in the documents are drawn from it; no other file may know that, say, a failed job
can be queued again.

Always true:

* A job is in exactly one of five stored states. What people call *scheduled*, *retrying* or
  *held* are views of ``queued``: the difference is a due time, a counter or a gate, not a state.
* ``processing`` is left only by settling the attempt, and settling is written once. A crashed
  worker's job, a cancelled job and a job handed back at shutdown leave by the same door.
* Terminal states end a *life*, not a history: ``redrive`` begins a new life of a failed job and
  keeps every attempt of the earlier ones.
"""

from enum import StrEnum


class State(StrEnum):
    """The five stored states of a job."""

    QUEUED = "queued"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class FailedReason(StrEnum):
    """Why a job is dead-lettered."""

    FATAL = "fatal"
    EXHAUSTED = "exhausted"
    CRASHED = "crashed"
    EXPIRED = "expired"


class AttemptStatus(StrEnum):
    """How one attempt ended."""

    SUCCESS = "success"
    RETRYING = "retrying"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HANDED_OVER = "handed_over"


class Move(StrEnum):
    """The names of the arrows between states."""

    ENQUEUE = "enqueue"
    CLAIM = "claim"
    ADVANCE = "advance"
    CARRY_ON = "carry_on"
    RETRY = "retry"
    REPEAT = "repeat"
    RELEASE = "release"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    REDRIVE = "redrive"


TRANSITIONS: tuple[tuple[State | None, Move, State], ...] = (
    (None, Move.ENQUEUE, State.QUEUED),
    (State.QUEUED, Move.CLAIM, State.PROCESSING),
    (State.QUEUED, Move.CANCEL, State.CANCELLED),
    (State.QUEUED, Move.FAIL, State.FAILED),  # its deadline passed while it waited
    (State.PROCESSING, Move.ADVANCE, State.QUEUED),  # a stage is done, the next one waits
    (State.PROCESSING, Move.CARRY_ON, State.PROCESSING),  # done, and the next one claimed at once
    (State.PROCESSING, Move.RETRY, State.QUEUED),
    (State.PROCESSING, Move.REPEAT, State.PROCESSING),  # as retry, and claimed at once by a caller
    (State.PROCESSING, Move.RELEASE, State.QUEUED),
    (State.PROCESSING, Move.SUCCEED, State.SUCCEEDED),
    (State.PROCESSING, Move.FAIL, State.FAILED),
    (State.PROCESSING, Move.CANCEL, State.CANCELLED),
    (State.FAILED, Move.REDRIVE, State.QUEUED),
)

TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})


def target(state: State | None, move: Move) -> State | None:
    """Where ``move`` leads from ``state``, or None when the table has no such arrow."""
    for source, name, result in TRANSITIONS:
        if source is state and name is move:
            return result
    return None
