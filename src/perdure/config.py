"""One table of settings: name, type, default, unit, help, secret; and the order in which their values are looked for.

The default is beaten by the settings file, that by the environment, and that by what is given in code or typed as an
option. An application may have names of its own for settings, in a file and in the environment (`app/session/settings.py`); on
each of these two levels our own name beats the application's. Every value that is found is checked, also one that
another beats, and all mistakes are told at once.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from perdure.model.errors import ConfigError, UnknownName
from perdure.model.limits import PROCESSES_MAX, TIMEOUT_S_MAX
from perdure.setting_values import (
    ALIKE_MIN,
    FILE_VARIABLE,
    RawValue,
    Setting,
    SettingOrigin,
    SettledValue,
    overlay,
    read_file,
    unknown_key,
)

FILE = "perdure.toml"

_PREFIX = "PERDURE_"

SETTINGS: tuple[Setting[Any], ...] = (
    Setting("store", str, "sqlite:///perdure.db", "URL", "Where jobs are kept.", secret=True),
    Setting(
        "connections", int, 8, "connections", "Most of them to a PostgreSQL store in a process.", 1
    ),
    Setting(
        "store_wait_s",
        float,
        60.0,
        "seconds",
        "How long `perdure worker` and `perdure serve` wait at their start for a store that is "
        "away: it refuses connections, or is starting up. 0 ends them at once.",
        0.0,
    ),
    Setting("concurrency", int, 32, "jobs", "Jobs in flight in one worker.", 1),
    Setting(
        "processes",
        int,
        1,
        "processes",
        "Working processes that one `perdure worker` keeps; each has `concurrency` jobs in flight.",
        1,
        PROCESSES_MAX,
    ),
    Setting("lease_ttl_s", float, 15.0, "seconds", "Silence after which a worker is dead.", 0.3),
    Setting("grace_s", float, 30.0, "seconds", "Time to finish running stages at shutdown.", 0.0),
    Setting("poll_s", float, 1.0, "seconds", "Longest rest between looks at the store.", 0.01),
    Setting("tick_s", float, 0.005, "seconds", "How often a resting pump looks for a hint.", 0.001),
    Setting(
        "overrun_s",
        float,
        60.0,
        "seconds",
        "Time beyond its stage's timeout after which an attempt that is still held is ended for its "
        "worker. Never less than grace_s and lease_ttl_s together: a worker that drains, or waits for "
        "the store, will still tell.",
        0.0,
    ),
    *(
        Setting(
            f"retain_{which}_s",
            float,
            30 * 86_400.0,
            "seconds",
            f"How long {what} is kept, with all its attempts.{but}",
            0.0,
            none="forever",
        )
        for which, what, but in (
            ("succeeded", "a job that has succeeded", ""),
            ("cancelled", "a job that was cancelled", ""),
            (
                "discarded",
                "a dead letter that somebody has discarded",
                " Any other dead letter is kept until somebody discards or retries it.",
            ),
        )
    ),
    Setting(
        "capture_kept_s",
        float,
        7 * 86_400.0,
        "seconds",
        "How long raw output that a stage has put aside is kept, but no longer than its job.",
        0.0,
        none="forever",
    ),
    Setting(
        "capture_tracebacks",
        str,
        "off",
        "",
        "Whether the whole traceback of what a stage raises is put aside, as raw output is: without secrets, files by "
        "their place among the modules. For whoever may read captures.",
        choices=("off", "on"),
    ),
    Setting(
        "retain_changes_s",
        float,
        3_600.0,
        "seconds",
        "How long the change feed can be read back: whoever was away for less has missed nothing.",
        60.0,
    ),
    Setting(
        "log_format",
        str,
        "auto",
        "",
        "Log lines: text, json, or auto (json off a terminal).",
        choices=("auto", "text", "json"),
    ),
    Setting(
        "log_level",
        str,
        "INFO",
        "",
        "Least severe log level that is written.",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    ),
    Setting(
        "metrics_port",
        int,
        None,
        "port",
        "Where `perdure worker` offers metrics to Prometheus; 0 takes a free one, which the log tells. The worker of a "
        "`perdure run` offers none.",
        0,
        65_535,
        none="off",
    ),
    Setting(
        "metrics_host",
        str,
        "127.0.0.1",
        "",
        "The address at which it does; whoever reaches it may read.",
    ),
    Setting(
        "serve_host",
        str,
        "127.0.0.1",
        "",
        "The address at which `perdure serve` listens. One that other machines reach needs a token in the store.",
    ),
    Setting(
        "aliases",
        str,
        "",
        "",
        "Second names for fields in the JSON of commands, the HTTP API and the log: those of a vocabulary, as in gateway, "
        "or name=alias, with commas between. Where an app is loaded, the vocabularies of its policies give theirs as well.",
    ),
)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force."""

    store: str
    connections: int
    store_wait_s: float
    concurrency: int
    processes: int
    lease_ttl_s: float
    grace_s: float
    poll_s: float
    tick_s: float
    overrun_s: float
    retain_succeeded_s: float | None
    retain_cancelled_s: float | None
    retain_discarded_s: float | None
    capture_kept_s: float | None
    capture_tracebacks: str
    retain_changes_s: float
    log_format: str
    log_level: str
    metrics_port: int | None
    metrics_host: str
    serve_host: str
    aliases: str

    @property
    def keeps_tracebacks(self) -> bool:
        """Whether tracebacks are put aside."""
        return self.capture_tracebacks == "on"


def variable_of(setting: Setting[Any]) -> str:
    """The environment variable of one of our settings."""
    return f"{_PREFIX}{setting.name.upper()}"


class Aliased(Struct, frozen=True):
    """What an application brings: settings of its own, and values found under its own names, by setting."""

    own: tuple[Setting[Any], ...] = ()
    in_file: Mapping[str, RawValue] = {}
    in_environment: Mapping[str, RawValue] = {}
    mistakes: tuple[str, ...] = ()


def load(environment: Mapping[str, str] | None = None, /, **given: Any) -> Config:
    """The settings in force: what is given beats the environment, which beats the file, which beats the default."""
    return config_of(resolve(os.environ if environment is None else environment, given))


def config_of(settled: Mapping[str, SettledValue]) -> Config:
    """The settings in force as the engine's parts take them."""
    return Config(**{one.name: settled[one.name].value for one in SETTINGS})  # type: ignore[arg-type]


def resolve(
    environment: Mapping[str, str],
    given: Mapping[str, Any],
    aliased: Aliased | None = None,
) -> dict[str, SettledValue]:
    """Every setting with its value and where that comes from; raises for all that is wrong together."""
    aliased = aliased or Aliased()
    mistakes = list(aliased.mistakes)
    in_file = _values_of_file(environment, mistakes)
    in_environment = {
        one.name: RawValue(environment[name], SettingOrigin("variable", name))
        for one in SETTINGS
        if (name := variable_of(one)) in environment
    }
    found = (aliased.in_file, in_file, aliased.in_environment, in_environment)
    settled = {name: SettledValue(one.default) for name, one in table_with(aliased.own).items()}
    layers = (*found, given_values(given, "argument"))
    return overlay(settled, layers, table_with(aliased.own), mistakes=mistakes)


def table_with(own: Sequence[Setting[Any]] = ()) -> dict[str, Setting[Any]]:
    """Every setting by its name, those of an application after ours."""
    return {one.name: one for one in (*SETTINGS, *own)}


def given_values(given: Mapping[str, Any], given_as: str) -> dict[str, RawValue]:
    """What is given in code or typed, by setting; None is nothing given."""
    known = [setting.name for setting in SETTINGS]
    for name in given:
        if name not in known:
            raise UnknownName(f"there is no setting {name!r}; there are: {', '.join(known)}")
    return {
        name: RawValue(value, SettingOrigin(given_as, name))
        for name, value in given.items()
        if value is not None
    }


# -- the file --------------------------------------------------------------------------------


def settings_file(environment: Mapping[str, str]) -> str | None:
    """The settings file that is read: the one that is named, else the one in the working folder, if it is there."""
    named = environment.get(FILE_VARIABLE)
    if named is not None:
        return named or None
    return FILE if os.path.lexists(FILE) else None


def _values_of_file(environment: Mapping[str, str], mistakes: list[str]) -> dict[str, RawValue]:
    path = settings_file(environment)
    if path is None:
        return {}
    content = read_file(path)
    known = [one.name for one in SETTINGS]
    mistakes += [unknown_key(name, path, known) for name in content if name not in known]
    return {
        name: RawValue(value, SettingOrigin("file", name, path))
        for name, value in content.items()
        if name in known
    }


def misspelt_variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that set nothing and look like ones that do, each with the one that was probably meant."""
    names = (FILE_VARIABLE, *(variable_of(setting) for setting in SETTINGS))
    known = {name.removeprefix(_PREFIX): name for name in names}
    found = []
    for name in sorted(environment):
        word = name.removeprefix(_PREFIX)
        close = get_close_matches(word, known, n=1, cutoff=ALIKE_MIN)
        if name.startswith(_PREFIX) and word not in known and close:
            found.append((name, known[close[0]]))
    return found


# Settings of a worker that are at odds: when they are, and what to change. What follows from others by arithmetic, such as
# the beat (a third of the lease) or the end of an attempt that is held for too long (its stage's timeout, and on top at
# least the grace and a lease), cannot be.
AT_ODDS: tuple[tuple[Callable[[Config], bool], Callable[[Config], str]], ...] = (
    (
        lambda c: c.poll_s > c.lease_ttl_s / 2,
        lambda c: (
            f"poll_s is {c.poll_s:g} and lease_ttl_s is {c.lease_ttl_s:g}: a worker has to look at the "
            "store twice in a lease, or it learns too late that a job is no longer its own; set poll_s to "
            f"at most {c.lease_ttl_s / 2:g}, or lease_ttl_s to at least {c.poll_s * 2:g}"
        ),
    ),
    (
        lambda c: c.tick_s > c.poll_s,
        lambda c: (
            f"tick_s is {c.tick_s:g} and poll_s is {c.poll_s:g}: a resting worker looks for hints every "
            f"tick, between its polls; set tick_s to at most {c.poll_s:g}, or poll_s to at least {c.tick_s:g}"
        ),
    ),
    (
        lambda c: c.grace_s > TIMEOUT_S_MAX,
        lambda c: (
            f"grace_s is {c.grace_s:g} and no stage's timeout_s is longer than {TIMEOUT_S_MAX:g}: nothing "
            f"is left to wait for after that; set grace_s to at most {TIMEOUT_S_MAX:g}"
        ),
    ),
)


def check_times(config: Config) -> None:
    """Refuse times of a worker that do not fit together, before it starts."""
    for are_at_odds, words in AT_ODDS:
        if are_at_odds(config):
            raise ConfigError(words(config))
