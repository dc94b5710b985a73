"""The settings in force with where each comes from, and an application's own names for them.

A system that was there before us has its own words: ``WORKER_LEASE_TTL_SEC``, ``retry.max_attempts``. An `Alias` says which
setting such a word means, and in which unit. What is no setting of ours (attempts, delays, addresses) is a `Setting` that
the application declares itself: found, checked, shown and masked like ours, and read where it is needed.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, TypeVar, overload
from urllib.parse import urlsplit

from perdure.config import SETTINGS, Aliased, config_of, given_values, resolve, table_with
from perdure.model.errors import ConfigError, UnknownName
from perdure.rules.field_checks import instance, nearest
from perdure.setting_values import (
    RawValue,
    Setting,
    SettingOrigin,
    SettledValue,
    checked_value,
    overlay,
    unknown_key,
)

__all__ = ["Alias", "Settings", "SettledValue", "load_settings"]

T = TypeVar("T")

_OURS = {one.name: one for one in SETTINGS}
_TYPES = (str, int, float)
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# What one of a unit is in seconds.
_UNITS: dict[str, tuple[int, int]] = {
    "ms": (1, 1000), "s": (1, 1), "min": (60, 1), "h": (3_600, 1), "d": (86_400, 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alias:
    """An application's own name for a setting: of an environment variable, of a key in its file, or of both.

    ``setting`` is the name of one of Perdure's, or a `Setting` of the application's own. ``key`` has dots between the
    tables of the file and the key. ``unit`` is the one in which the application has a setting of seconds: ms, s, min, h
    or d. One that is ``needed`` must be set by somebody, and not be empty; ``begins`` are the ways in which it may begin,
    and one that begins with http must be an address: with a host, a port that there can be, and no blank.
    """

    setting: str | Setting[Any]
    variable: str | None = None
    key: str | None = None
    unit: str | None = None
    needed: bool = False
    begins: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the setting."""
        return self.setting if isinstance(self.setting, str) else self.setting.name


class Settings:
    """The settings in force, Perdure's and the application's own: ``settings["concurrency"]``, ``settings[BASE]``."""

    def __init__(
        self, settled: Mapping[str, SettledValue], own: tuple[Setting[Any], ...] = ()
    ) -> None:
        self.settled = dict(settled)
        self.ours = {one.name: self.settled[one.name] for one in SETTINGS}
        self.table = table_with(own)
        self.config = config_of(self.settled)
        self._own = own

    @overload
    def __getitem__(self, setting: Setting[T]) -> T: ...

    @overload
    def __getitem__(self, setting: str) -> Any: ...

    def __getitem__(self, setting: Setting[Any] | str) -> Any:
        return self._found(setting).value

    def origin(self, setting: Setting[Any] | str) -> str:
        """Where the value of a setting comes from, in words: ``variable PERDURE_STORE``."""
        return self._found(setting).origin.says

    def with_given(self, given: Mapping[str, Any], *, given_as: str = "argument") -> "Settings":
        """The same, and on top what is given in code or typed as an option."""
        layers = (given_values(given, given_as),)
        return Settings(overlay(self.settled, layers, self.table), self._own)

    def _found(self, setting: Setting[Any] | str) -> SettledValue:
        name = setting if isinstance(setting, str) else setting.name
        if name not in self.settled:
            raise UnknownName(f"there is no setting {name!r}; {nearest(name, self.settled)}")
        return self.settled[name]


def load_settings(
    aliases: Iterable[Alias] = (),
    *,
    file_name: str = "",
    file_content: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings in force now, for ``App(settings=…)``, with an application's own names for them.

    ``file_content`` is what stands in a file of the application's own, as its parser gives it, and ``file_name`` what to
    call that file in messages. Where both levels have a value, Perdure's own name beats the alias: a key of perdure.toml
    that of the application's file, a PERDURE_ variable the application's. An alias that leads nowhere is an error.
    """
    known, file = tuple(aliases), file_name or "the application's file"
    wrong = _wrong_aliases(known, has_file=file_content is not None)
    if wrong:
        raise ConfigError("\n".join(wrong))
    content = file_content or {}
    aliased = Aliased(
        tuple(one.setting for one in known if isinstance(one.setting, Setting)),
        in_file=_found_in(content, file, known),
        in_environment={
            one.name: RawValue(os.environ[one.variable], _origin(one), _ratio(one))
            for one in known
            if one.variable is not None and one.variable in os.environ
        },
        mistakes=tuple(_unknown_keys(content, file, known)),
    )
    settings = Settings(resolve(os.environ, {}, aliased), aliased.own)
    missing = list(_missing(known, settings, file))
    if missing:
        raise ConfigError("\n".join(missing))
    return settings


def _missing(aliases: tuple[Alias, ...], settings: Settings, file: str) -> Iterator[str]:
    """What is not set and has to be, or begins as it may not; the value itself may have a password in it."""
    for one in aliases:
        settled = settings.settled[one.name]
        if one.needed and (settled.origin.source == "default" or settled.value == ""):
            places = (one.variable, one.key and f"{one.key} in {file}")
            named = " or ".join(place for place in places if place)
            yield f"{named} is not set; it is needed: {settings.table[one.name].help}"
        elif settled.value and one.begins and not str(settled.value).startswith(one.begins):
            yield f"{settled.origin.says} must begin with {' or '.join(one.begins)}"
        elif one.begins and not _may_be_called(str(settled.value)):
            yield f"{settled.origin.says} must be an address, as in http://127.0.0.1:9000/v1"


def _may_be_called(text: str) -> bool:
    """Whether an address has a host and a port that there can be; only one that begins with http is looked into."""
    if not text.startswith("http"):
        return True
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").encode("idna").decode()  # refuses what is no name
        if not host.strip("0123456789."):
            IPv4Address(host)  # refuses what is none, as it does an empty one
        return parts.port != 0 and text.isprintable() and " " not in text
    except ValueError:
        return False


def _origin(alias: Alias, file: str = "") -> SettingOrigin:
    source, name = ("file", alias.key) if file else ("variable", alias.variable)
    unit = alias.unit if alias.unit not in (None, "s") else None
    return SettingOrigin(source, name or "", file, unit or "")


def _ratio(alias: Alias) -> tuple[int, int]:
    return _UNITS[alias.unit or "s"]


def _found_in(
    content: Mapping[str, Any], file: str, aliases: tuple[Alias, ...]
) -> dict[str, RawValue]:
    found = {one: _at(content, one.key) for one in aliases if one.key is not None}
    return {
        one.name: RawValue(raw, _origin(one, file), _ratio(one))
        for one, raw in found.items()
        if raw is not None
    }


def _at(content: Mapping[str, Any], key: str) -> Any:
    """What stands in a file under a key; None for nothing."""
    place: Any = content
    for part in key.split("."):
        place = place.get(part) if isinstance(place, Mapping) else None
    return place


def _unknown_keys(content: Mapping[str, Any], file: str, aliases: tuple[Alias, ...]) -> list[str]:
    """What stands beside the keys of aliases in a table and is none of them.

    The outermost table is the application's own, and may hold anything.
    """
    keys = [one.key for one in aliases if one.key is not None and "." in one.key]
    wrong = []
    for table in sorted({key.rpartition(".")[0] for key in keys}):
        place = _at(content, table)
        known = [key for key in keys if key.startswith(f"{table}.")]
        if isinstance(place, Mapping):
            found = [f"{table}.{name}" for name in place]
            wrong += [
                unknown_key(one, file, known)
                for one in found
                if not any(f"{key}.".startswith(f"{one}.") for key in known)
            ]
        elif place is not None:
            wrong.append(
                f"{table} in {file} is {place!r:.80}; it must be a table with: {', '.join(known)}"
            )
    return wrong


# -- aliases that lead nowhere ---------------------------------------------------------------


def _wrong_aliases(aliases: tuple[Alias, ...], *, has_file: bool) -> list[str]:
    for one in aliases:
        instance("an alias", one, Alias)
    wrong = [
        f"the alias of {one.name!r} {words}"
        for one in aliases
        for words in (*_wrong_target(one), *_wrong_names(one, has_file=has_file))
    ]
    for what in ("name", "variable", "key"):
        names = [getattr(one, what) for one in aliases if getattr(one, what) is not None]
        twice = sorted({name for name in names if names.count(name) > 1})
        told = "setting" if what == "name" else what
        wrong += [f"two aliases have the {told} {name!r}; leave one of them" for name in twice]
    return wrong


def _wrong_target(alias: Alias) -> Iterator[str]:
    setting = alias.setting
    if isinstance(setting, str):
        if setting not in _OURS:
            yield f"leads nowhere: there is no such setting; {nearest(setting, _OURS)}"
            return
        setting = _OURS[setting]
    else:
        yield from _wrong_declaration(setting)
    if alias.unit is not None and alias.unit not in _UNITS:
        yield f"has the unit {alias.unit!r}; one of: {', '.join(_UNITS)}"
    elif alias.unit is not None and (setting.type is not float or setting.unit != "seconds"):
        yield f"has the unit {alias.unit!r}, and the setting is no float in seconds; leave the unit out"


def _wrong_declaration(setting: Setting[Any]) -> Iterator[str]:
    if setting.name in _OURS:
        yield "declares a setting that Perdure has itself; write its name as a text, or choose another"
    elif not _NAME.fullmatch(setting.name):
        yield "declares a setting whose name is none; write it in small letters, digits and _"
    if setting.type not in _TYPES:
        yield f"declares a setting of type {setting.type!r}; one of: str, int, float"
    elif setting.default is not None:
        try:
            checked_value(setting, RawValue(setting.default, SettingOrigin(name="its default")))
        except ConfigError as wrong:
            yield f"declares a setting that refuses its own default: {wrong}"


def _wrong_names(alias: Alias, *, has_file: bool) -> Iterator[str]:
    if alias.variable is None and alias.key is None:
        yield "leads from nowhere; give it a variable, a key or both"
    if alias.variable is not None and not _VARIABLE.fullmatch(alias.variable):
        yield f"has the variable {alias.variable!r}; write it in letters, digits and _"
    elif alias.variable is not None and alias.variable.startswith("PERDURE_"):
        yield f"has the variable {alias.variable!r}; those that begin with PERDURE_ are Perdure's own"
    if alias.key is not None and not all(alias.key.split(".")):
        yield f"has the key {alias.key!r}; write names with dots between them, as in retry.max_attempts"
    elif alias.key is not None and not has_file:
        yield (
            f"has the key {alias.key!r}, and there is no file that could have it; give file_content, "
            "{} where there is no file"
        )
