"""decide: what to do about a verdict, and why. Pure and total.

The counter of the event is raised first, then compared with its limit. The answer is a *delay*,
never a time: the store adds it to its own clock. ``now`` is only compared with the job's deadline.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from perdure.model.decisions import Cancel, Counted, Decision, Fail, Release, Retry, Succeed, Why
from perdure.model.jobs import ZERO, Counters
from perdure.model.kinds import KINDS, Kind
from perdure.model.limits import DELAY_S_MAX
from perdure.model.states import FailedReason
from perdure.model.verdicts import Failure, Handback, Pause, Stop, Success, Verdict
from perdure.rules.backoff import base_delay_s, jittered_s
from perdure.rules.policy import Action, HintMode, Policy, Rule, Scope


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands: counters of its stage, sums of its earlier stages, its deadline."""

    counters: Counters = ZERO
    past: Counters = ZERO
    deadline_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class GateView:
    """What the upstream's gate looks like from here."""

    state: str = "flowing"
    probe: bool = False


FLOWING = GateView()


@dataclass(frozen=True, slots=True)
class _Delay:
    total_s: float
    base_s: float | None = None
    jitter_s: float | None = None
    hint_s: float | None = None


def decide(
    standing: Standing,
    verdict: Verdict,
    policy: Policy,
    gate: GateView,
    now: datetime,
    chance: float,
) -> Decision:
    """What to do now; ``chance`` is uniform in [0, 1)."""
    match verdict:
        case Success(value_json, label):
            return Succeed(value_json, label, Why("done", "success", policy.label))
        case Failure():
            decision = _failed(standing, verdict, policy, gate, chance)
        case Pause(wait_s, reason):
            decision = _paused(standing, wait_s, reason, policy)
        case Stop(reason):
            return Cancel(Why(_because("cancelled", reason), "cancel", policy.label))
        case Handback(reason):
            text = _because("given back unfinished", reason) + "; nothing counted"
            return Release(Why(text, "release", policy.label))
        case _:  # pragma: no cover
            assert_never(verdict)
    return _before_deadline(decision, standing, policy, now)


def _failed(
    standing: Standing, failure: Failure, policy: Policy, gate: GateView, chance: float
) -> Retry | Fail:
    if failure.kind is Kind.WORKER_LOST:
        return _crashed(standing, failure, policy)
    rule = policy.rule(failure.kind)
    if rule.action is Action.FAIL:
        words = f"fail: {_words(failure)}; this kind is not retried"
        why = Why(words, failure.rule, policy.label, hint_s=failure.hint_s, gate=gate.state)
        return Fail(FailedReason.FATAL, Counted.FAILURES, failure.kind, why)
    heeded = (rule.hint or policy.hint) is not HintMode.IGNORE
    if heeded and failure.hint_s is not None and failure.hint_s > policy.hint_s_max:
        return _hint_too_long(failure, policy)
    if rule.action is Action.WAIT:
        return _waiting(standing, failure, policy, rule, chance)
    return _retrying(standing, failure, policy, rule, chance)


def _retrying(
    standing: Standing, failure: Failure, policy: Policy, rule: Rule, chance: float
) -> Retry | Fail:
    failures = _seen(standing, policy).failures + 1
    attempts_max = rule.attempts_max or policy.attempts_max
    if failures >= attempts_max:
        words = f"fail: {_words(failure)}; {_last(failures, attempts_max)}"
        why = Why(words, failure.rule, policy.label, hint_s=failure.hint_s)
        return Fail(FailedReason.EXHAUSTED, Counted.FAILURES, failure.kind, why)
    delay = _delay(policy, rule, failures, failure.hint_s, chance)
    words = (
        f"retry in {_seconds(delay.total_s)}: {_words(failure)}{_asked(delay)}; "
        f"attempt {failures} of {attempts_max} failed"
    )
    return Retry(delay.total_s, Counted.FAILURES, failure.kind, _why(words, failure, policy, delay))


def _waiting(
    standing: Standing, failure: Failure, policy: Policy, rule: Rule, chance: float
) -> Retry | Fail:
    seen = _seen(standing, policy)
    waits = seen.waits + 1
    delay = _delay(policy, rule, waits, failure.hint_s, chance)
    if waits > policy.waits_max or seen.waited_s + delay.total_s > policy.wait_s_max:
        words = (
            f"fail: {_words(failure)}; waited {seen.waits} times and "
            f"{_seconds(seen.waited_s)} in all, the policy allows {policy.waits_max} times "
            f"and {_seconds(policy.wait_s_max)}"
        )
        why = Why(words, failure.rule, policy.label, hint_s=failure.hint_s)
        return Fail(FailedReason.EXHAUSTED, Counted.WAITS, failure.kind, why)
    words = (
        f"retry in {_seconds(delay.total_s)}: {_words(failure)}{_asked(delay)}; "
        f"attempt not counted, wait {waits} of {policy.waits_max}"
    )
    return Retry(delay.total_s, Counted.WAITS, failure.kind, _why(words, failure, policy, delay))


def _crashed(standing: Standing, failure: Failure, policy: Policy) -> Retry | Fail:
    seen = _seen(standing, policy)
    crashes = seen.crashes + 1
    if crashes >= policy.crashes_max:
        words = f"fail: {failure.detail}, crash {crashes} of {policy.crashes_max} was the last"
        why = Why(words, failure.rule, policy.label)
        return Fail(FailedReason.CRASHED, Counted.CRASHES, failure.kind, why)
    if policy.crash_is_failure and seen.failures + 1 >= policy.attempts_max:
        words = (
            f"fail: {failure.detail}; a crash is a failure here, and "
            f"attempt {seen.failures + 1} of {policy.attempts_max} was the last"
        )
        why = Why(words, failure.rule, policy.label)
        return Fail(FailedReason.EXHAUSTED, Counted.CRASHES, failure.kind, why)
    where = "beside other suspects" if crashes == 1 else "alone in a process of its own"
    words = (
        f"retry at once: {failure.detail}, crash {crashes} of {policy.crashes_max}; "
        f"it will run {where}"
    )
    return Retry(0.0, Counted.CRASHES, failure.kind, Why(words, failure.rule, policy.label))


def _paused(standing: Standing, wait_s: float, reason: str, policy: Policy) -> Retry | Fail:
    snoozes = standing.counters.snoozes + 1
    if snoozes > policy.snoozes_max:
        words = f"fail: the stage snoozed more than {policy.snoozes_max} times"
        why = Why(words, "snooze", policy.label)
        return Fail(FailedReason.EXHAUSTED, Counted.SNOOZES, Kind.INTERNAL, why)
    delay_s = min(wait_s, DELAY_S_MAX) if wait_s > 0 else 0.0  # NaN is not greater
    words = _because(f"again in {_seconds(delay_s)}: the stage asked for it", reason)
    return Retry(delay_s, Counted.SNOOZES, None, Why(words, "snooze", policy.label))


def _hint_too_long(failure: Failure, policy: Policy) -> Fail:
    words = (
        f"fail: {_words(failure)}; the server asked for {_seconds(failure.hint_s or 0.0)}, "
        f"more than the {_seconds(policy.hint_s_max)} that the policy allows"
    )
    why = Why(words, failure.rule, policy.label, hint_s=failure.hint_s)
    return Fail(FailedReason.EXHAUSTED, Counted.FAILURES, failure.kind, why)


def _before_deadline(
    decision: Retry | Fail, standing: Standing, policy: Policy, now: datetime
) -> Retry | Fail:
    if isinstance(decision, Fail) or standing.deadline_at is None:
        return decision
    if now + timedelta(seconds=decision.delay_s) <= standing.deadline_at:
        return decision
    words = f"fail: the deadline would pass before the next try; otherwise: {decision.why.text}"
    why = Why(words, decision.why.rule, policy.label, hint_s=decision.why.hint_s)
    kind = decision.kind or Kind.TIMEOUT
    return Fail(FailedReason.EXPIRED, decision.counted, kind, why)


def _delay(policy: Policy, rule: Rule, n: int, hint_s: float | None, chance: float) -> _Delay:
    base_s = base_delay_s(rule.backoff or policy.backoff, n)
    drawn_s = jittered_s(rule.jitter or policy.jitter, base_s, chance)
    mode = rule.hint or policy.hint
    if hint_s is None or mode is HintMode.IGNORE:
        return _Delay(drawn_s, base_s, drawn_s - base_s)
    total_s = hint_s if mode is HintMode.EXACT else max(drawn_s, hint_s)
    return _Delay(total_s, base_s, drawn_s - base_s, hint_s)


def _seen(standing: Standing, policy: Policy) -> Counters:
    if policy.scope is Scope.JOB:
        return standing.counters.plus(standing.past)
    return standing.counters


def _why(words: str, failure: Failure, policy: Policy, delay: _Delay) -> Why:
    return Why(words, failure.rule, policy.label, delay.base_s, delay.jitter_s, failure.hint_s)


def _words(failure: Failure) -> str:
    sentence = KINDS[failure.kind].sentence.rstrip(".")
    return f"{failure.kind.value} ({sentence[0].lower()}{sentence[1:]})"


def _last(failures: int, attempts_max: int) -> str:
    if failures == attempts_max:
        return f"attempt {failures} of {attempts_max} was the last"
    return f"attempt {failures} failed, and {attempts_max} are allowed when it fails like this"


def _asked(delay: _Delay) -> str:
    return "" if delay.hint_s is None else f", the server asked for {_seconds(delay.hint_s)}"


def _seconds(value_s: float) -> str:
    return f"{value_s:.1f}".removesuffix(".0") + " s"


def _because(words: str, reason: str) -> str:
    return f"{words} ({reason})" if reason else words
