"""What a setting is, where a value of one is found, and how it is checked; the table of ours is in `config.py`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from perdure.model.errors import ConfigError
from perdure.model.limits import SETTINGS_FILE_BYTES_MAX

FILE_VARIABLE = "PERDURE_CONFIG"
ALIKE_MIN = 0.65  # STORE_URI is meant for STORE (0.71), SEED is not (0.44)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting: its name, whether it is a ``str``, an ``int`` or a ``float``, its default, unit and meaning.

    A value below ``least`` or above ``most``, or none of the ``choices``, is refused. The word ``none`` stands for None,
    where that is allowed. A ``secret`` one is not shown.
    """

    name: str
    type: type[T]
    default: T
    unit: str
    help: str
    least: float | None = None
    most: float | None = None
    secret: bool = False
    choices: tuple[str, ...] = ()
    none: str = ""


class SettingOrigin(Struct, frozen=True):
    """Where a value comes from: ``source`` is default, file, variable, argument or option.

    ``name`` is the key, the variable, the argument or the option, ``file`` the file that has the key, and ``unit`` the
    one in which an application has it, where that is not the setting's own.
    """

    source: str = "default"
    name: str = ""
    file: str = ""
    unit: str = ""

    @property
    def says(self) -> str:
        """In words."""
        where = f"{self.name} in {self.file}" if self.file else f"{self.source} {self.name}"
        return f"{where.strip()}, in {self.unit}" if self.unit else where.strip()


class RawValue(Struct, frozen=True):
    """A value before it is checked; ``ratio`` is what one of its unit is in the unit of the setting."""

    raw: Any
    origin: SettingOrigin
    ratio: tuple[int, int] = (1, 1)


class SettledValue(Struct, frozen=True):
    """A value that is in force."""

    value: str | int | float | None
    origin: SettingOrigin = SettingOrigin()


def overlay(
    settled: Mapping[str, SettledValue],
    layers: Sequence[Mapping[str, RawValue]],
    table: Mapping[str, Setting[Any]],
    *,
    mistakes: Sequence[str] = (),
) -> dict[str, SettledValue]:
    """The same with what was found laid over it, the last layer on top; raises for all that is wrong together."""
    values, wrong = dict(settled), list(mistakes)
    for layer in layers:
        for name, found in layer.items():
            try:
                values[name] = SettledValue(checked_value(table[name], found), found.origin)
            except ConfigError as mistake:
                wrong.append(str(mistake))
    if wrong:
        raise ConfigError(as_one_message(wrong))
    return values


def as_one_message(mistakes: Sequence[str]) -> str:
    """One mistake as it is, several as a list."""
    if len(mistakes) == 1:
        return mistakes[0]
    return f"{len(mistakes)} settings are wrong:" + "".join(f"\n  - {one}" for one in mistakes)


def unknown_key(name: str, file: str, known: Sequence[str]) -> str:
    """That a key of a file is no setting, with the one that is meant."""
    alike = get_close_matches(name, known, n=1, cutoff=ALIKE_MIN)
    meant = f"did you mean {alike[0]!r}?" if alike else f"there are: {', '.join(sorted(known))}"
    return f"{name!r} in {file} is no setting; {meant}"


def read_file(path: str) -> dict[str, Any]:
    """What stands in a settings file."""
    import tomllib

    try:
        with Path(path).open("rb") as file:
            content = file.read(SETTINGS_FILE_BYTES_MAX + 1)
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(
            f"cannot read the settings file {path!r}: {why}; mend it, or name another with {FILE_VARIABLE} "
            "(empty: none is read)"
        ) from None
    if len(content) > SETTINGS_FILE_BYTES_MAX:
        raise ConfigError(
            f"the settings file {path!r} is larger than {SETTINGS_FILE_BYTES_MAX} bytes; name another with {FILE_VARIABLE}"
        )
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"the settings file {path!r} is not valid TOML: {error}; write one setting a line, as in: concurrency = 8"
        ) from None


_TYPE_WORDS: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
}

# -- checks ----------------------------------------------------------------------------------


def checked_value(setting: Setting[Any], found: RawValue) -> Any:
    """The value, of the right type and within its limits; else a `ConfigError` that says what is allowed."""
    if setting.none and str(found.raw).lower() == setting.none:
        return None
    try:
        value = _converted(setting, found)
    except (TypeError, ValueError, OverflowError):
        bare = ", without quotes" if found.origin.file and isinstance(found.raw, str) else ""
        word = f", or {setting.none}" if setting.none else ""
        raise _refusal(
            setting, found, f"it must be {_TYPE_WORDS[setting.type]}{bare}{word}"
        ) from None
    if setting.choices:
        value = next((one for one in setting.choices if one.lower() == str(value).lower()), None)
        if value is None:
            raise _refusal(setting, found, f"one of: {', '.join(setting.choices)}")
    if setting.least is not None and value < setting.least:
        raise _refusal(setting, found, f"it must be at least {_in_its_unit(setting.least, found)}")
    if setting.most is not None and value > setting.most:
        raise _refusal(setting, found, f"it must be at most {_in_its_unit(setting.most, found)}")
    return value


def _converted(setting: Setting[Any], found: RawValue) -> Any:
    raw = found.raw
    if found.origin.file and (isinstance(raw, str) is not (setting.type is str)):
        raise TypeError  # a file has types of its own
    if isinstance(raw, bool) or (setting.type is int and isinstance(raw, float)):
        raise TypeError
    if setting.type is not float:
        return setting.type(raw)
    value = float(raw) * found.ratio[0] / found.ratio[1]
    if not math.isfinite(value):
        raise ValueError
    return value


def _refusal(setting: Setting[Any], found: RawValue, words: str) -> ConfigError:
    origin = found.origin
    name = f"{origin.name} in {origin.file}" if origin.file else origin.name
    shown = "no such value" if setting.secret else f"{found.raw!r:.80}"
    return ConfigError(f"{name} is {shown}; {words}")


def _in_its_unit(limit: float, found: RawValue) -> str:
    unit = f" {found.origin.unit}" if found.origin.unit else ""
    return f"{limit * found.ratio[1] / found.ratio[0]:g}{unit}"
