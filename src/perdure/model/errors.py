"""Every error that Perdure raises to a caller, branched by whose fault it is.

    PerdureError
    ├── CallerError                 the call is wrong; calling again unchanged will not help
    │   ├── PayloadRefused          a value that cannot be stored faithfully
    │   ├── UnknownName             a pipeline, stage, job or setting that does not exist
    │   ├── AppNotFound             ``module:variable`` does not lead to an App
    │   ├── NotCancellable          the job is already finished
    │   ├── NotRetriable            the job has not failed, or cannot go on where it is asked to
    │   ├── NotCompletable          the attempt is over, or has its record already
    │   ├── NotChangeable           the job, the run or the bulk operation is not in a state for that
    │   └── CursorTooOld            the change feed no longer has what came after the cursor
    ├── NoResult                    the call is right, and what it asks for is not there
    │   ├── JobUnfinished           the wait is over, the job is not; a ``TimeoutError``, too
    │   ├── JobFailed               the job failed or was cancelled
    │   ├── RunUnfinished           the wait is over, the run is not; a ``TimeoutError``, too
    │   └── RunAborted              the run has overspent its budget
    ├── ConfigError                 a setting or a declaration is wrong
    ├── StoreError                  the store cannot do it now, or at all
    │   ├── StoreUnavailable        not reachable; the same call may succeed later
    │   │   └── StoreBusy           another writer holds the store for too long
    │   ├── StoreFull               no space is left
    │   ├── StoreReadOnly           the file or server does not accept writes
    │   ├── StoreDenied             the server does not let us in, or the role lacks a right
    │   ├── StoreDamaged            not a database of ours, or a damaged one
    │   ├── SchemaMismatch          the schema is newer or older than this version
    │   └── WorkerDead              the writing worker was declared dead; it must stop
    ├── StageError                  raised by a stage to name the kind of its own failure
    │   └── OutputError             a model's output cannot be used; says where, and by which rule
    │       ├── OutputInvalid       a model's output does not have the form that was asked for
    │       ├── OutputTruncated     a model's output ends too early
    │       └── OutputRefused       the model, or a guard behind it, refused to answer
    ├── AnswerError                 raised by a stage to have an unwelcome answer judged
    └── BugError                    Perdure broke its own rule; please report it

A message names the thing, the value and what to do. ``code`` and ``exit_code`` are stable.
"""

import re
from functools import partial
from typing import Any, ClassVar

from perdure.model.kinds import Kind

PUBLIC_CODE = re.compile(r"[A-Za-z][\w.:-]*", re.ASCII)


class PerdureError(Exception):
    """Something went wrong in Perdure."""

    code = "error"
    http_status = 500
    exit_code = 1


class CallerError(PerdureError):
    """The call is wrong."""

    code = "caller_error"
    http_status = 400
    exit_code = 2


class PayloadRefused(CallerError):
    """A value cannot be stored faithfully."""

    code = "payload_refused"
    http_status = 422


class UnknownName(CallerError):
    """No such thing."""

    code = "unknown_name"
    http_status = 404


class AppNotFound(CallerError):
    """The app reference does not lead to an App."""

    code = "app_not_found"
    http_status = 404


class NotCancellable(CallerError):
    """The job is already finished."""

    code = "not_cancellable"
    http_status = 409


class NotRetriable(CallerError):
    """The job cannot be given a new life like this."""

    code = "not_retriable"
    http_status = 409


class NotCompletable(CallerError):
    """The attempt is over, or has its record already."""

    code = "not_completable"
    http_status = 409


class NotChangeable(CallerError):
    """The job, the run or the bulk operation cannot be changed like this now."""

    code = "not_changeable"
    http_status = 409


class CursorTooOld(CallerError):
    """The change feed no longer has what came after the cursor; begin anew without one."""

    code = "cursor_too_old"
    http_status = 410


class NoResult(PerdureError):
    """The call is right, and what it asks for is not there, or not yet."""

    code = "no_result"
    http_status = 409
    exit_code = 2


class JobUnfinished(NoResult, TimeoutError):
    """The job has not finished yet."""

    code = "job_unfinished"


class JobFailed(NoResult):
    """The job ended without a result.

    ``public_code`` and ``public_message`` are what its users may read, ``kind`` is the kind of its last failure.
    A job that was cancelled may have none of them.
    """

    code = "job_failed"

    def __init__(
        self,
        message: str = "",
        *,
        job_id: str | None = None,
        kind: str | None = None,
        public_code: str | None = None,
        public_message: str | None = None,
    ) -> None:
        self.job_id = job_id
        self.kind = kind
        self.public_code = public_code
        self.public_message = public_message
        super().__init__(message)


class RunUnfinished(NoResult, TimeoutError):
    """The run is not over yet."""

    code = "run_unfinished"


class RunAborted(NoResult):
    """The run has overspent its budget; what is left of it can be resumed."""

    code = "run_aborted"


class ConfigError(PerdureError):
    """A setting or a declaration is wrong."""

    code = "config_error"
    exit_code = 2


class StoreError(PerdureError):
    """The store cannot do it."""

    code = "store_error"
    http_status = 503
    exit_code = 10


class StoreUnavailable(StoreError):
    """The store cannot be reached now."""

    code = "store_unavailable"
    exit_code = 11
    may_pass = False  # whether it may be well again by itself: the server starts, or is busy


class StoreBusy(StoreUnavailable):
    """Another writer holds the store."""

    code = "store_busy"
    exit_code = 12
    may_pass = True


class StoreFull(StoreError):
    """No space is left for the store."""

    code = "store_full"
    http_status = 507
    exit_code = 13


class StoreReadOnly(StoreError):
    """The store does not accept writes."""

    code = "store_read_only"
    exit_code = 14


class StoreDenied(StoreError):
    """The server refuses the user, or the role lacks a right."""

    code = "store_denied"
    exit_code = 18


class StoreDamaged(StoreError):
    """The store is damaged or not ours."""

    code = "store_damaged"
    exit_code = 15


class SchemaMismatch(StoreError):
    """The schema and this version of Perdure do not fit together."""

    code = "schema_mismatch"
    exit_code = 16


class WorkerDead(StoreError):
    """The writing worker was declared dead."""

    code = "worker_dead"
    http_status = 409
    exit_code = 17


class StageError(PerdureError):
    """A stage names the kind of its own failure: ``raise StageError("invalid_output", "no total")``.

    ``wait_s`` is a wait hint, as a server would give it. ``message`` is for operators. What users may
    read is ``public_code`` (one word, 64 characters at most) and ``public_message`` (made one line, cut
    at 280 characters); without them the policy's vocabulary names both. One that cannot be used is left
    out, which the message then says: the failure stays what it is.
    """

    code = "stage_error"

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        wait_s: float | None = None,
        public_code: str | None = None,
        public_message: str | None = None,
    ) -> None:
        try:
            self.kind = Kind(kind)
        except ValueError:
            known = ", ".join(sorted(Kind))
            raise ConfigError(f"unknown failure kind {kind!r}; one of: {known}") from None
        if self.kind is Kind.WORKER_LOST:
            raise ConfigError("a stage cannot say of itself that its worker is lost")
        self.wait_s = wait_s
        self.public_code = public_code
        self.public_message = public_message
        super().__init__(message)


class OutputError(StageError):
    """A model's output cannot be used. Raised as one of the three below.

    ``path`` is the place in it (``$.items[3].price``) and ``rule`` what it breaks there; the message
    names both and nothing else, since messages go to logs. ``raw`` is the whole output as it came.
    """

    code = "output_error"
    stated: ClassVar[Kind] = Kind.INVALID_OUTPUT
    words: ClassVar[str] = "the model's output cannot be used"

    def __init__(
        self,
        path: str,
        rule: str,
        *,
        raw: str | bytes = "",
        public_code: str | None = None,
        public_message: str | None = None,
    ) -> None:
        self.path = path
        self.rule = rule
        self.raw = raw
        super().__init__(
            self.stated,
            f"{self.words}: {path}: {rule}",
            public_code=public_code,
            public_message=public_message,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        again = partial(
            type(self),
            raw=self.raw,
            public_code=self.public_code,
            public_message=self.public_message,
        )
        return again, (self.path, self.rule)


class OutputInvalid(OutputError):
    """A model's output does not have the form that was asked for."""

    code = "output_invalid"
    words = "the model's output does not have the form that was asked for"


class OutputTruncated(OutputError):
    """A model's output ends too early."""

    code = "output_truncated"
    stated = Kind.TRUNCATED_OUTPUT
    words = "the model's output ends too early"


class OutputRefused(OutputError):
    """The model, or a guard behind it, refused to answer."""

    code = "output_refused"
    stated = Kind.CONTENT_REFUSED
    words = "the model refused to answer"


class AnswerError(PerdureError):
    """A stage has an answer that it cannot use judged like an exception: ``raise AnswerError(answer)``.

    ``answer`` is a response, a model's answer or its parsed body: an HTTP 200 with an error in it, an
    answer that was cut off, refused or has no finish reason.
    """

    code = "answer_error"

    def __init__(self, answer: object, message: str = "the answer cannot be used") -> None:
        self.answer = answer
        super().__init__(message)


class BugError(PerdureError):
    """Perdure broke one of its own rules; please report it."""

    code = "bug"
    exit_code = 70
