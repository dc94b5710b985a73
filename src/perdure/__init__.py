"""Perdure runs unreliable AI work to the end."""

from perdure.app import App, Called, JobRef, Pipeline
from perdure.app.dead_letters import DeadLetters, Redrive
from perdure.app.job_refs import HistoryLine
from perdure.app.runs import Result, Run
from perdure.engine.attempt.context import Context
from perdure.engine.batch.report import Report
from perdure.engine.enqueue import Item
from perdure.engine.operate.feed_listeners import Listener
from perdure.model.changes import Change, ChangeKind, ChangePage
from perdure.model.errors import (
    AnswerError,
    AppNotFound,
    BugError,
    CallerError,
    ConfigError,
    CursorTooOld,
    JobFailed,
    JobUnfinished,
    NoResult,
    NotCancellable,
    NotChangeable,
    NotCompletable,
    NotRetriable,
    OutputError,
    OutputInvalid,
    OutputRefused,
    OutputTruncated,
    PayloadRefused,
    PerdureError,
    RunAborted,
    RunUnfinished,
    SchemaMismatch,
    StageError,
    StoreBusy,
    StoreDamaged,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownName,
    WorkerDead,
)
from perdure.model.events import Event, EventName
from perdure.model.kinds import Kind
from perdure.model.runs import RunStatus, RunView
from perdure.model.signals import Cancel, Snooze, Succeeded
from perdure.model.states import FailedReason, State
from perdure.model.views import AttemptView, CaptureView, DeadGroup, JobView
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.gate.gate import GateSettings, basic_gate
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.gate.window import WindowSettings
from perdure.rules.matchers import Match
from perdure.rules.policy import Action, HintMode, Hints, Policy, Profile, Rule, Scope
from perdure.rules.vocabulary import Vocabulary

__version__ = "0.1.0"

__all__ = [
    "Action",
    "AnswerError",
    "App",
    "AppNotFound",
    "AttemptView",
    "Backoff",
    "BugError",
    "Called",
    "CallerError",
    "Cancel",
    "CaptureView",
    "Change",
    "ChangeKind",
    "ChangePage",
    "ConfigError",
    "Context",
    "CursorTooOld",
    "Curve",
    "DeadGroup",
    "DeadLetters",
    "Event",
    "EventName",
    "FailedReason",
    "GateSettings",
    "HintMode",
    "Hints",
    "HistoryLine",
    "Item",
    "Jitter",
    "JobFailed",
    "JobRef",
    "JobUnfinished",
    "JobView",
    "Kind",
    "Listener",
    "Match",
    "NoResult",
    "NotCancellable",
    "NotChangeable",
    "NotCompletable",
    "NotRetriable",
    "OutputError",
    "OutputInvalid",
    "OutputRefused",
    "OutputTruncated",
    "PaceSettings",
    "PayloadRefused",
    "PerdureError",
    "Pipeline",
    "Policy",
    "Profile",
    "Redrive",
    "Report",
    "Result",
    "Rule",
    "Run",
    "RunAborted",
    "RunStatus",
    "RunUnfinished",
    "RunView",
    "SchemaMismatch",
    "Scope",
    "Snooze",
    "Spread",
    "StageError",
    "State",
    "StoreBusy",
    "StoreDamaged",
    "StoreDenied",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "Succeeded",
    "UnknownName",
    "Vocabulary",
    "WindowSettings",
    "WorkerDead",
    "basic_gate",
]
