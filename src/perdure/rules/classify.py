"""classify: what an outcome means. Pure and total.

Evidence is read in order of how much it can be trusted: what the stage said itself, then the HTTP
status, then the exception's class by name, then the operating system's number. The first
matcher that knows an answer wins; what none of them knows is ``unknown``, and says so.
"""

from collections.abc import Callable
from typing import assert_never

from perdure.model.kinds import Kind
from perdure.model.outcomes import (
    Evidence,
    Interrupted,
    Lost,
    Outcome,
    Raised,
    Returned,
    Revoked,
    Snoozed,
    TimedOut,
    Withdrawn,
)
from perdure.model.verdicts import Failure, Handback, Pause, Stop, Success, Verdict
from perdure.rules.evidence import one_line
from perdure.rules.hints import wait_hint_s
from perdure.rules.matchers.http import http_status
from perdure.rules.matchers.python import python_class, python_errno

Matcher = Callable[[Evidence], Kind | None]


def stated(evidence: Evidence) -> Kind | None:
    """The kind that the stage itself named."""
    return evidence.kind


MATCHERS: tuple[tuple[str, Matcher], ...] = (
    ("stated by the stage", stated),
    ("http status", http_status),
    ("python class", python_class),
    ("errno", python_errno),
)


def classify(outcome: Outcome) -> Verdict:
    """What the outcome means."""
    match outcome:
        case Returned(value_json, label):
            return Success(value_json, label)
        case Raised(evidence):
            return judge(evidence)
        case TimedOut(timeout_s):
            return Failure(Kind.TIMEOUT, "stage timeout", f"no end within {timeout_s:g} s")
        case Lost(death):
            return Failure(Kind.WORKER_LOST, "worker lost", f"the worker {death.in_words()}")
        case Snoozed(wait_s, reason):
            return Pause(wait_s, one_line(reason))
        case Withdrawn(reason) | Revoked(reason):
            return Stop(one_line(reason))
        case Interrupted(reason):
            return Handback(one_line(reason))
        case _:  # pragma: no cover
            assert_never(outcome)


def judge(evidence: Evidence) -> Failure:
    """The kind of a raised failure, and which matcher knew it."""
    for rule, matcher in MATCHERS:
        kind = matcher(evidence)
        if kind is not None:
            return Failure(kind, rule, evidence.message, wait_hint_s(evidence))
    return Failure(Kind.UNKNOWN, "nobody knew", evidence.message, wait_hint_s(evidence))
