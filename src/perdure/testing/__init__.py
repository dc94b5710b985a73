"""The public test kit: what your own tests of code that runs on Perdure may want."""

from perdure.testing.clock import VirtualClock

__all__ = ["VirtualClock"]
