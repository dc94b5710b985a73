"""classify: what an outcome means. Pure and total.

Evidence is read in order of how much it can be trusted; the first that knows an answer wins:

1. what the stage said itself;
2. the user's own matches, and the upstream's own codes where the policy's vocabulary is the one that the
   upstream speaks; a match that looks at the status alone comes after such a code;
3. conditions where a code alone would mislead (`traps` in the families);
4. machine codes;
5. vendors' classes, by name;
6. SQLSTATE;
7. the HTTP status, and for a bad request the reason in its prose;
8. codes that say no more than a status; why a model stopped;
9. the classes of transports, parsers and Python, by name; the operating system's number;
10. the class of the cause;
11. words.

What none of them knows is ``unknown``, and says so. The server's own verdict goes above all that was
found from 3 on: if it says to try again, a failure that would be final becomes an error of the upstream.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import assert_never

from perdure.model.kinds import KINDS, FailureClass, Kind
from perdure.model.outcomes import (
    Evidence,
    Interrupted,
    Lost,
    Outcome,
    Raised,
    Returned,
    Revoked,
    Snoozed,
    StageDeath,
    TimedOut,
    Unbegun,
    Unstorable,
    Withdrawn,
)
from perdure.model.verdicts import Failure, Handback, Overdue, Pause, Stop, Success, Verdict
from perdure.rules.evidence import evidence_of
from perdure.rules.foreign_code import answer_of, short_text
from perdure.rules.hints.wait_hints import server_verdict, wait_hint
from perdure.rules.matchers import Match
from perdure.rules.matchers.families import (
    cause_class,
    plain_class,
    strong_code,
    trap,
    vendor_class,
    weak_code,
)
from perdure.rules.matchers.family import Found
from perdure.rules.matchers.http import http_status, kind_of_status
from perdure.rules.matchers.output import finish
from perdure.rules.matchers.postgres import sqlstate
from perdure.rules.matchers.python import system_error
from perdure.rules.matchers.text import status_in_words, words
from perdure.rules.redact import safe_line
from perdure.rules.vocabulary import KIND_NAMES, Vocabulary


def _text_status(evidence: Evidence) -> Found | None:
    status = status_in_words(evidence)
    kind = kind_of_status(status)
    return None if kind is None else (kind, f"text status {status}")


MATCHERS: tuple[Callable[[Evidence], Found | None], ...] = (
    trap,
    strong_code,
    vendor_class,
    sqlstate,
    http_status,
    weak_code,
    finish,
    plain_class,
    system_error,
    cause_class,
    _text_status,
    words,
)


_MEMBERS_MAX = 100  # of a group, looked at
_NO_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)  # hints are not asked for
_WORST_FIRST = (FailureClass.FINAL, FailureClass.RETRYABLE, FailureClass.RATE_LIMITED)


def classify(
    outcome: Outcome,
    *,
    now: datetime,
    matches: tuple[Match, ...] = (),
    vocabulary: Vocabulary = KIND_NAMES,
) -> Verdict:
    """What the outcome means; ``now`` is compared with moments that a server names."""
    match outcome:
        case Raised():
            return classify_evidence(
                outcome.evidence, now=now, matches=matches, vocabulary=vocabulary
            )
        case Returned(value_json, label):
            return Success(value_json, label)
        case Unstorable(reason):
            return Failure(Kind.INTERNAL, "result cannot be stored", reason, final=True)
        case TimedOut(timeout_s):
            return Failure(Kind.TIMEOUT, "stage timeout", f"no end within {timeout_s:g} s")
        case Lost(death):
            apart = isinstance(death, StageDeath)
            rule = "stage process lost" if apart else "worker lost"
            detail = f"{death.subject} {death.in_words()}"
            return Failure(Kind.WORKER_LOST, rule, detail, apart=apart)
        case Snoozed(wait_s, reason):
            return Pause(wait_s, safe_line(reason))
        case Withdrawn(reason) | Revoked(reason):
            return Stop(safe_line(reason))
        case Unbegun():
            return Overdue()
        case Interrupted(reason):
            return Handback(safe_line(reason))
        case _:  # pragma: no cover
            assert_never(outcome)


def classify_evidence(
    evidence: Evidence,
    *,
    now: datetime,
    matches: tuple[Match, ...] = (),
    vocabulary: Vocabulary = KIND_NAMES,
) -> Failure:
    """The kind of a raised failure, what it was known by, and what the server asks for."""
    says = server_verdict(evidence) if evidence.headers or evidence.facts else None
    spoken = _find_upstream_code(evidence, vocabulary)
    broken: list[str] = []
    said = _find_stated(evidence, matches, broken, by_code=spoken is not None)
    kind, rule = said or spoken or _find_kind(evidence, says)
    hint = wait_hint(evidence, now)
    return Failure(
        kind=kind,
        rule=rule + "".join(broken[:1]),
        detail=evidence.message,
        hint_s=None if hint is None else hint.seconds,
        server_says=says,
        status=evidence.status,
        names=evidence.names,
        by_code=said is None and spoken is not None,
        origin=evidence.origin,
    )


def telling_member(error: BaseException) -> BaseException:
    """What speaks for a group that a stage let escape: its worst member, the first of them; else the error itself.

    A final failure is worse than one that may pass, and that worse than a rate limit: what a retry cannot mend is not
    hidden by what it can. A policy's own matches and codes are not asked. A class of somebody's own that is a group
    speaks for itself.
    """
    members = list(islice(_members(error), _MEMBERS_MAX))
    return members[0] if len(members) == 1 else min(members, key=_badness)


def _members(error: BaseException) -> Iterator[BaseException]:
    if type(error) not in (ExceptionGroup, BaseExceptionGroup):
        yield error
        return
    for one in error.exceptions:  # type: ignore[attr-defined]
        yield from _members(one)


def _badness(error: BaseException) -> int:
    kind = classify_evidence(evidence_of(error), now=_NO_MOMENT).kind
    return _WORST_FIRST.index(KINDS[kind].failure_class)


def _find_upstream_code(evidence: Evidence, vocabulary: Vocabulary) -> Found | None:
    """What the upstream's own code said: the error's first, then the finer ones inside and around it."""
    own = evidence.fact("code")
    spoken = vocabulary.meaning_of(evidence.codes if own is None else (own, *evidence.codes))
    return None if spoken is None else (spoken[0], f"{vocabulary.name} code {spoken[1]}")


def _find_stated(
    evidence: Evidence, matches: tuple[Match, ...], broken: list[str], *, by_code: bool
) -> Found | None:
    """What the stage or the user said; a known code of the upstream says more than a status."""
    if evidence.kind is not None:
        return evidence.kind, "stated by the stage"
    for number, one in enumerate(matches, start=1):
        # A class of the user's own may raise anything.
        answer = answer_of(lambda: one.fits(evidence) and not (by_code and one.is_by_status_alone))  # noqa: B023
        if isinstance(answer, BaseException):
            broken.append(f"; match {number} of the policy raised {safe_line(short_text(answer))}")
        elif answer:
            return one.kind, f"match {number} of the policy"
    return None


def _find_kind(evidence: Evidence, says: bool | None) -> Found:
    for matcher in MATCHERS:
        found = matcher(evidence)
        if found is not None:
            kind, rule = found
            if says is True and KINDS[kind].failure_class is FailureClass.FINAL:
                return Kind.UPSTREAM_ERROR, f"the server says retry ({rule})"
            return found
    return Kind.UNKNOWN, "nobody knew"
