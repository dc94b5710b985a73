"""``daemon.yaml``: every key, what it means and what it may be. VERIFIER_CONFIG names another file.

Perdure finds, checks and shows the values as it does its own: ``perdure config show verifier.work:app --origin``.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from perdure import Alias, ConfigError, Setting, Settings, load_settings

_DAY_S = 86_400.0
_HTTP = ("http://", "https://")
VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")  # of the game

SERVICE = Setting("service", str, "", "URL", "Where runs are submitted.")
DATA = Setting("data", str, "verifier-data", "folder", "Where saves and games are kept.")
POLLING_S = Setting("polling_s", int, 900, "seconds", "Between two looks.", 1, 86_400)
LOOK_BACK_S = Setting("look_back_s", float, 30 * _DAY_S, "seconds", "Of polls.", 60, 365 * _DAY_S)
OLDEST_VERSION = Setting("oldest_version", str, "2.0", "", "Of the game that is accepted.")
SAVE_BYTES_MAX = Setting("save_bytes_max", int, 1_000_000, "bytes", "The largest save.", 1, 1 << 30)
ATTEMPTS_MAX = Setting("attempts_max", int, 8, "tries", "The first one included.", 1, 100)
INITIAL_BACKOFF_S = Setting("initial_backoff_s", float, 60.0, "seconds", "First wait.", 0, _DAY_S)
MAX_BACKOFF_S = Setting("max_backoff_s", float, 3_600.0, "seconds", "The longest.", 0, 7 * _DAY_S)
MULTIPLIER = Setting("backoff_multiplier", float, 2.0, "", "Of each next wait.", 1, 100)
REPLAY_TIMEOUT_S = Setting("replay_timeout_s", float, 300.0, "seconds", "For one.", 0.1, _DAY_S)
REPLAY_MEMORY_MB = Setting("replay_memory_mb", int, 512, "MiB", "For one replay.", 64, 1 << 20)
REPLAY_PYTHON = Setting("replay_python", str, sys.executable, "program", "What the game runs on.")

NAMES = (
    Alias("store", key="database"),
    Alias("concurrency", key="concurrency"),
    Alias("retain_succeeded_s", key="keep_days", unit="d"),
    Alias(SERVICE, variable="VERIFIER_SERVICE", key="service", needed=True, begins=_HTTP),
    Alias(DATA, key="data"),
    Alias(POLLING_S, key="polling_interval"),
    Alias(LOOK_BACK_S, key="look_back_days", unit="d"),
    Alias(OLDEST_VERSION, key="oldest_version"),
    Alias(SAVE_BYTES_MAX, key="save_bytes_max"),
    Alias(ATTEMPTS_MAX, key="retry.max_attempts"),
    Alias(INITIAL_BACKOFF_S, key="retry.initial_backoff"),
    Alias(MAX_BACKOFF_S, key="retry.max_backoff"),
    Alias(MULTIPLIER, key="retry.backoff_multiplier"),
    Alias(REPLAY_TIMEOUT_S, key="replay.timeout"),
    Alias(REPLAY_MEMORY_MB, key="replay.memory_mb"),
    Alias(REPLAY_PYTHON, key="replay.python"),
)
# A run is known by its job, so jobs are kept for longer than the look-back: else a poll would find their runs new again.
DEFAULTS = {"database": "sqlite:///verifier.db", "concurrency": 2, "keep_days": 365}
_KEYS = {"games", *((one.key or "").partition(".")[0] for one in NAMES)}

Categories = list[tuple[str, str]]  # (game, category), those that are allowed


def read_settings() -> tuple[Settings, Categories]:
    """The settings in force and the categories; a `ConfigError` names what is wrong, and what it may be."""
    path = Path(os.environ.get("VERIFIER_CONFIG", "daemon.yaml"))
    content = _content(path)
    settings = load_settings(NAMES, file_name=path.name, file_content={**DEFAULTS, **content})
    kept_s = settings["retain_succeeded_s"]
    if kept_s is not None and kept_s <= settings[LOOK_BACK_S]:
        wrong = "must be more than look_back_days, or a run is verified twice"
        raise ConfigError(f"keep_days in {path.name} {wrong}")
    if not VERSION.fullmatch(oldest := settings[OLDEST_VERSION]):
        raise ConfigError(f"oldest_version in {path.name} is {oldest!r}; it must be as 2.0")
    games = content.get("games")
    if not isinstance(games, dict) or not games:
        wrong = "must name the categories of each game, as burrow: [any%]"
        raise ConfigError(f"games in {path.name} {wrong}")
    for game, each in games.items():
        are_names = isinstance(each, list) and all(one and isinstance(one, str) for one in each)
        if not each or not are_names or len({*each}) < len(each):
            wrong = f"is {each!r}; it must be a list of names, each once, as [any%]"
            raise ConfigError(f"games.{game} in {path.name} {wrong}")
    kept = "forever" if kept_s is None else kept_s
    same = settings.with_given({"retain_cancelled_s": kept, "retain_discarded_s": kept})
    return same, [(str(game), one) for game, each in games.items() for one in each]


def _content(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as wrong:
        remedy = "write one, or name it with --config"
        raise ConfigError(f"{path} cannot be read ({wrong.strerror}); {remedy}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise ConfigError(f"{path} is no YAML: {' '.join(str(wrong).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must have keys, as service: http://…")
    unknown = ", ".join(sorted(str(one) for one in set(content) - _KEYS))
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise ConfigError(f"{path.name} has no key {unknown}; its keys are {known}")
    return content
