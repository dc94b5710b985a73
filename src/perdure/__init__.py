"""Perdure runs unreliable AI work to the end."""

from perdure.app import App, JobRef, Pipeline
from perdure.engine.context import Context
from perdure.model.errors import (
    CallerError,
    ConfigError,
    JobFailed,
    JobUnfinished,
    PayloadRefused,
    PerdureError,
    StageError,
    StoreError,
)
from perdure.model.signals import Cancel, Snooze, Succeeded
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.policy import Policy, Rule

__version__ = "0.1.0"

__all__ = [
    "App",
    "Backoff",
    "CallerError",
    "Cancel",
    "ConfigError",
    "Context",
    "Jitter",
    "JobFailed",
    "JobRef",
    "JobUnfinished",
    "PayloadRefused",
    "PerdureError",
    "Pipeline",
    "Policy",
    "Rule",
    "Snooze",
    "StageError",
    "StoreError",
    "Succeeded",
]
