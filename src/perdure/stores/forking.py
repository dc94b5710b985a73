"""A process that was forked off has none of its parent's threads, and its parent's connections are not its own.

Whoever has a lock, a thread or a connection is told so in the child, before anything else runs there: it begins
anew, and leaves what it had as it is. A web server that loads an application and then forks is the usual case.
"""

import os
from typing import Protocol
from weakref import WeakSet


class LeftByFork(Protocol):
    """Something that a forked process has to begin anew."""

    def begin_anew(self) -> None:
        """This is a child now: no other thread is here, and connections and locks are the parent's."""
        ...


_ALL: "WeakSet[LeftByFork]" = WeakSet()


def tell_of_forks(one: LeftByFork) -> None:
    """Tell this object of every fork, for as long as it lives."""
    _ALL.add(one)


def _tell() -> None:
    for one in list(_ALL):
        one.begin_anew()


os.register_at_fork(after_in_child=_tell)
