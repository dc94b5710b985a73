"""Opening a store with the settings in force."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from perdure.config import Config, load
from perdure.engine.clock import SystemClock
from perdure.engine.observe import Observers
from perdure.engine.pauses import Pauses
from perdure.model.errors import ConfigError, StoreUnavailable
from perdure.ports import Schema
from perdure.stores import opening, urls
from perdure.stores.opening import Opened

T = TypeVar("T")

_AGAIN = (0.1, 1.0, 2.0)  # the pauses between looks for a store that is away at the start


def settings_in_force(**given: Any) -> Config:
    """The settings in force, for surfaces, without an app: what is given beats the environment and the file."""
    return load(**given)


def shown_url(url: str) -> str:
    """The URL of a store without its password."""
    return urls.shown_url(url)


def is_default_store(url: str) -> bool:
    """Whether a command that names no store finds this one."""
    default = settings_in_force().store
    try:
        return urls.settled_url(url) == urls.settled_url(default)
    except ConfigError:  # the default one is no store at all
        return False


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


def when_there(act: Callable[[], T], wait_s: float, observers: Observers) -> T:
    """What the act gives; a store that is away is waited for: when a machine starts, ours may be up before the server's."""
    give_up_at, pauses = time.monotonic() + wait_s, Pauses(*_AGAIN)
    while True:
        try:
            return act()
        except StoreUnavailable as away:
            pause_s = pauses.next_s()
            if not away.may_pass or time.monotonic() + pause_s > give_up_at:
                raise
            wait = f"it is waited for up to {wait_s:g} s"
            observers.store_is_away(StoreUnavailable(f"{away}; {wait}"))
        time.sleep(pause_s)
