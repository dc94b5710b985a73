"""The contract that defines what a store is: a backend is whatever passes it.

A store's author subclasses it in a test module and says how a fresh, empty store is opened::

    class TestMyStore(StoreContract):
        def open(self, clock):
            return MyStore(path, clock)  # with the attributes store, control and reader

Moments are the clock's, exact to the microsecond. Ids are UUIDs. Job numbers rise, but may have gaps.
Any runner that knows ``setup_method``, ``teardown_method`` and ``test_`` will do.
"""

from perdure.testing.store_contract.acting import DeedsContract
from perdure.testing.store_contract.bulks import BulksContract
from perdure.testing.store_contract.calling import CallersContract
from perdure.testing.store_contract.capturing import CapturesContract
from perdure.testing.store_contract.claiming import ClaimContract
from perdure.testing.store_contract.closing import ClosedLanesContract
from perdure.testing.store_contract.completing import CompleteContract, LentTransaction
from perdure.testing.store_contract.conflicting import ConflictsContract
from perdure.testing.store_contract.counting import CountsContract
from perdure.testing.store_contract.ending import EndsContract
from perdure.testing.store_contract.enqueueing import EnqueueContract
from perdure.testing.store_contract.fairness import FairnessContract
from perdure.testing.store_contract.following import ChangeFeedContract
from perdure.testing.store_contract.gating import GatesContract
from perdure.testing.store_contract.guarding import GuardsContract
from perdure.testing.store_contract.items import ItemsContract
from perdure.testing.store_contract.kit import OpenedStore
from perdure.testing.store_contract.letters import DeadLettersContract
from perdure.testing.store_contract.owning import OwnersContract
from perdure.testing.store_contract.parting import SlotsContract
from perdure.testing.store_contract.payloads import PayloadsContract
from perdure.testing.store_contract.pruning import PruningContract
from perdure.testing.store_contract.racing import RacesContract
from perdure.testing.store_contract.reading import ReadsContract
from perdure.testing.store_contract.requesting import RequestIdsContract
from perdure.testing.store_contract.reviving import RevivalContract
from perdure.testing.store_contract.running import RunsContract
from perdure.testing.store_contract.scheduling import SchedulesContract
from perdure.testing.store_contract.settling import SettleContract
from perdure.testing.store_contract.sharing import SharingContract
from perdure.testing.store_contract.shortcuts import ShortcutsContract
from perdure.testing.store_contract.tallying import TalliesContract
from perdure.testing.store_contract.working import WorkersContract


class StoreContract(
    EnqueueContract,
    RequestIdsContract,
    CallersContract,
    ClaimContract,
    SlotsContract,
    SettleContract,
    ShortcutsContract,
    GuardsContract,
    WorkersContract,
    ClosedLanesContract,
    GatesContract,
    FairnessContract,
    RevivalContract,
    DeedsContract,
    ConflictsContract,
    DeadLettersContract,
    RunsContract,
    EndsContract,
    CountsContract,
    TalliesContract,
    ItemsContract,
    CapturesContract,
    BulksContract,
    SchedulesContract,
    PruningContract,
    ReadsContract,
    ChangeFeedContract,
    OwnersContract,
    PayloadsContract,
):
    """What every store does; write ``open``."""


class SharedStoreContract(StoreContract, RacesContract, CompleteContract, SharingContract):
    """What a store does that several processes open at once; write ``open``, ``open_again`` and ``lend``."""


__all__ = ["LentTransaction", "OpenedStore", "SharedStoreContract", "StoreContract"]
