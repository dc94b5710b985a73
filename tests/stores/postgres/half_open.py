"""Run in a network of its own whose only interface is then taken down: who notices, and how soon.

Packets vanish, as when the other host has lost power or a cable was pulled: nobody says goodbye and nobody
resets. Prints the seconds after which each connection knew, null for one that did not.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from perdure.model.errors import StoreError
from tests.servers.postgres import Server
from tests.stores.postgres.kit import Place

LOOK_S_MAX = 100.0  # only against a hang


def interface(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def asleep(place: Place) -> Callable[[], None]:
    """A statement under way, whose answer never comes: all was acknowledged, so only probes can tell."""

    def ask() -> None:
        with place.connection.autocommit() as cx:
            cx.execute("SELECT pg_sleep(60)")

    return ask


def listening(place: Place) -> Callable[[], None]:
    """An idle connection that waits for hints."""

    def listen() -> None:
        while not place.store.has_changed():
            threading.Event().wait(0.05)
        raise StoreError("the line is gone")

    return listen


def speaking(place: Place, cut: threading.Event) -> Callable[[], None]:
    """A statement sent after the line is gone: it is never acknowledged."""

    def speak() -> None:
        with place.connection.autocommit() as cx:
            cut.wait()
            cx.execute("SELECT 1")

    return speak


def timed(work: Callable[[], None], cut: threading.Event, found: dict, name: str) -> None:
    try:
        work()
    except StoreError:
        found[name] = time.monotonic() - found["cut_at_s"] if cut.is_set() else -1.0


def main() -> None:
    interface("up")
    cut, found = threading.Event(), {"cut_at_s": 0.0}
    with Server(in_memory=True) as server:
        url = server.create_database()
        place = Place(url)
        place.store.has_changed()
        place.store.has_changed()
        careless = Place(f"{url}?keepalives=0&tcp_user_timeout=0", series=1)
        works = {
            "asleep": asleep(place),
            "listening": listening(place),
            "speaking": speaking(place, cut),
            "careless": asleep(careless),
        }
        for name, work in works.items():
            threading.Thread(target=timed, args=(work, cut, found, name), daemon=True).start()
        with server.admin() as cx:
            while cx.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"
            ).fetchone() != (2,):
                threading.Event().wait(0.05)
        found["cut_at_s"] = time.monotonic()
        interface("down")
        cut.set()
        # Until the three have noticed that may; by then the careless one has not.
        while len(found) < len(works) and time.monotonic() - found["cut_at_s"] < LOOK_S_MAX:
            threading.Event().wait(0.05)
        result = {name: found.get(name) for name in works}
        interface("up")
        json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
