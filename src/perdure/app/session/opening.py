"""Opening a store with the settings in force."""

from typing import Any

from perdure.config import Config, load
from perdure.engine.clock import SystemClock
from perdure.ports import Schema
from perdure.stores import opening, urls
from perdure.stores.opening import Opened


def settings_in_force(**given: Any) -> Config:
    """The settings in force, for surfaces, without an app: what is given beats the environment and the file."""
    return load(**given)


def shown_url(url: str) -> str:
    """The URL of a store without its password."""
    return urls.shown_url(url)


def schema_of(url: str, *, create: bool = True) -> Schema:
    """The schema behind a URL."""
    return opening.schema_of(url, SystemClock(), create=create)


def open_store(
    url: str,
    *,
    create: bool = True,
    wait_s_max: float = 10.0,
    read_only: bool = False,
    connections: int | None = None,
) -> Opened:
    """Open a store; a fresh one gets its schema, an outdated one is refused with advice.

    Without ``connections`` there are as many at most as the settings say, without those of an app.
    """
    return opening.open_store(
        url,
        SystemClock(),
        create=create and not read_only,
        wait_s_max=wait_s_max,
        connections=connections or load().connections,
        read_only=read_only,
    )
