"""The environment of the converter: every name of its design document, what it means and what it may be.

A name that is not set has the document's number. Perdure's own variables (PERDURE_GRACE_S, …) work beside these.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


class BadSetting(Exception):
    """A variable that is missing, or says what it cannot mean."""


@dataclass(frozen=True)
class Settings:
    """What the environment says, in seconds, bytes and shares."""

    database_url: str
    gateway_url: str
    uploads_dir: Path
    results_dir: Path
    attempts_max: int = 3
    base_delay_s: float = 5.0
    jitter_s_max: float = 5.0
    lease_ttl_s: float = 90.0  # a worker's lease is extended every third of it: every 30 s
    gateway_timeout_s: float = 60.0
    concurrency: int = 4
    circuit_window: int = 20
    circuit_fail_threshold: float = 0.5
    circuit_cooldown_s: float = 60.0
    results_kept_s: float = 86_400.0
    upload_bytes_max: int = 20_000_000

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> "Settings":
        """The settings in force; `BadSetting` names the variable, its value and what it may be."""
        source = os.environ if environment is None else environment
        found: dict[str, Any] = {}
        for name, (field, meaning) in NAMES.items():
            if source.get(name):
                found[field] = _understood(name, source[name], meaning)
        needed = {field.name for field in fields(cls)[:4]} - set(found)
        if missing := sorted(name for name, (field, _) in NAMES.items() if field in needed):
            raise BadSetting(
                f"not set: {', '.join(missing)}; examples/converter/README.md says what they are"
            )
        return cls(**found)


def _understood(name: str, raw: str, meaning: Callable[[str], Any]) -> Any:
    try:
        return meaning(raw)
    except ValueError as wrong:
        raise BadSetting(f"{name} is {raw!r}; it must be {wrong}") from None


def _number(what: str, least: float, most: float, unit: float = 1.0) -> Callable[[str], float]:
    def meaning(raw: str) -> float:
        try:
            value = float(raw)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise ValueError(f"{what} from {least:g} to {most:g}")
        return value * unit

    return meaning


def _whole(what: str, least: int, most: int) -> Callable[[str], int]:
    def meaning(raw: str) -> int:
        if not raw.isascii() or not raw.isdecimal() or not least <= int(raw) <= most:
            raise ValueError(f"a whole number of {what} from {least} to {most}")
        return int(raw)

    return meaning


def _url(*schemes: str) -> Callable[[str], str]:
    def meaning(raw: str) -> str:
        if not raw.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            raise ValueError(f"an address that begins with {' or '.join(schemes)}://")
        return raw.rstrip("/")

    return meaning


_DAY_MS = 86_400_000.0

NAMES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "DATABASE_URL": ("database_url", _url("postgresql", "postgres")),
    "GATEWAY_URL": ("gateway_url", _url("http", "https")),
    "UPLOADS_DIR": ("uploads_dir", Path),
    "RESULTS_DIR": ("results_dir", Path),
    "RETRY_MAX_ATTEMPTS": ("attempts_max", _whole("attempts", 1, 100)),
    "RETRY_BASE_DELAY_MS": ("base_delay_s", _number("milliseconds", 0, _DAY_MS, 0.001)),
    "RETRY_JITTER_MAX_MS": ("jitter_s_max", _number("milliseconds", 0, _DAY_MS, 0.001)),
    "WORKER_LEASE_TTL_SEC": ("lease_ttl_s", _number("seconds", 2, 86_400)),
    "GATEWAY_TIMEOUT_MS": ("gateway_timeout_s", _number("milliseconds", 1, _DAY_MS, 0.001)),
    "WORKER_CONCURRENCY": ("concurrency", _whole("jobs", 1, 1_000)),
    "CIRCUIT_WINDOW": ("circuit_window", _whole("calls", 1, 1_000)),
    "CIRCUIT_FAIL_THRESHOLD": (
        "circuit_fail_threshold",
        _number("a share (0.5 is half of the calls)", 0.01, 1),
    ),
    "CIRCUIT_COOLDOWN_MS": ("circuit_cooldown_s", _number("milliseconds", 1_000, _DAY_MS, 0.001)),
    # Not in the document, which leaves both open.
    "RESULTS_KEPT_SEC": ("results_kept_s", _number("seconds", 0, 10 * 365 * 86_400)),
    "UPLOAD_MAX_BYTES": ("upload_bytes_max", _whole("bytes", 1_024, 1_024**3)),
}
