"""What the application is told by its environment; README.md has the table."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from perdure import ConfigError


class Settings(NamedTuple):
    """Where the three outside systems are, and the two numbers that are not the policy's."""

    database: str
    s3_url: str
    s3_bucket: str
    s3_key: str
    s3_secret: str
    llm_url: str
    llm_key: str
    llm_model: str
    timeout_s: float = 180.0  # of a stage, and of whatever it calls: there is no other timeout
    scale: float = 1.0  # of the waits between attempts; 1 in service, less in a demonstration


def settings_of(environment: Mapping[str, str]) -> Settings:
    """The settings, each from REPORTS_ and its name in capitals."""
    found: dict[str, str | float] = {}
    for name, kind in Settings.__annotations__.items():
        variable = f"REPORTS_{name.upper()}"
        told = environment.get(variable)
        if told is None and name in Settings._field_defaults:
            continue
        if not told:
            raise ConfigError(f"{variable} is not set; examples/reports/README.md says what it is")
        found[name] = told if kind is str else _positive(variable, told)
    return Settings(**found)


def _positive(variable: str, told: str) -> float:
    try:
        number = float(told)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"{variable} is {told!r}; write a number above 0")
    return number


SETTINGS = settings_of(os.environ)
