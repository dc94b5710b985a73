"""UUIDv7: time-ordered ids that people see, made by the client."""

import threading
from random import Random

from perdure.ports import Clock


class Ids:
    """A source of ids that never go backwards within one process."""

    def __init__(self, clock: Clock, chance: Random) -> None:
        self._clock = clock
        self._chance = chance
        self._last = 0
        self._one_at_a_time = threading.Lock()

    def next(self) -> str:
        """A new id: 48 bits of milliseconds, 74 bits of chance, counting on within a millisecond."""
        now_ms = int(self._clock.now().timestamp() * 1000)
        fresh = (now_ms << 74) | self._chance.getrandbits(73)
        with self._one_at_a_time:  # two jobs of one id would be taken for one job, sent twice
            number = self._last = fresh if fresh > self._last else self._last + 1
        ms, rest = number >> 74, number & ((1 << 74) - 1)
        high, low = rest >> 62, rest & ((1 << 62) - 1)
        text = f"{(ms << 80) | (7 << 76) | (high << 64) | (2 << 62) | low:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
