"""Policies as plain data: what stands in a TOML or JSON file, both ways, without loss.

A field that is left out has its default. ``"none"`` says that there is none where the default is a
number (a backoff without a cap). It also removes a deadline, an ``inline_s_max`` or a ``weak_share`` that would
come from the policy that this one is ``based_on``. Refusals name the field, the value and what is allowed.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, TypeVar

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.field_checks import nearest, one_of
from perdure.rules.matchers import Match
from perdure.rules.policy import Action, Hints, Policy, Profile, Rule, policy_of, rules_by_kind
from perdure.rules.vocabulary import VOCABULARIES, Vocabulary

T = TypeVar("T")
Form = Mapping[str, Any]

NONE = "none"


def policy_from(form: Form) -> Policy:
    """The policy that plain data describes, alone or by what differs from the one that it is ``based_on``.

    All that is wrong is told at once, one mistake a line.
    """
    table = dict(_table(form, "policy"))
    other, wrong = _base_policy(table)
    values, unread = _read(Policy, table, "policy", _READERS)
    wrong += unread + _wrong_alone(values, _profiles(values, other, unknown=bool(wrong)))
    _refuse(wrong)
    return Policy(**values) if other is None else Policy.based_on(other, **values)


def _base_policy(table: dict[str, Any]) -> tuple[Policy | None, list[str]]:
    """The policy that this one is based on; its parts are laid under those of the table."""
    if "based_on" not in table:
        return None, []
    parts = [name for name in ("backoff", "jitter", "hint") if name in table]
    try:
        other = policy_of(table.pop("based_on"))
    except ConfigError as wrong:
        # What they are laid over is not known, so nobody can say whether they fit.
        for name in parts:
            del table[name]
        return None, [str(wrong)]
    for name in parts:
        if isinstance(table[name], Mapping):
            table[name] = _over(getattr(other, name), table[name])
    return other, []


def _profiles(values: Form, other: Policy | None, *, unknown: bool) -> tuple[Profile, ...]:
    """The profiles that the policy may have."""
    if values.get("profile") in tuple(Profile):
        return (Profile(values["profile"]),)
    if unknown or "profile" in values:
        return tuple(Profile)
    return (other.profile if other else Profile.BACKGROUND,)


def _wrong_alone(values: Form, profiles: tuple[Profile, ...]) -> list[str]:
    """What is wrong with fields each by itself; whether they fit together is seen when all are right."""
    wrong: list[str] = []
    for name, value in values.items():
        said = []
        for profile in profiles:
            try:
                Policy(**{"name": "p", "profile": profile, name: value})
            except ConfigError as error:
                said.append(str(error))
        if len(said) == len(profiles):
            wrong.append(said[0])
    return wrong


def _refuse(wrong: list[str]) -> None:
    if wrong:
        raise ConfigError("\n".join(dict.fromkeys(wrong)))


def policy_form(policy: Policy) -> dict[str, Any]:
    """Plain data that describes the policy."""
    if policy.own_delay is not None:
        raise ConfigError(
            f"policy {policy.name!r} has an own_delay, which is code and cannot be written down"
        )
    return _form(policy)


# -- reading -----------------------------------------------------------------------------


def _build(
    cls: type[T], form: object, where: str, readers: Mapping[str, Callable[[Any], Any]] = {}
) -> T:
    return cls(**_values(cls, form, where, readers))


def _values(
    cls: type, form: object, where: str, readers: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    values, wrong = _read(cls, form, where, readers)
    _refuse(wrong)
    return values


def _read(
    cls: type, form: object, where: str, readers: Mapping[str, Callable[[Any], Any]]
) -> tuple[dict[str, Any], list[str]]:
    """The fields that can be read, and what is wrong with the others."""
    table = _table(form, where)
    known = {one.name: one for one in fields(cls) if one.name != "own_delay"}
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in table.items():
        if name not in known:
            wrong.append(f"{where} has no field {name!r}; {nearest(name, known)}")
            continue
        try:
            values[name] = readers[name](value) if name in readers else value
        except ConfigError as error:
            wrong += str(error).splitlines()
    for name, one in known.items():
        if name not in table and one.default is MISSING and one.default_factory is MISSING:
            wrong.append(f"{where} lacks the field {name!r}; it must be given")
    return values, wrong


def _over(part: Backoff | Jitter | Hints, form: Form) -> Form:
    """What a table says, and for the rest what the other policy's says; steps belong to their own curve."""
    merged = {**_form(part), **form}
    if form.get("curve", "schedule") != "schedule" and "steps_s" not in form:
        merged.pop("steps_s", None)
    return merged


def _rules(form: object) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    wrong: list[str] = []
    for name, value in _table(form, "rules").items():
        try:
            rules_by_kind({name: Action.RETRY})  # whether there is such a kind
            rules[name] = _rule(value, f"rules.{name}")
        except ConfigError as error:
            wrong += str(error).splitlines()
    _refuse(wrong)
    return rules


def _rule(form: object, where: str) -> Rule:
    readers: dict[str, Callable[[Any], Any]] = {
        "backoff": lambda value: _build(Backoff, value, f"{where}.backoff", _BACKOFF),
        "jitter": lambda value: _build(Jitter, value, f"{where}.jitter"),
        "hint": lambda value: _build(Hints, value, f"{where}.hint", _HINTS),
    }
    try:
        if isinstance(form, str):
            return Rule(one_of("rule.action", Action, form))
        return _build(Rule, form, where, readers)
    except ConfigError as wrong:
        lines = str(wrong).splitlines()
        _refuse([one if one.startswith(where) else f"{where}: {one}" for one in lines])
        raise


def _matches(form: object) -> tuple[Match, ...]:
    if not isinstance(form, list):
        raise ConfigError(f"matches is {form!r}; it must be a list of tables")
    found: list[Match] = []
    wrong: list[str] = []
    for at, value in enumerate(form):
        try:
            found.append(_build(Match, value, f"matches[{at}]"))
        except ConfigError as error:
            wrong += str(error).splitlines()
    _refuse(wrong)
    return tuple(found)


def _vocabulary(form: object) -> Vocabulary:
    if isinstance(form, str):
        if form not in VOCABULARIES:
            raise ConfigError(f"vocabulary is {form!r}; {nearest(form, VOCABULARIES)}")
        return VOCABULARIES[form]
    table = {"name": "own", **_table(form, "vocabulary")}
    tables = ("codes", "kinds", "internal", "stages", "statuses", "aliases")
    return _build(Vocabulary, table, "vocabulary", {name: _inner(name) for name in tables})


def _inner(name: str) -> Callable[[Any], Form]:
    """What reads a table inside a vocabulary; the tables of stages have tables inside."""

    def read(form: object) -> Form:
        where = f"vocabulary.{name}"
        table = _table(form, where)
        if name == "stages":
            return {stage: _table(one, f"{where}.{stage}") for stage, one in table.items()}
        return table

    return read


def _table(form: object, where: str) -> Form:
    if not isinstance(form, Mapping):
        raise ConfigError(f"{where} is {form!r}; it must be a table of fields")
    return form


def _hint_kinds(value: object) -> frozenset[Kind]:
    if value == "all":
        return frozenset(Kind)
    if not isinstance(value, list):
        raise ConfigError(f"hint.kinds is {value!r}; give 'all' or a list of kinds")
    return frozenset(one_of("hint.kinds", Kind, kind) for kind in value)


def _or_none(value: object) -> object:
    return None if value == NONE else value


_BACKOFF: dict[str, Callable[[Any], Any]] = {
    "cap_s": _or_none,
    "steps_s": lambda value: tuple(value) if isinstance(value, list) else value,
}
_HINTS: dict[str, Callable[[Any], Any]] = {"kinds": _hint_kinds}
_READERS: dict[str, Callable[[Any], Any]] = {
    "backoff": lambda value: _build(Backoff, value, "backoff", _BACKOFF),
    "jitter": lambda value: _build(Jitter, value, "jitter"),
    "hint": lambda value: _build(Hints, value, "hint", _HINTS),
    "deadline_s": _or_none,
    "inline_s_max": _or_none,
    "weak_share": _or_none,
    "rules": _rules,
    "otherwise": lambda value: _rule(value, "otherwise"),
    "retriable": lambda value: tuple(value) if isinstance(value, list) else value,
    "matches": _matches,
    "vocabulary": _vocabulary,
}


# -- writing -----------------------------------------------------------------------------


def _form(value: Any) -> dict[str, Any]:
    form: dict[str, Any] = {}
    for one in fields(value):
        held = getattr(value, one.name)
        if held is None and one.default is None:
            continue
        form[one.name] = _plain_value(held)
    return form


def _plain_value(value: Any) -> Any:
    match value:
        case None:
            return NONE
        case Enum():
            return value.value
        case Vocabulary():
            known = VOCABULARIES.get(value.name) == value
            return value.name if known else _form(value)
        case Mapping():
            return {str(_plain_value(key)): _plain_value(one) for key, one in value.items()}
        case frozenset():
            return "all" if value == frozenset(Kind) else sorted(_plain_value(one) for one in value)
        case list() | tuple():
            return [_plain_value(one) for one in value]
        case Rule() if value == Rule(value.action):
            return value.action.value
        case Backoff() | Jitter() | Hints() | Rule() | Match():
            return _form(value)
        case _:
            return value
