"""The public test kit: what your own tests of code that runs on Perdure may want."""

from perdure.testing.clock import VirtualClock
from perdure.testing.upstream import CLOSED, HANGING, RESET, After, Answer, Request, Upstream

__all__ = [
    "After",
    "Answer",
    "CLOSED",
    "HANGING",
    "RESET",
    "Request",
    "Upstream",
    "VirtualClock",
]
