"""decide: what to do about a verdict, and why. Pure and total.

The counter of the event is raised first, then compared with its limit. The answer is a *delay*,
never a time: the store adds it to its own clock. ``now`` is only compared with the job's deadline.

In which order a failure is judged:

1. a crash of the worker has its own counter, limit and isolation;
2. a result that cannot be stored ends it, whatever the policy says, and so does the server's own word that
   trying again is useless, unless the policy asks for all or holds the upstream for it;
3. while the upstream's gate is held, a failure that blames the upstream is a wait, and a probe's
   failure is the probe's, unless others were answered since that job first failed;
4. the kind's rule may say fail;
5. a hint longer than the policy accepts ends it and holds the upstream until a person looks;
   otherwise the kind's rule says retry, wait, hold or hand over, and a retry is a wait while the upstream
   fails many calls of everybody's;
6. a retry that the deadline would cut off is not begun.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, assert_never

from msgspec import UNSET, Struct, UnsetType

from perdure.model.decisions import (
    CancelJob,
    Counted,
    Decision,
    Fail,
    HandOver,
    Hold,
    Release,
    Retry,
    Succeed,
    Why,
)
from perdure.model.jobs import ZERO, Counters
from perdure.model.kinds import KINDS, Blame, Kind, PauseScope
from perdure.model.limits import DELAY_S_MAX
from perdure.model.nouns import replace
from perdure.model.states import FailedReason
from perdure.model.verdicts import Failure, Handback, Overdue, Pause, Stop, Success, Verdict
from perdure.rules.backoff import base_delay_s, jittered_s
from perdure.rules.foreign_code import answer_of, short_text, try_or_none
from perdure.rules.policy import Action, HintMode, Hints, Policy, Rule, Scope
from perdure.rules.redact import safe_line
from perdure.rules.rule_choice import rule_for
from perdure.rules.sentence import (
    because,
    hint_words,
    last_attempt_words,
    raiser_words,
    seconds,
    waited_words,
    words,
)


class Standing(Struct, frozen=True):
    """Where a job stands: counters of its stage, sums of its earlier stages, its deadline."""

    counters: Counters = ZERO
    past: Counters = ZERO
    deadline_at: datetime | None = None


class GateView(Struct, frozen=True):
    """What the upstream's gate looks like from here, and whether this attempt was its probe.

    Of the last ``known`` calls ``failed`` have failed; 0 of 0 where there are too few to judge by. ``of_job`` says that
    the probe's failure tells of the job: others were answered since that first failed.
    """

    state: str = "flowing"
    probe: bool = False
    failed: int = 0
    known: int = 0
    of_job: bool = False


FLOWING = GateView()

Answer = Retry | Fail | HandOver
RetryingAction = Literal[Action.RETRY, Action.WAIT, Action.HOLD, Action.HAND_OVER]


@dataclass(slots=True)
class _Case:
    """Everything that judging one failure looks at.

    ``hint_s`` is the hint where the policy listens to it; "now" is none, and leaves us our own pace.
    """

    seen: Counters
    failure: Failure
    policy: Policy
    rule: Rule
    rule_name: str
    gate: GateView
    chance: float
    hints: Hints
    hint_s: float | None


@dataclass(slots=True)
class _Delay:
    total_s: float
    base_s: float
    jitter_s: float
    note: str = ""
    hinted: bool = False


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
            decision = _decide_failure(_case(standing, verdict, policy, gate, chance))
        case Pause(wait_s, reason):
            decision = _decide_pause(standing, wait_s, reason, policy)
        case Overdue():
            text = "fail: the deadline had passed before the stage could begin; nothing was tried"
            why = Why(text, "deadline", policy.label)
            return Fail(FailedReason.EXPIRED, None, Kind.TIMEOUT, why)
        case Stop(reason):
            return CancelJob(Why(because("cancelled", reason), "cancel", policy.label))
        case Handback(reason):
            text = because("given back unfinished", reason) + "; nothing counted"
            return Release(Why(text, "release", policy.label))
        case _:  # pragma: no cover
            assert_never(verdict)
    return _before_deadline(decision, standing, now)


def _case(
    standing: Standing, failure: Failure, policy: Policy, gate: GateView, chance: float
) -> _Case:
    seen = standing.counters
    if policy.scope is Scope.JOB:
        seen = seen.plus(standing.past)
    rule, rule_name = rule_for(policy, failure)
    hints = rule.hint or policy.hint
    heard = failure.kind in hints.kinds and hints.mode is not HintMode.IGNORE
    hint_s = (failure.hint_s or None) if heard else None
    return _Case(seen, failure, policy, rule, rule_name, gate, chance, hints, hint_s)


def _decide_failure(case: _Case) -> Answer:
    scope = KINDS[case.failure.kind].scope
    if case.failure.kind is Kind.WORKER_LOST:
        return _decide_crash(case)
    if case.failure.final:
        case.rule_name = "unstorable"
        text = f"{case.failure.detail}; the next try would end the same, so no policy asks for it"
        return _fail(case, FailedReason.FATAL, text)
    heeds = case.rule.heed_server
    if heeds is None:  # what holds the upstream waits for people, and no item is to blame
        holds = case.rule.action is Action.HOLD and scope is not PauseScope.JOB
        heeds = case.policy.heed_server and not holds
    if case.failure.server_says is False and heeds:
        case.rule_name = "heed_server"
        return _fail(case, FailedReason.FATAL, "the server says that trying again is useless")
    if _is_behind_gate(case):
        return _behind_gate(case)
    if case.rule.action is Action.FAIL:
        return _fail(case, FailedReason.FATAL, "this kind is not retried")
    if case.hint_s is not None and case.hint_s > case.hints.s_max:
        case.rule_name = "hint.s_max"
        text = f"the server asked for {seconds(case.hint_s)}, more than the policy accepts"
        return _fail(case, FailedReason.EXHAUSTED, text, Hold(scope))
    if _is_weak(case):
        return _waiting(case, _hold(case), weak=True)
    return _try_again(case, case.rule.action)


def _try_again(case: _Case, action: RetryingAction) -> Answer:
    match action:
        case Action.RETRY:
            return _retrying(case)
        case Action.WAIT:
            return _waiting(case, _hold(case))
        case Action.HOLD:
            return _waiting(case, Hold(KINDS[case.failure.kind].scope, case.hint_s))
        case Action.HAND_OVER:
            return _hand_over(case, "this kind is not waited for here")
        case _:  # pragma: no cover
            assert_never(action)


def _retrying(case: _Case) -> Answer:
    if case.hint_s is not None and not case.hints.counted:
        return _waiting(case, _hold(case))
    failures, attempts_max = case.seen.failures + 1, _attempts_max(case)
    if failures >= attempts_max:
        return _decide_exhausted(case, last_attempt_words(failures, attempts_max))
    delay = _delay(case, failures)
    if case.policy.inline_s_max is not None and delay.total_s > case.policy.inline_s_max:
        return _hand_over(case, f"waiting {seconds(delay.total_s)} is too long here")
    text = f"attempt {failures} of {attempts_max} failed"
    return _retry(case, delay, Counted.FAILURES, text, _hold(case))


def _is_weak(case: _Case) -> bool:
    """Whether the upstream fails so many calls that this failure is not held against the item.

    Only as often as the policy lets it wait; after that its failures count again.
    """
    gate, policy, seen = case.gate, case.policy, case.seen
    if policy.weak_share is None or not gate.known or case.rule.action is not Action.RETRY:
        return False
    if KINDS[case.failure.kind].blame is not Blame.UPSTREAM:
        return False
    wait_s = _delay(case, 1).total_s
    left = seen.waits < policy.waits_max and seen.waited_s + wait_s <= policy.wait_s_max
    return left and gate.failed / gate.known >= policy.weak_share


def _waiting(case: _Case, hold: Hold | None, *, weak: bool = False) -> Answer:
    seen, policy = case.seen, case.policy
    waits = seen.waits + 1
    behind = case.gate.known > 0 or case.gate.state != "flowing"
    paced = policy.weak_share is not None and behind
    delay = _delay(case, 1 if paced else waits)  # the pace spares the upstream, not this one job
    if waits > policy.waits_max or seen.waited_s + delay.total_s > policy.wait_s_max:
        text = waited_words(seen.waits, seen.waited_s, policy.waits_max, policy.wait_s_max)
        return _fail(case, FailedReason.EXHAUSTED, text, counted=Counted.WAITS)
    text = f"attempt not counted, wait {waits} of {policy.waits_max}"
    if weak:
        text = f"{case.gate.failed} of the last {case.gate.known} calls that count failed: {text}"
    return _retry(case, delay, Counted.WAITS, text, hold)


def _decide_crash(case: _Case) -> Answer:
    policy = case.policy
    crashes, failures = case.seen.crashes + 1, case.seen.failures + 1
    if policy.crash_is_failure and failures >= policy.attempts_max:
        text = (
            f"fail: {case.failure.detail}; a crash counts as a failure here, and attempt "
            f"{failures} of {policy.attempts_max} was the last"
        )
        return Fail(FailedReason.EXHAUSTED, Counted.CRASHES, Kind.WORKER_LOST, _why(case, text))
    if crashes >= policy.crashes_max:
        text = f"fail: {case.failure.detail}, crash {crashes} of {policy.crashes_max} was the last"
        return Fail(FailedReason.CRASHED, Counted.CRASHES, Kind.WORKER_LOST, _why(case, text))
    where = "beside other suspects" if crashes == 1 else "alone in a process of its own"
    if case.failure.apart:
        where = "in a new process"
    tail = f"{case.failure.detail}, crash {crashes} of {policy.crashes_max}; it will run {where}"
    if not policy.crash_is_failure:
        why = _why(case, f"retry at once: {tail}")
        return Retry(0.0, Counted.CRASHES, Kind.WORKER_LOST, why, None, policy.attempts_max)
    delay = _delay(case, failures)
    why = _why(
        case, f"retry in {seconds(delay.total_s)}: {tail}; counted as a failure{delay.note}", delay
    )
    return Retry(delay.total_s, Counted.CRASHES, Kind.WORKER_LOST, why, None, policy.attempts_max)


def _is_behind_gate(case: _Case) -> bool:
    held = case.gate.state != "flowing" and not case.gate.of_job
    return held and KINDS[case.failure.kind].blame is Blame.UPSTREAM


def _behind_gate(case: _Case) -> Answer:
    if case.gate.probe:
        why = _why(case, f"back to the queue: {words(case.failure)}; it was the gate's probe")
        attempts_max = _attempts_max(case)
        return Retry(0.0, Counted.PROBES, case.failure.kind, why, _hold(case), attempts_max)
    return _waiting(case, _hold(case))


def _decide_pause(standing: Standing, wait_s: float, reason: str, policy: Policy) -> Retry | Fail:
    snoozes = standing.counters.snoozes + 1
    if snoozes > policy.snoozes_max:
        text = f"fail: the stage snoozed more than {policy.snoozes_max} times"
        why = Why(text, "snooze", policy.label)
        return Fail(FailedReason.EXHAUSTED, Counted.SNOOZES, Kind.INTERNAL, why)
    delay_s = min(wait_s, DELAY_S_MAX) if wait_s > 0 else 0.0
    text = because(f"again in {seconds(delay_s)}: the stage asked for it", reason)
    why = Why(text, "snooze", policy.label)
    return Retry(delay_s, Counted.SNOOZES, None, why, None, policy.attempts_max)


def _before_deadline(decision: Answer, standing: Standing, now: datetime) -> Answer:
    deadline_at = standing.deadline_at
    if deadline_at is None:
        return decision
    passed = f"the deadline passed at {deadline_at:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(decision, Fail) and decision.kind is Kind.TIMEOUT and now >= deadline_at:
        return replace(decision, why=decision.why.with_text(lambda text: f"{text}; {passed}"))
    if not isinstance(decision, Retry) or now + timedelta(seconds=decision.delay_s) <= deadline_at:
        return decision
    what = passed if now >= deadline_at else "the deadline would pass before the next try"
    kind = decision.kind or Kind.TIMEOUT
    why = decision.why.with_text(lambda text: f"fail: {what}; otherwise: {text}")
    return Fail(
        FailedReason.EXPIRED, decision.counted, kind, why, decision.hold, decision.attempts_max
    )


# -- how an answer is put together -------------------------------------------------------


def _retry(
    case: _Case, delay: _Delay, counted: Counted, text: str, hold: Hold | None
) -> Retry | HandOver:
    heard = hint_words(case.hint_s)
    sentence = f"retry in {seconds(delay.total_s)}: {words(case.failure)}{heard}; {text}"
    why = _why(case, sentence + delay.note, delay)
    attempts_max = _attempts_max(case)
    return Retry(
        delay.total_s, counted, case.failure.kind, why, hold, attempts_max, hinted=delay.hinted
    )


def _decide_exhausted(case: _Case, text: str) -> Answer:
    if case.policy.exhausted is Action.HAND_OVER:
        return _hand_over(case, text)
    return _fail(case, FailedReason.EXHAUSTED, text)


def _hand_over(case: _Case, text: str) -> HandOver:
    """Due when the upstream says; else no sooner than a retry here: a worker's first try comes after a failure, too."""
    told = f"hand over to a durable job: {words(case.failure)}; {text}"
    if case.hint_s is not None:
        return HandOver(case.hint_s, case.failure.kind, _why(case, told), _hold(case), hinted=True)
    delay = _delay(case, case.seen.failures + 1)
    return HandOver(delay.total_s, case.failure.kind, _why(case, told + delay.note, delay))


def _fail(
    case: _Case,
    reason: FailedReason,
    text: str,
    hold: Hold | None = None,
    *,
    counted: Counted = Counted.FAILURES,
) -> Fail:
    why = _why(case, f"fail: {words(case.failure)}; {text}")
    return Fail(reason, counted, case.failure.kind, why, hold, _attempts_max(case))


def _attempts_max(case: _Case) -> int:
    return case.rule.attempts_max or case.policy.attempts_max


def _hold(case: _Case) -> Hold | None:
    """A hint speaks for everybody behind the same upstream or credential."""
    scope = KINDS[case.failure.kind].scope
    if case.hint_s is None or scope is PauseScope.JOB:
        return None
    return Hold(scope, case.hint_s)


def _why(case: _Case, text: str, delay: _Delay | None = None) -> Why:
    if case.gate.of_job:
        text = f"{text}; it was the gate's probe, and counts: others were answered since this job first failed"
    return Why(
        text=text,
        rule=case.rule_name,
        policy=case.policy.label,
        matched=case.failure.rule,
        base_s=None if delay is None else delay.base_s,
        jitter_s=None if delay is None else delay.jitter_s,
        hint_s=case.failure.hint_s,
        gate=case.gate.state,
        public=_public_text(case, text, delay),
    )


def _public_text(case: _Case, text: str, delay: _Delay | None) -> str | UnsetType:
    """The text without what was raised and what it said, where it says that."""
    told = f"{case.failure.detail}; " if case.failure.final else ""
    public = text
    for said in (told, raiser_words(case.failure), "" if delay is None else delay.note):
        public = public.replace(said, "") if said else public
    return UNSET if public == text else public


def _delay(case: _Case, n: int) -> _Delay:
    base_s = base_delay_s(case.rule.backoff or case.policy.backoff, n)
    own_s, note = _own_delay_s(case, n)
    if own_s is not None:
        base_s = own_s
    drawn_s = jittered_s(case.rule.jitter or case.policy.jitter, base_s, case.chance)
    hinted = case.hint_s is not None and (
        case.hints.mode is HintMode.EXACT or case.hint_s >= drawn_s
    )
    total_s = case.hint_s if hinted and case.hint_s is not None else drawn_s
    return _Delay(total_s, base_s, drawn_s - base_s, note, hinted)


def _own_delay_s(case: _Case, n: int) -> tuple[float | None, str]:
    """A user's own curve is heard as long as it makes sense; what it does wrong is told, and costs no job."""
    if case.policy.own_delay is None:
        return None, ""
    answer: object = answer_of(case.policy.own_delay, n, case.failure.kind)
    own_s = try_or_none(_sensible_s, answer)
    if own_s is not None:
        return own_s, ""
    did = "raised" if isinstance(answer, BaseException) else "answered"
    note = f"; own_delay {did} {safe_line(short_text(answer))}, so the policy's curve was used"
    return None, note


def _sensible_s(answer: object) -> float | None:
    number = isinstance(answer, int | float) and not isinstance(answer, bool)
    return float(answer) if number and 0 <= answer <= DELAY_S_MAX else None  # type: ignore[operator,arg-type]
