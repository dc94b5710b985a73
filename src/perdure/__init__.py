"""Perdure runs unreliable AI work to the end.

Everything is loaded when a name is first used, and not before: `perdure --version` needs none of it.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from perdure.app import App, Called, JobRef, JsonFormatter, Pipeline
    from perdure.app.dead_letters import DeadLetters, Redrive
    from perdure.app.job_refs import HistoryLine
    from perdure.app.runs import Result, Run
    from perdure.app.session.settings import Alias, Settings, load_settings
    from perdure.app.surface.error_meaning import ErrorMeaning, meaning_of
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
    from perdure.model.views import AttemptView, CaptureView, DeadGroup, JobView, Stats
    from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
    from perdure.rules.gate.gate import GateSettings, basic_gate
    from perdure.rules.gate.pace_settings import PaceSettings
    from perdure.rules.gate.window import WindowSettings
    from perdure.rules.matchers import Match
    from perdure.rules.policy import Action, HintMode, Hints, Policy, Profile, Rule, Scope
    from perdure.rules.vocabulary import Vocabulary
    from perdure.setting_values import Setting
else:  # a type checker that saw this would take every name for one of ours

    def __getattr__(name: str) -> object:
        """A public name, from where it lives."""
        if name not in _HOMES:
            raise AttributeError(f"module 'perdure' has no attribute {name!r}")
        from importlib import import_module

        # Presets make themselves known to policies when they are loaded, and that is with the App.
        import_module("perdure.app.app")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        """What is here, and what will be when it is asked for."""
        return sorted({*globals(), *__all__})


__version__ = "0.1.0"

__all__ = [
    "Action",
    "Alias",
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
    "ErrorMeaning",
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
    "JsonFormatter",
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
    "Setting",
    "Settings",
    "Snooze",
    "Spread",
    "StageError",
    "State",
    "Stats",
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
    "load_settings",
    "meaning_of",
]

# Where each name of __all__ lives, as the imports above have it for type checkers; a test compares the two.
_NAMES = {
    "perdure.app": "App Called JobRef JsonFormatter Pipeline",
    "perdure.app.dead_letters": "DeadLetters Redrive",
    "perdure.app.job_refs": "HistoryLine",
    "perdure.app.runs": "Result Run",
    "perdure.app.session.settings": "Alias Settings load_settings",
    "perdure.app.surface.error_meaning": "ErrorMeaning meaning_of",
    "perdure.engine.attempt.context": "Context",
    "perdure.engine.batch.report": "Report",
    "perdure.engine.enqueue": "Item",
    "perdure.engine.operate.feed_listeners": "Listener",
    "perdure.model.changes": "Change ChangeKind ChangePage",
    "perdure.model.errors": (
        "AnswerError AppNotFound BugError CallerError ConfigError CursorTooOld "
        "JobFailed JobUnfinished NoResult NotCancellable NotChangeable NotCompletable "
        "NotRetriable OutputError OutputInvalid OutputRefused OutputTruncated "
        "PayloadRefused PerdureError RunAborted RunUnfinished SchemaMismatch "
        "StageError StoreBusy StoreDamaged StoreDenied StoreError StoreFull "
        "StoreReadOnly StoreUnavailable UnknownName WorkerDead"
    ),
    "perdure.model.events": "Event EventName",
    "perdure.model.kinds": "Kind",
    "perdure.model.runs": "RunStatus RunView",
    "perdure.model.signals": "Cancel Snooze Succeeded",
    "perdure.model.states": "FailedReason State",
    "perdure.model.views": "AttemptView CaptureView DeadGroup JobView Stats",
    "perdure.rules.backoff": "Backoff Curve Jitter Spread",
    "perdure.rules.gate.gate": "GateSettings basic_gate",
    "perdure.rules.gate.pace_settings": "PaceSettings",
    "perdure.rules.gate.window": "WindowSettings",
    "perdure.rules.matchers": "Match",
    "perdure.rules.policy": "Action HintMode Hints Policy Profile Rule Scope",
    "perdure.rules.vocabulary": "Vocabulary",
    "perdure.setting_values": "Setting",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
