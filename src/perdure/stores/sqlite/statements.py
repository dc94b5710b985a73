"""The statements of this store."""

from perdure.stores import run_sums
from perdure.stores.columns import COUNTERS, pieces
from perdure.stores.statements import Statements

_PIECES = {
    **pieces(run_sums.GROUPED),
    "counters_bound": ", ".join(f"{one} = ?" for one in COUNTERS),
    "now": ":now",
}


class SqliteStatements(Statements):
    """The statements that only this store has."""

    attempts_add: str
    attempts_add_more: str
    bulk_payload_add: str
    busy_lanes: str
    captures_add: str
    changes_stand: str
    checkpoint_forget: str
    checkpoints_add: str
    closed_lane_nos: str
    dead_letter: str
    deaths_add: str
    deaths_forget: str
    depths_add: str
    depths_forget: str
    due_lanes: str
    enqueue_more: str
    fair_ends: str
    fair_starts: str
    flows_add: str
    flows_forget: str
    gates_among: str
    ids_taken: str
    lane_firsts: str
    lane_heads: str
    lane_no: str
    last_job_no: str
    next_due: str
    owned_add: str
    owned_put: str
    owners_add: str
    owners_forget: str
    payload_keep: str
    probe_pick: str
    prune_deaths: str
    prune_depths: str
    prune_flows: str
    prune_owned: str
    queues: str
    records_matched: str
    redrive_add: str
    refusal_add: str
    run_counts_add: str
    run_kinds_add: str
    runs_take_in: str
    samples_among: str
    samples_keep: str
    slices_among: str
    worker_booted: str
    workers_alive: str


SQL = SqliteStatements("perdure.stores.sqlite", _PIECES)
