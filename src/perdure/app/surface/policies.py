"""Policies for surfaces: named or from a file, shown, checked and explained."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from perdure.model.errors import CallerError, ConfigError, UnknownName
from perdure.model.kinds import Kind
from perdure.rules.explain import Question, explain, schedule, when_weak
from perdure.rules.failure_spec import DescribedFailure, failure_of
from perdure.rules.policy import Policy
from perdure.rules.policy_form import nearest, policy_form, policy_from
from perdure.rules.presets import PRESETS
from perdure.rules.rule_choice import kinds_left, kinds_unlisted


@dataclass(frozen=True, slots=True)
class PolicyPage:
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


@dataclass(frozen=True, slots=True)
class Explained:
    """What a policy would do, what it would do after each attempt, and what else while the upstream is weak."""

    answer: dict[str, Any]
    schedule: tuple[dict[str, Any], ...]
    when_weak: str | None = None


def policy_pages() -> list[PolicyPage]:
    """All presets."""
    return [policy_page(name) for name in PRESETS]


def policy_page(name: str) -> PolicyPage:
    """A preset by name, or the policy in a file."""
    found = PRESETS.get(name)
    policy = policy_at(name)
    reason = "" if found is None else found.reason
    implements = () if found is None else found.implements
    return PolicyPage(policy.name, policy.version, reason, implements, policy_form(policy))


def policy_at(name: str) -> Policy:
    """The preset of that name, or the policy in the file of that name."""
    if name in PRESETS:
        return PRESETS[name].policy
    path = Path(name)
    if path.suffix not in (".toml", ".json") and not path.exists():
        raise UnknownName(f"no policy {name!r}; {nearest(name, PRESETS)}; or a .toml or .json file")
    return policy_from(_read(path))


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


def explained(
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
    """What a policy would do about a failure described in words; see `rules/failure_spec.py`."""
    policy = policy_at(name)
    for what, value in (("--attempt", attempt), ("--waits", waits), ("--crashes", crashes)):
        if value < 1:
            raise CallerError(f"{what} is {value}; it must be at least 1")
    asked = DescribedFailure(spec, tuple(_header(one) for one in headers), body)
    failure, code = failure_of(asked, policy, datetime.now(UTC))
    question = Question(failure, attempt, waits, crashes, code, stage)
    rows = tuple(answer.as_form() for _, answer in schedule(policy, question))
    return Explained(explain(policy, question).as_form(), rows, when_weak(policy, question))


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise CallerError(f"--header {text!r} is not a header; write 'name: value'")
    return name.strip().lower(), value.strip()


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f"cannot read the policy file {str(path)!r}: {error}") from None
    try:
        form = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"policy file {str(path)!r}: {error}") from None
    if not isinstance(form, dict):
        raise ConfigError(f"policy file {str(path)!r} does not hold a table of fields")
    return form
