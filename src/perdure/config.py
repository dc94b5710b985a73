"""One table of settings: name, type, default, unit, help, secret. Environment beats default."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from perdure.model.errors import ConfigError, UnknownName
from perdure.model.limits import PROCESSES_MAX, TIMEOUT_S_MAX

_PREFIX = "PERDURE_"
_ALIKE_MIN = 0.65  # STORE_URI is meant for STORE (0.71), SEED is not (0.44)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; its environment variable is PERDURE_ and its name in capitals."""

    name: str
    type: type
    default: Any
    unit: str
    help: str
    least: float | None = None
    most: float | None = None
    secret: bool = False
    choices: tuple[str, ...] = ()
    none: str = ""  # the word that means None, where that is allowed

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"{_PREFIX}{self.name.upper()}"


SETTINGS: tuple[Setting, ...] = (
    Setting("store", str, "sqlite:///perdure.db", "URL", "Where jobs are kept.", secret=True),
    Setting(
        "connections", int, 8, "connections", "Most of them to a PostgreSQL store in a process.", 1
    ),
    Setting(
        "store_wait_s",
        float,
        60.0,
        "seconds",
        "How long a worker that starts waits for a store that is away: it refuses connections, or is "
        "starting up. 0 ends it at once.",
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
    aliases: str

    @property
    def keeps_tracebacks(self) -> bool:
        """Whether tracebacks are put aside."""
        return self.capture_tracebacks == "on"


def load(environment: Mapping[str, str] | None = None, /, **given: Any) -> Config:
    """The settings in force: what is given beats the environment, which beats the default."""
    known = [setting.name for setting in SETTINGS]
    for name in given:
        if name not in known:
            raise UnknownName(f"there is no setting {name!r}; there are: {', '.join(known)}")
    source = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        if given.get(setting.name) is not None:
            values[setting.name] = _check(setting, given[setting.name], setting.name)
        elif setting.variable in source:
            values[setting.name] = _check(setting, source[setting.variable], setting.variable)
        else:
            values[setting.name] = setting.default
    return Config(**values)


def misspelt_variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that set nothing and look like ones that do, each with the one that was probably meant."""
    known = {setting.name.upper(): setting.variable for setting in SETTINGS}
    found = []
    for name in sorted(environment):
        word = name.removeprefix(_PREFIX)
        close = get_close_matches(word, known, n=1, cutoff=_ALIKE_MIN)
        if name.startswith(_PREFIX) and word not in known and close:
            found.append((name, known[close[0]]))
    return found


def _check(setting: Setting, raw: Any, origin: str) -> Any:
    if setting.none and str(raw).lower() == setting.none:
        return None
    try:
        value = setting.type(raw)
    except ValueError:
        word = f", or {setting.none}" if setting.none else ""
        raise ConfigError(
            f"{origin} is {raw!r}; it must be of type {setting.type.__name__}{word}"
        ) from None
    if setting.choices:
        value = next((one for one in setting.choices if one.lower() == str(value).lower()), None)
        if value is None:
            raise ConfigError(f"{origin} is {raw!r}; one of: {', '.join(setting.choices)}")
    if setting.least is not None and not setting.least <= value < float("inf"):
        raise ConfigError(f"{origin} is {raw!r}; it must be at least {setting.least:g}")
    if setting.most is not None and value > setting.most:
        raise ConfigError(f"{origin} is {raw!r}; it must be at most {setting.most:g}")
    return value


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
