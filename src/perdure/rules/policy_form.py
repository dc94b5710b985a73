"""Policies as plain data: what stands in a TOML or JSON file, both ways, without loss.

A field that is left out has its default. ``"none"`` says that there is none where the default is a
number (a backoff without a cap). It also removes a deadline, an ``inline_s_max`` or a ``weak_share`` that would
come from the policy that this one is ``based_on``. Refusals name the field, the value and what is allowed.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.field_checks import one_of
from perdure.rules.matchers import Match
from perdure.rules.policy import Action, Hints, Policy, Rule, policy_of
from perdure.rules.vocabulary import VOCABULARIES, Vocabulary

_ALIKE_MIN = 0.5  # below it, a word that was guessed hides the list of those that there are

T = TypeVar("T")
Form = Mapping[str, Any]

NONE = "none"


def policy_from(form: Form) -> Policy:
    """The policy that plain data describes, alone or by what differs from the one that it is ``based_on``."""
    table = dict(_table(form, "policy"))
    if "based_on" not in table:
        return Policy(**_values(Policy, table, "policy", _READERS))
    other = policy_of(table.pop("based_on"))
    for name in ("backoff", "jitter", "hint"):
        if name in table:
            table[name] = _over(getattr(other, name), _table(table[name], name))
    return Policy.based_on(other, **_values(Policy, table, "policy", _READERS))


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
    table = _table(form, where)
    known = {one.name: one for one in fields(cls) if one.name != "own_delay"}
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"{where} has no field {name!r}; {nearest(name, known)}")
        values[name] = readers[name](value) if name in readers else value
    for name, one in known.items():
        if name not in values and one.default is MISSING and one.default_factory is MISSING:
            raise ConfigError(f"{where} lacks the field {name!r}; it must be given")
    return values


def _over(part: Backoff | Jitter | Hints, form: Form) -> Form:
    """What a table says, and for the rest what the other policy's says; steps belong to their own curve."""
    merged = {**_form(part), **form}
    if form.get("curve", "schedule") != "schedule" and "steps_s" not in form:
        merged.pop("steps_s", None)
    return merged


def _rules(form: object) -> dict[str, Rule]:
    return {name: _rule(value, f"rules.{name}") for name, value in _table(form, "rules").items()}


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
        if str(wrong).startswith(where):
            raise
        raise ConfigError(f"{where}: {wrong}") from None


def _matches(form: object) -> tuple[Match, ...]:
    if not isinstance(form, list):
        raise ConfigError(f"matches is {form!r}; it must be a list of tables")
    return tuple(_build(Match, value, f"matches[{at}]") for at, value in enumerate(form))


def _vocabulary(form: object) -> Vocabulary:
    if isinstance(form, str):
        if form not in VOCABULARIES:
            raise ConfigError(f"vocabulary is {form!r}; {nearest(form, VOCABULARIES)}")
        return VOCABULARIES[form]
    table = {"name": "own", **_table(form, "vocabulary")}
    tables = ("codes", "kinds", "internal", "stages", "statuses")
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


def nearest(
    word: str, known: Mapping[str, object] | tuple[str, ...], *, alike_min: float = _ALIKE_MIN
) -> str:
    """The valid words as the end of a message, first the one that was meant, if one is alike."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=alike_min) if word.strip() else []
    if not close:
        return f"one of: {', '.join(names)}"
    return f"did you mean {close[0]!r}? One of: {', '.join(names)}"


# -- writing -----------------------------------------------------------------------------


def _form(value: Any) -> dict[str, Any]:
    form: dict[str, Any] = {}
    for one in fields(value):
        held = getattr(value, one.name)
        if held is None and one.default is None:
            continue
        form[one.name] = _plain(held)
    return form


def _plain(value: Any) -> Any:
    match value:
        case None:
            return NONE
        case Enum():
            return value.value
        case Vocabulary():
            known = VOCABULARIES.get(value.name) == value
            return value.name if known else _form(value)
        case Mapping():
            return {str(_plain(key)): _plain(one) for key, one in value.items()}
        case frozenset():
            return "all" if value == frozenset(Kind) else sorted(_plain(one) for one in value)
        case list() | tuple():
            return [_plain(one) for one in value]
        case Rule() if value == Rule(value.action):
            return value.action.value
        case Backoff() | Jitter() | Hints() | Rule() | Match():
            return _form(value)
        case _:
            return value
