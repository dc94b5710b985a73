"""The statements of this store."""

from perdure.stores import run_sums
from perdure.stores.columns import COUNTED, COUNTERS, pieces
from perdure.stores.statements import Statements, as_psycopg_reads

_TYPES = {int: "integer", float: "double precision"}
_PIECES = {
    **pieces({"@id": "@id::text", "length(@content)": "octet_length(@content)"}),
    "run_sums": run_sums.JOINED,
    "counters_recorded": ", ".join(f"{one} = coalesce(@{one}, 0)" for one in COUNTED),
    "counters_typed": ", ".join(f"{one} {_TYPES[kind]}" for one, kind in COUNTERS.items()),
    # The moment that a test has set, or else the server's own.
    "now": "coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)",
}


class PostgresStatements(Statements):
    """The statements that only this store has."""

    bulk_payloads_add: str
    bulk_refuse: str
    changes_now: str
    checkpoints_forget: str
    clock: str
    condition: str
    depths_fold: str
    fair_lines: str
    gates_look: str
    jobs_lock: str
    lanes_find: str
    notify: str
    owners_ended_fold: str
    owners_fold: str
    probe_claim: str
    probe_promote: str
    revive_lock: str
    run_counts_fold: str
    run_kinds_fold: str
    run_lock: str
    runs_lock: str
    waiting: str
    worker_quiet: str
    worker_writing: str


SQL = PostgresStatements("perdure.stores.postgres", _PIECES, as_psycopg_reads)
