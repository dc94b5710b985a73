"""The contract that defines what a store is: a backend is whatever passes it.

A store's author subclasses it in a test module and says how a fresh, empty store is opened::

    class TestMyStore(StoreContract):
        def open(self, clock):
            return MyStore(path, clock)  # with the attributes store, control and reader

Moments are the clock's, exact to the microsecond. Ids are UUIDs. Job numbers rise, but may have gaps.
Any runner that knows ``setup_method``, ``teardown_method`` and ``test_`` will do.
"""

from perdure.testing.store_contract.acting import Acting
from perdure.testing.store_contract.bulks import Bulks
from perdure.testing.store_contract.calling import Calling
from perdure.testing.store_contract.capturing import Capturing
from perdure.testing.store_contract.claiming import Claiming
from perdure.testing.store_contract.closing import Closing
from perdure.testing.store_contract.completing import Completing, LentTransaction
from perdure.testing.store_contract.conflicting import Conflicting
from perdure.testing.store_contract.counting import Counting
from perdure.testing.store_contract.ending import Ending
from perdure.testing.store_contract.enqueueing import Enqueueing
from perdure.testing.store_contract.fairness import Fairness
from perdure.testing.store_contract.following import Following
from perdure.testing.store_contract.gating import Gating
from perdure.testing.store_contract.guarding import Guarding
from perdure.testing.store_contract.items import Items
from perdure.testing.store_contract.kit import OpenedStore
from perdure.testing.store_contract.letters import Letters
from perdure.testing.store_contract.owning import Owning
from perdure.testing.store_contract.parting import Parting
from perdure.testing.store_contract.payloads import Payloads
from perdure.testing.store_contract.pruning import Pruning
from perdure.testing.store_contract.racing import Racing
from perdure.testing.store_contract.reading import Reading
from perdure.testing.store_contract.requesting import Requesting
from perdure.testing.store_contract.reviving import Reviving
from perdure.testing.store_contract.running import Running
from perdure.testing.store_contract.scheduling import Scheduling
from perdure.testing.store_contract.settling import Settling
from perdure.testing.store_contract.sharing import Sharing
from perdure.testing.store_contract.shortcuts import Shortcuts
from perdure.testing.store_contract.tallying import Tallying
from perdure.testing.store_contract.working import Working


class StoreContract(
    Enqueueing,
    Requesting,
    Calling,
    Claiming,
    Parting,
    Settling,
    Shortcuts,
    Guarding,
    Working,
    Closing,
    Gating,
    Fairness,
    Reviving,
    Acting,
    Conflicting,
    Letters,
    Running,
    Ending,
    Counting,
    Tallying,
    Items,
    Capturing,
    Bulks,
    Scheduling,
    Pruning,
    Reading,
    Following,
    Owning,
    Payloads,
):
    """What every store does; write ``open``."""


class SharedStoreContract(StoreContract, Racing, Completing, Sharing):
    """What a store does that several processes open at once; write ``open``, ``open_again`` and ``lend``."""


__all__ = ["LentTransaction", "OpenedStore", "SharedStoreContract", "StoreContract"]
