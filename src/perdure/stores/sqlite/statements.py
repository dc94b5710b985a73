"""The statements of this store."""

from perdure.stores.columns import COUNTERS, RUN_COUNTS, pieces
from perdure.stores.statements import Statements

_KINDS = """(SELECT json_group_object(kind, failed) FROM (
    SELECT k.kind, sum(k.failed) AS failed FROM perdure_run_kinds AS k
    WHERE k.run = @no GROUP BY k.kind
))"""
_SUMS = {f"c.{one}": f"coalesce(sum(c.{one}), 0)" for one in RUN_COUNTS}
_PIECES = {
    **pieces({**_SUMS, "k.kinds": _KINDS}),
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
    closed_lanes: str
    dead_letter: str
    deaths_add: str
    deaths_forget: str
    depths_add: str
    depths_forget: str
    due_lanes: str
    enqueue_more: str
    fair_ends: str
    fair_starts: str
    firsts: str
    flows_add: str
    flows_forget: str
    gates_among: str
    heads: str
    ids_taken: str
    lane_no: str
    least_tried: str
    matched: str
    next_due: str
    numbered: str
    owned_add: str
    owned_put: str
    owners_add: str
    owners_forget: str
    payload_keep: str
    prune_deaths: str
    prune_depths: str
    prune_flows: str
    prune_owned: str
    queues: str
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
