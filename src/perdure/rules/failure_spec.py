"""A failure described in words, as `perdure policy explain` takes it.

``http:STATUS``, ``kind:NAME``, ``code:PUBLIC_CODE`` of the policy's vocabulary, ``exception:Name``,
``sqlstate:CODE``, ``s3:CODE``, or ``lost``; with headers and a body, as the server might send them.
"""

from datetime import datetime

from msgspec import Struct

from perdure.model.errors import CallerError, UnknownName
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import Death, Evidence, Lost, Raised
from perdure.model.verdicts import Failure
from perdure.rules.classify import classify
from perdure.rules.error_bodies import read_body
from perdure.rules.explain_names import evidence_for_name, known_names, known_s3_codes
from perdure.rules.field_checks import nearest
from perdure.rules.policy import Policy

SORTS = ("http", "kind", "code", "exception", "sqlstate", "s3", "lost")


class DescribedFailure(Struct, frozen=True):
    """What was asked about."""

    spec: str
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None


def failure_of(
    asked: DescribedFailure, policy: Policy, now: datetime
) -> tuple[Failure, str | None]:
    """The failure that the words describe, and the public code it was asked by."""
    sort, colon, word = asked.spec.partition(":")
    if sort == "lost" and not colon:
        return _classify(Lost(Death("silent")), policy, now), None
    if sort not in SORTS or sort == "lost" or not word:
        raise CallerError(
            f"--error {asked.spec!r} is not understood; {_suggestion(asked.spec, policy)}; "
            "write http:STATUS, kind:NAME, code:CODE, exception:NAME, sqlstate:CODE, s3:CODE or lost"
        )
    evidence = _with_answer(_evidence(sort, word, policy), asked)
    public = policy.vocabulary.internal.get(word, word)
    return _classify(Raised(evidence), policy, now), public if sort == "code" else None


def _evidence(sort: str, word: str, policy: Policy) -> Evidence:
    match sort:
        case "http":
            return Evidence(status=_status(word))
        case "kind":
            return Evidence(kind=_kind(word))
        case "code":
            kind = policy.vocabulary.kind_of(word)
            if kind is None:
                known = policy.vocabulary.kinds
                meant = f"did you mean http:{word}?" if _is_status(word) else nearest(word, known)
                raise UnknownName(f"no code {word!r} in this policy; {meant}")
            status = policy.vocabulary.status_of(word)
            return Evidence(kind=kind) if status is None else Evidence(status=status)
        case "exception":
            found = evidence_for_name(word)
            listed = policy.retriable if isinstance(policy.retriable, tuple) else ()
            own = (*listed, *(one.name for one in policy.matches))
            if found is None and (word in own or _is_elsewhere(word)):  # judged by name
                return Evidence(names=(word,))
            if found is None and "." in word:
                close = _close(word, known_names())
                raise UnknownName(
                    f"no exception {word!r} is known; {close} Else it is kind:unknown"
                )
            if found is None:
                close = _close(word, known_names())
                raise UnknownName(
                    f"no exception {word!r} is known; {close} Your own: exception:module.{word}"
                )
            return found
        case "sqlstate":
            if len(word) != 5 or not word.isascii() or not word.isalnum():
                raise CallerError(f"sqlstate {word!r} must have five letters or digits, as 40001")
            return Evidence(sqlstate=word.upper())
        case _:
            return _s3(word)


def _s3(word: str) -> Evidence:
    known = known_s3_codes()
    if word not in known:
        raise UnknownName(f"no S3 code {word!r} is known; {_close(word, known)}")
    return Evidence(names=("botocore.exceptions.ClientError",), codes=(word,))


def _status(word: str) -> int:
    if not _is_status(word):
        raise CallerError(f"http:{word} is not an HTTP status; write a number from 100 to 599")
    return int(word)


def _is_status(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) == 3 and 100 <= int(word) <= 599


def _suggestion(spec: str, policy: Policy) -> str:
    """What to write in place of a bare word; else the sorts that there are."""
    word = spec.partition(":")[2] if spec.startswith(("status:", "error:")) else spec
    if _is_status(word):
        return f"did you mean http:{word}?"
    if word in tuple(Kind):
        return f"did you mean kind:{word}?"
    if policy.vocabulary.kind_of(word) is not None:
        return f"did you mean code:{word}?"
    if evidence_for_name(word) is not None:
        return f"did you mean exception:{word}?"
    return nearest(spec.partition(":")[0], SORTS)


def _kind(word: str) -> Kind:
    try:
        return Kind(word)
    except ValueError:
        names = {kind.value: kind for kind in Kind}
        raise UnknownName(f"no failure kind {word!r}; {nearest(word, names)}") from None


def _is_elsewhere(word: str) -> bool:
    """Whether it is qualified, and of a package of which we know no exception: somebody's own."""
    package = f"{word.partition('.')[0]}."
    return package in word and not any(name.startswith(package) for name in known_names())


def _close(word: str, known: tuple[str, ...]) -> str:
    # The whole list would fill the screen.
    return nearest(word, known, alike_min=0.0).partition(" One of:")[0]


def _with_answer(evidence: Evidence, asked: DescribedFailure) -> Evidence:
    with_headers = replace(evidence, headers=asked.headers)
    if asked.body is None:
        return with_headers
    read = read_body(asked.body)
    return replace(
        with_headers,
        codes=with_headers.codes + read.codes,
        facts=read.facts,
        message=read.message,
        status=_meant_status(with_headers.status, read.status),
    )


def _meant_status(status: int | None, in_body: int | None) -> int | None:
    """An answer that says 200 and holds an error means the error."""
    return in_body if in_body is not None and (status is None or status < 400) else status


def _classify(outcome: Raised | Lost, policy: Policy, now: datetime) -> Failure:
    verdict = classify(outcome, now=now, matches=policy.matches, vocabulary=policy.vocabulary)
    if not isinstance(verdict, Failure):  # pragma: no cover
        raise CallerError("that is no failure")
    return verdict
