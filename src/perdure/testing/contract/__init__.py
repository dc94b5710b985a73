"""The contract that defines what a store is: a backend is whatever passes it.

A store's author subclasses it in a test module and says how a fresh, empty store is opened::

    class TestMyStore(StoreContract):
        def open(self, clock):
            return MyStore(path, clock)  # with the attributes store, control and reader

Moments are the clock's, exact to the microsecond. Ids are UUIDs. Job numbers rise, but may have gaps.
Any runner that knows ``setup_method``, ``teardown_method`` and ``test_`` will do.
"""

from perdure.testing.contract.acting import Acting
from perdure.testing.contract.bulks import Bulks
from perdure.testing.contract.calling import Calling
from perdure.testing.contract.capturing import Capturing
from perdure.testing.contract.claiming import Claiming
from perdure.testing.contract.closing import Closing
from perdure.testing.contract.completing import Completing, LentTransaction
from perdure.testing.contract.conflicting import Conflicting
from perdure.testing.contract.counting import Counting
from perdure.testing.contract.ending import Ending
from perdure.testing.contract.enqueueing import Enqueueing
from perdure.testing.contract.fairness import Fairness
from perdure.testing.contract.following import Following
from perdure.testing.contract.gating import Gating
from perdure.testing.contract.guarding import Guarding
from perdure.testing.contract.items import Items
from perdure.testing.contract.kit import OpenedStore
from perdure.testing.contract.letters import Letters
from perdure.testing.contract.owning import Owning
from perdure.testing.contract.parting import Parting
from perdure.testing.contract.payloads import Payloads
from perdure.testing.contract.pruning import Pruning
from perdure.testing.contract.racing import Racing
from perdure.testing.contract.reading import Reading
from perdure.testing.contract.requesting import Requesting
from perdure.testing.contract.reviving import Reviving
from perdure.testing.contract.running import Running
from perdure.testing.contract.scheduling import Scheduling
from perdure.testing.contract.settling import Settling
from perdure.testing.contract.sharing import Sharing
from perdure.testing.contract.shortcuts import Shortcuts
from perdure.testing.contract.tallying import Tallying
from perdure.testing.contract.working import Working


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
