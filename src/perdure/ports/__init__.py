"""What the engine needs of the world.

The store port is synchronous and speaks the domain. Every method is one transaction, every moment
in it is by the store's own clock, and each raises only errors of `model.errors.StoreError`. After
``StoreUnavailable`` the caller does not know whether the write took place: it sends the same call
again, and the store answers as if it had been the first time.

`Store` is the walk, `Control` what operators and the upkeep do, `Reader` what screens show; they are apart so that
a screen can be given nothing that writes. In each, methods stand by the noun that they are about, with the files of the
contract suite, `perdure.testing.store_contract`, that define what these have to do: a store is what passes it.
"""

from perdure.ports.clock import Clock
from perdure.ports.control import Control
from perdure.ports.observer import Observer
from perdure.ports.reader import Reader
from perdure.ports.schema import Schema
from perdure.ports.store import Store

__all__ = ["Clock", "Control", "Observer", "Reader", "Schema", "Store"]
