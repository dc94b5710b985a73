"""What the application is told by its environment; README.md has the table."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from perdure import ConfigError


class Settings(NamedTuple):
    """Where the store, the model and the files are, what a token costs, and two numbers that are not the policy's."""

    store: str
    folder: Path
    llm_url: str
    llm_key: str
    llm_model: str
    usd_per_mtok_in: float = 0.15
    usd_per_mtok_out: float = 0.60
    timeout_s: float = 60.0  # of a call of the model
    scale: float = 1.0  # of the waits between attempts; 1 in service, less in a demonstration


def settings_of(environment: Mapping[str, str]) -> Settings:
    """The settings, each from DATASETS_ and its name in capitals."""
    found: dict[str, str | float | Path] = {}
    for name, kind in Settings.__annotations__.items():
        variable = f"DATASETS_{name.upper()}"
        told = environment.get(variable)
        if told is None and name in Settings._field_defaults:
            continue
        if not told:
            raise ConfigError(f"{variable} is not set; examples/datasets/README.md says what it is")
        found[name] = _positive(variable, told) if kind is float else kind(told)
    return Settings(**found)


def _positive(variable: str, told: str) -> float:
    try:
        number = float(told)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"{variable} is {told!r}; write a number above 0")
    return number


try:
    SETTINGS = settings_of(os.environ)
except ConfigError as wrong:  # whichever program asks says this and ends
    sys.exit(f"datasets: {wrong}")
