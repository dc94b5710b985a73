"""What wakes a resting thread: rung from any thread, and from a signal handler, because it takes no lock."""

import math
import select
import socket
from contextlib import suppress


class Bell:
    """A pair of sockets, one to ring at and one to listen at. What was rung before a rest ends that, too."""

    def __init__(self) -> None:
        self._rings, self._hears = socket.socketpair()
        self._rings.setblocking(False)
        self._hears.setblocking(False)

    def ring(self) -> None:
        """Wake whoever rests, or the next who would."""
        with suppress(OSError):  # full of words, or closed: then nobody rests any more
            self._rings.send(b"!")

    def rest(self, wait_s: float, ear: int | None = None) -> bool:
        """Wait until it is rung, ``ear`` has something to read, or the time is over; whether it was rung."""
        poll = select.poll()  # not select: with many sockets open, numbers are beyond its reach
        poll.register(self._hears, select.POLLIN)
        if ear is not None:
            poll.register(ear, select.POLLIN)
        poll.poll(math.ceil(wait_s * 1000))
        try:
            return bool(self._hears.recv(4096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Nobody rests here any more."""
        self._rings.close()
        self._hears.close()
