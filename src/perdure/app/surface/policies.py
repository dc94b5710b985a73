"""Policies for surfaces: by name, from a file or as a stage has it; shown, checked and explained."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import tomli_w
from msgspec import Struct

from perdure.app.surface.loading import load_policy
from perdure.model.errors import CallerError
from perdure.model.kinds import Kind, PauseScope
from perdure.model.nouns import replace
from perdure.rules.explain import Question, explain, schedule, schedule_of_waits, when_weak
from perdure.rules.failure_spec import DescribedFailure, failure_of
from perdure.rules.policy import Policy
from perdure.rules.policy_form import policy_form
from perdure.rules.presets import PRESETS
from perdure.rules.rule_choice import kinds_left, kinds_unlisted


class PolicyPage(Struct, frozen=True):
    """A preset as people read it."""

    name: str
    version: int
    reason: str
    implements: tuple[str, ...]
    form: Mapping[str, Any]

    @property
    def toml(self) -> str:
        """The policy as a TOML file."""
        return tomli_w.dumps(dict(self.form))


class Explained(Struct, frozen=True):
    """What a policy would do, what it would do after each attempt or each wait, and what else while the upstream is weak.

    ``steady``: a wait is as long as the first one while most other calls are admitted. ``gate`` is what is held, where the
    stage is known.
    """

    answer: dict[str, Any]
    schedule: tuple[dict[str, Any], ...]
    waits: tuple[dict[str, Any], ...] = ()
    waits_max: int = 0
    steady: bool = False
    when_weak: str | None = None
    gate: str | None = None


def policy_pages() -> list[PolicyPage]:
    """All presets."""
    return [policy_page(name) for name in PRESETS]


def policy_page(name: str) -> PolicyPage:
    """A preset by name, the policy in a file, or the one that a module or a stage has."""
    found = PRESETS.get(name)
    policy, _ = load_policy(name)
    reason = "" if found is None else found.reason
    implements = () if found is None else found.implements
    return PolicyPage(policy.name, policy.version, reason, implements, policy_form(policy))


def falling_otherwise(policy: Policy) -> tuple[str, list[str]]:
    """What ``otherwise`` does in a policy, and the kinds that it is left to answer."""
    return policy.otherwise.action.value, [kind.value for kind in kinds_left(policy)]


def falling_unlisted(policy: Policy) -> tuple[list[int | str], list[str]]:
    """The statuses and exceptions that ``retriable`` lists, and the kinds that fail because it does not list them.

    A failure of such a kind is retried all the same if its status or exception is listed.
    """
    kinds = [kind.value for kind in kinds_unlisted(policy)]
    names = policy.retriable if isinstance(policy.retriable, tuple) else ()
    return [one for one in names if one not in tuple(Kind)], kinds


def explain_spec(
    name: str,
    spec: str,
    *,
    attempt: int = 1,
    waits: int = 1,
    crashes: int = 1,
    headers: Sequence[str] = (),
    body: str | None = None,
    stage: str | None = None,
) -> Explained:
    """What a policy would do about a failure described in words; see `rules/failure_spec.py`.

    Where ``name`` leads to a stage, it is asked for that stage.
    """
    policy, own = load_policy(name)
    for what, value in (("--attempt", attempt), ("--waits", waits), ("--crashes", crashes)):
        if value < 1:
            raise CallerError(f"{what} is {value}; it must be at least 1")
    asked = DescribedFailure(spec, tuple(_header(one) for one in headers), body)
    failure, code = failure_of(asked, policy, datetime.now(UTC))
    question = Question(failure, attempt, waits, crashes, code, stage or (own and own.stage))
    question = replace(question, gated=own is None or own.upstream is not None)
    rows = tuple(answer.as_form() for _, answer in schedule(policy, question))
    waited = tuple(answer.as_form() for answer in schedule_of_waits(policy, question))
    answer = explain(policy, question)
    gate = None if own is None else own.upstream
    if own is not None and answer.hold == PauseScope.CREDENTIAL:
        gate = own.credential or own.upstream
    return Explained(
        answer.as_form(),
        rows,
        waited,
        policy.waits_max,
        policy.weak_share is not None and question.gated,
        when_weak(policy, question) if question.gated else None,
        gate,
    )


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise CallerError(f"--header {text!r} is not a header; write 'name: value'")
    return name.strip().lower(), value.strip()
