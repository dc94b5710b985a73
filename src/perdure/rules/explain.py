"""explain: what a policy would do about a failure, with the whole range that chance can give."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_never

from msgspec import Struct

from perdure.model.decisions import (
    CancelJob,
    Counted,
    Decision,
    Fail,
    HandOver,
    Release,
    Retry,
    Succeed,
)
from perdure.model.errors import BugError
from perdure.model.jobs import Counters
from perdure.model.kinds import KINDS
from perdure.model.nouns import replace
from perdure.model.verdicts import Failure
from perdure.rules.decide import FLOWING, GateView, Standing, decide
from perdure.rules.policy import Policy
from perdure.rules.rule_choice import rule_for

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # a deadline is counted from it
_FAILING = replace(FLOWING, failed=1, known=1)  # all of the latest calls
_LOOKED_BACK_MAX = 1_000  # attempts; by then a deadline has passed, or there is no telling


class Question(Struct, frozen=True):
    """A failure and where its job stands; ``attempt`` is the one that just failed.

    ``waits`` and ``crashes`` include this event, ``waited_s`` does not. ``code`` is the public code it was asked by;
    else it is the one that users read at ``stage``. Not ``gated``: its stage names no upstream, so nothing is held.
    """

    failure: Failure
    attempt: int = 1
    waits: int = 1
    crashes: int = 1
    code: str | None = None
    stage: str | None = None
    waited_s: float = 0.0
    gated: bool = True


class WaitRange(Struct, frozen=True):
    """The least and the most that chance can give."""

    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The fields of this answer are stable.

    ``until_person``: what it holds, it holds until a person releases it; a retry behind that gate waits as long.
    """

    policy: str
    version: int
    profile: str
    kind: str
    class_: str
    code: str
    attempt: int
    attempts_max: int
    action: str
    failed_reason: str | None
    delay_s: WaitRange | None
    counted: bool
    hold: str | None
    hint_s: float | None
    rule: str
    why: str
    until_person: bool

    def as_form(self) -> dict[str, object]:
        """The answer as plain data."""
        form: dict[str, object] = {name.rstrip("_"): getattr(self, name) for name in self.__slots__}
        if self.delay_s is not None:
            form["delay_s"] = {"min": self.delay_s.min, "max": self.delay_s.max}
        return form


def explain(policy: Policy, question: Question) -> Explanation:
    """What the policy would do."""
    failure = question.failure
    until = _deadline_at(policy, question)
    least, middle, most = (_decide(policy, question, chance, until) for chance in (0.0, 0.5, 1.0))
    if not question.gated:
        middle = replace(middle, hold=None)
    rule, _ = rule_for(policy, failure)
    words = policy.vocabulary
    return Explanation(
        policy=policy.name,
        version=policy.version,
        profile=policy.profile.value,
        kind=failure.kind.value,
        class_=KINDS[failure.kind].failure_class.value,
        code=question.code or words.code(failure.kind, stage=question.stage, status=failure.status),
        attempt=question.attempt,
        attempts_max=rule.attempts_max or policy.attempts_max,
        action=_action(middle),
        failed_reason=middle.reason.value if isinstance(middle, Fail) else None,
        delay_s=_range(least, most),
        counted=_is_counted(middle, policy),
        hold=None if middle.hold is None else middle.hold.scope.value,
        hint_s=failure.hint_s,
        rule=middle.why.rule,
        why=_sentence(middle),
        until_person=_is_for_person(middle),
    )


def schedule(policy: Policy, question: Question) -> list[tuple[int, Explanation]]:
    """What would happen after each attempt, if all of them failed like this one."""
    answers = []
    for attempt in range(1, 51):
        asked = replace(question, attempt=attempt, crashes=attempt)
        answer = explain(policy, asked)
        answers.append((attempt, answer))
        if answer.action != "retry" or not answer.counted:
            break
    return answers


def schedule_of_waits(policy: Policy, question: Question) -> list[Explanation]:
    """What would happen after each wait, if every attempt failed like this one; none where that is no wait."""
    answers: list[Explanation] = []
    asked = replace(question, attempt=1, waits=1)
    while len(answers) < _LOOKED_BACK_MAX:
        decision = _decide(policy, asked, 0.5, _deadline_at(policy, asked))
        if not isinstance(decision, Retry) or not _waits(decision):
            return [*answers, explain(policy, asked)] if answers else []
        answers.append(explain(policy, asked))
        waited_s = asked.waited_s + decision.delay_s
        asked = replace(asked, waits=asked.waits + 1, waited_s=waited_s)
    return answers


def when_weak(policy: Policy, question: Question) -> str | None:
    """What else holds while the upstream fails many of everybody's calls; None where nothing does."""
    if policy.weak_share is None:
        return None
    least, most = (_decide(policy, question, chance, gate=_FAILING) for chance in (0.0, 1.0))
    wait_s = _range(least, most)
    if wait_s is None or not _waits(least) or _waits(_decide(policy, question, 0.5)):
        return None
    return (
        f"while {policy.weak_share:.0%} or more of the upstream's latest calls fail, it is a wait of "
        f"{wait_s.min:g} to {wait_s.max:g} s, not counted, {policy.waits_max} times at most"
    )


def _deadline_at(policy: Policy, question: Question) -> datetime | None:
    """When the job would expire: earlier attempts took no time, and failed like this one."""
    if policy.deadline_s is None:
        return None
    left_s = policy.deadline_s - question.waited_s
    for attempt in range(1, min(question.attempt, _LOOKED_BACK_MAX)):
        before = _decide(policy, replace(question, attempt=attempt), 0.5)
        left_s -= before.delay_s if isinstance(before, Retry) else 0.0
    return _ANY_TIME + timedelta(seconds=left_s)


def _decide(
    policy: Policy,
    question: Question,
    chance: float,
    deadline_at: datetime | None = None,
    gate: GateView = FLOWING,
) -> Retry | Fail | HandOver:
    counters = Counters(
        starts=question.attempt,
        failures=question.attempt - 1,
        waits=max(0, question.waits - 1),
        crashes=max(0, question.crashes - 1),
        waited_s=question.waited_s,
    )
    decision: Decision = decide(
        Standing(counters, deadline_at=deadline_at),
        question.failure,
        policy,
        gate,
        _ANY_TIME,
        chance,
    )
    if isinstance(decision, Succeed | CancelJob | Release):  # pragma: no cover
        raise BugError("a failure was answered as if it were none")
    return decision


def _waits(decision: Retry | Fail | HandOver) -> bool:
    return isinstance(decision, Retry) and decision.counted is Counted.WAITS


def _is_for_person(decision: Retry | Fail | HandOver) -> bool:
    return decision.hold is not None and decision.hold.for_s is None


def _sentence(decision: Retry | Fail | HandOver) -> str:
    """Why, as it is kept with the attempt; but behind a gate that a person has to release, no time is promised."""
    text = decision.why.text
    if not isinstance(decision, Retry) or not _is_for_person(decision):
        return text
    return f"wait until a person releases the gate: {text.partition(': ')[2]}"


def _action(decision: Retry | Fail | HandOver) -> str:
    match decision:
        case Retry():
            return "retry"
        case Fail():
            return "fail"
        case HandOver():
            return "hand_over"
        case _:  # pragma: no cover
            assert_never(decision)


def _range(least: Retry | Fail | HandOver, most: Retry | Fail | HandOver) -> WaitRange | None:
    if isinstance(least, Fail) or isinstance(most, Fail):
        return None
    if isinstance(least, HandOver) and least.delay_s == 0.0:
        return None
    return WaitRange(round(least.delay_s, 6), round(most.delay_s, 6))


def _is_counted(decision: Retry | Fail | HandOver, policy: Policy) -> bool:
    if isinstance(decision, HandOver):
        return False  # the durable job begins with fresh counters
    if decision.counted is Counted.CRASHES:
        return policy.crash_is_failure
    return decision.counted is Counted.FAILURES
