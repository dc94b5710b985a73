"""What a stage is called with, and what it has done, as data: alike in the worker and in a child process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from perdure.engine.attempt.context import AttemptNotes, Context
from perdure.engine.attempt.origins import origin_of, place_of
from perdure.engine.idempotency import key_for_outside
from perdure.engine.payloads import admit, decode
from perdure.engine.stage_parameters import ItemMisfit
from perdure.engine.stages import Callee
from perdure.model.errors import PayloadRefused
from perdure.model.jobs import Claim
from perdure.model.kinds import Kind
from perdure.model.limits import MESSAGE_CHARS_MAX, RESULT_BYTES_MAX
from perdure.model.nouns import replace
from perdure.model.outcomes import (
    Evidence,
    Outcome,
    Raised,
    Returned,
    Snoozed,
    Unstorable,
    Withdrawn as WithdrawnOutcome,
)
from perdure.model.signals import Cancel, Snooze, Succeeded
from perdure.rules.classify import telling_member
from perdure.rules.evidence import evidence_of
from perdure.rules.redact import cut, safe_line

T = TypeVar("T")


def perform(
    callee: Callee, claim: Claim, attempts_max: int, notes: AttemptNotes, events: asyncio.Runner
) -> Outcome:
    """Run a stage to an outcome in a child, on its main thread; never raises.

    An async one has the event loop of the child, which lives as long as that.
    """
    try:
        call = call_for(callee, claim, attempts_max, notes)
        if callee.is_async:
            return events.run(_await_result(callee, call, notes))
        return outcome_of(call())
    except ItemMisfit as misfit:
        return unfit(misfit, claim)
    except BaseException as error:  # a stage may do anything
        return raised_outcome(error, notes=notes, home=callee.home)
    finally:
        notes.end()


async def _await_result(callee: Callee, call: Callable[[], Any], notes: AttemptNotes) -> Outcome:
    try:
        return outcome_of(await call())
    except BaseException as error:  # what ends an interpreter would end the loop, too
        return raised_outcome(error, notes=notes, home=callee.home)


def try_call(call: Callable[[], T]) -> T | Raised:
    """What somebody's code gives, or what it has raised."""
    try:
        return call()
    except BaseException as error:  # a module may do anything while it is imported
        return raised_outcome(error)


def raised_outcome(
    error: BaseException, *, notes: AttemptNotes | None = None, home: str = ""
) -> Raised:
    """An exception as an outcome; the output that it is about goes to the attempt's notes.

    ``home`` is the package of the stage that let it escape. Of a group, one member speaks for all.
    """
    try:
        told = telling_member(error)
        if notes is not None:
            with suppress(Exception):  # as below; and it is the failure that counts
                notes.keep_failed_output(error, about=told)
        evidence = evidence_of(told)
        origin, where = origin_of(told, evidence, home), place_of(told, home)
        message = evidence.message if told is error else f"in a group: {evidence.message}"
        message = cut(message, MESSAGE_CHARS_MAX)
        return Raised(replace(evidence, origin=origin, where=where, message=message))
    except Exception:  # an exception's own text and attributes are somebody's code, too
        kind = type(error)
        return Raised(Evidence((f"{kind.__module__}.{kind.__qualname__}",), "(cannot be read)"))


def unfit(misfit: ItemMisfit, claim: Claim) -> Raised:
    """The outcome of an input that does not fit the stage: running it again would not mend it."""
    rule = safe_line(misfit.rule)
    message = f"the input of stage {claim.stage!r} does not fit: {misfit.path}: {rule}"
    facts = (("path", safe_line(misfit.path)), ("rule", rule))
    names = ("perdure.InputMisfit",)
    return Raised(Evidence(names, message, facts=facts, kind=Kind.INPUT_INVALID))


def call_for(
    callee: Callee, claim: Claim, attempts_max: int, notes: AttemptNotes
) -> Callable[[], Any]:
    """The call of the stage, with the item and perhaps a Context; `ItemMisfit` when its input does not fit."""
    item, parameter = callee.shape.read(claim.input_json), callee.context
    if parameter is None:
        return partial(callee.call, item)
    context = context_for(claim, attempts_max, notes)
    if parameter.kind is parameter.POSITIONAL_ONLY:
        return partial(callee.call, item, context)
    return partial(callee.call, item, **{parameter.name: context})


def context_for(claim: Claim, attempts_max: int, notes: AttemptNotes) -> Context:
    """What a stage with so many attempts may know."""
    failed = claim.counters.failures
    return Context(
        job_id=claim.id,
        pipeline=claim.pipeline,
        stage=claim.stage,
        owner=claim.owner,
        item=decode(claim.payload_json),
        attempt=claim.counters.starts,
        attempts_left=max(0, attempts_max - failed - 1),
        token=claim.token,
        idempotency_key=key_for_outside(claim),
        deadline_at=claim.deadline_at,
        request_id=claim.request_id,
        attempt_id=f"{claim.id}:{claim.token}",
        _notes=notes,
    )


def outcome_of(value: Any) -> Outcome:
    """What a stage has returned, as an outcome; the value is checked as every payload is."""
    match value:
        case Snooze(wait_s, reason):
            return Snoozed(float(wait_s), reason)
        case Cancel(reason):
            return WithdrawnOutcome(reason)
        case Succeeded(result, label):
            return _storable_outcome(result, label)
        case result:
            return _storable_outcome(result)


def _storable_outcome(result: Any, label: str | None = None) -> Returned | Unstorable:
    try:
        return Returned(admit(result, what="the result", bytes_max=RESULT_BYTES_MAX), label)
    except PayloadRefused as refused:
        return Unstorable(safe_line(str(refused)))
