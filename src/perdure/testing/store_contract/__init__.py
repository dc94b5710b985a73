"""The contract that defines what a store is: a backend is whatever passes it.

A store's author subclasses it in a test module and says how a fresh, empty store is opened::

    class TestMyStore(StoreContract):
        def open(self, clock):
            return MyStore(path, clock)  # with the attributes store, control and reader

Moments are the clock's, exact to the microsecond. Ids are UUIDs. Job numbers rise, but may have gaps.
Any runner that knows ``setup_method``, ``teardown_method`` and ``test_`` will do.
"""

from perdure.testing.store_contract.access_tokens import AccessTokensContract
from perdure.testing.store_contract.bulks import BulksContract
from perdure.testing.store_contract.callers import CallersContract
from perdure.testing.store_contract.captures import CapturesContract
from perdure.testing.store_contract.change_feed import ChangeFeedContract
from perdure.testing.store_contract.claim import ClaimContract
from perdure.testing.store_contract.closed_lanes import ClosedLanesContract
from perdure.testing.store_contract.complete import CompleteContract, LentTransaction
from perdure.testing.store_contract.conditions import ConditionsContract
from perdure.testing.store_contract.dead_letters import DeadLettersContract
from perdure.testing.store_contract.enqueue import EnqueueContract
from perdure.testing.store_contract.fair_queues import FairnessContract
from perdure.testing.store_contract.fresh_store import OpenedStore
from perdure.testing.store_contract.gates import GatesContract
from perdure.testing.store_contract.key_conflicts import ConflictsContract
from perdure.testing.store_contract.lane_slots import SlotsContract
from perdure.testing.store_contract.owner_lists import OwnersContract
from perdure.testing.store_contract.owner_rates import OwnerRatesContract
from perdure.testing.store_contract.payloads import PayloadsContract
from perdure.testing.store_contract.pruning import PruningContract
from perdure.testing.store_contract.reads import ReadsContract
from perdure.testing.store_contract.record import SettleContract
from perdure.testing.store_contract.request_ids import RequestIdsContract
from perdure.testing.store_contract.revivals import RevivalContract
from perdure.testing.store_contract.run_counts import CountsContract
from perdure.testing.store_contract.run_ends import EndsContract
from perdure.testing.store_contract.run_items import ItemsContract
from perdure.testing.store_contract.run_races import RacesContract
from perdure.testing.store_contract.runs import RunsContract
from perdure.testing.store_contract.schedules import SchedulesContract
from perdure.testing.store_contract.shared_connections import SharingContract
from perdure.testing.store_contract.shortcuts import ShortcutsContract
from perdure.testing.store_contract.single_jobs import DeedsContract
from perdure.testing.store_contract.tallies import TalliesContract
from perdure.testing.store_contract.token_guard import GuardsContract
from perdure.testing.store_contract.workers import WorkersContract


class StoreContract(
    AccessTokensContract,
    OwnerRatesContract,
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
    ConditionsContract,
):
    """What every store does; write ``open``."""


class SharedStoreContract(StoreContract, RacesContract, CompleteContract, SharingContract):
    """What a store does that several processes open at once; write ``open``, ``open_again`` and ``lend``."""


__all__ = ["LentTransaction", "OpenedStore", "SharedStoreContract", "StoreContract"]
