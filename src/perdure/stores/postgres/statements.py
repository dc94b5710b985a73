"""The statements of this store."""

from perdure.stores.columns import COUNTED, COUNTERS, RUN_COUNTS, pieces
from perdure.stores.statements import Statements, as_psycopg_reads

_RUN_SUMS = """CROSS JOIN LATERAL (
    SELECT {sums}
    FROM perdure_run_counts WHERE run = r.no
) AS c
CROSS JOIN LATERAL (
    SELECT json_object_agg(f.kind, f.failed)::text AS kinds FROM (
        SELECT kind, sum(failed) AS failed FROM perdure_run_kinds WHERE run = r.no GROUP BY kind
    ) AS f
) AS k"""
_TYPES = {int: "integer", float: "double precision"}
_PIECES = {
    **pieces({"@id": "@id::text", "length(@content)": "octet_length(@content)"}),
    "run_sums": _RUN_SUMS.format(
        sums=", ".join(f"coalesce(sum({one}), 0) AS {one}" for one in RUN_COUNTS)
    ),
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
    jobs_hold: str
    lanes_find: str
    notify: str
    owners_ended_fold: str
    owners_fold: str
    probe_claim: str
    probe_promote: str
    revive_hold: str
    run_counts_fold: str
    run_hold: str
    run_kinds_fold: str
    runs_hold: str
    waiting: str
    worker_quiet: str
    worker_writing: str


SQL = PostgresStatements("perdure.stores.postgres", _PIECES, as_psycopg_reads)
