"""The public test kit: what your own tests of code that runs on Perdure, or of a store, may want."""

from perdure.testing.clock import VirtualClock
from perdure.testing.payloads import PAYLOADS, REFUSED
from perdure.testing.store_contract import (
    LentTransaction,
    OpenedStore,
    SharedStoreContract,
    StoreContract,
)
from perdure.testing.upstream import CLOSED, HANGING, RESET, After, Answer, Request, Upstream

__all__ = [
    "After",
    "Answer",
    "CLOSED",
    "HANGING",
    "LentTransaction",
    "OpenedStore",
    "PAYLOADS",
    "REFUSED",
    "RESET",
    "Request",
    "SharedStoreContract",
    "StoreContract",
    "Upstream",
    "VirtualClock",
]
