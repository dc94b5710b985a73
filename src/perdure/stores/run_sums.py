"""The counts of a run, one row for each of its writers, are summed when they are read: so its budget is checked."""

from perdure.stores.columns import RUN_COUNTS

# For SQLite: in place of the columns, in a statement that groups the rows of `perdure_run_counts` by run.
GROUPED = {f"c.{one}": f"coalesce(sum(c.{one}), 0)" for one in RUN_COUNTS} | {
    "k.kinds": """(SELECT json_group_object(kind, failed) FROM (
    SELECT k.kind, sum(k.failed) AS failed FROM perdure_run_kinds AS k
    WHERE k.run = @no GROUP BY k.kind
))"""
}

# For PostgreSQL: joined to each run.
_JOINED = """CROSS JOIN LATERAL (
    SELECT {sums}
    FROM perdure_run_counts WHERE run = r.no
) AS c
CROSS JOIN LATERAL (
    SELECT json_object_agg(f.kind, f.failed)::text AS kinds FROM (
        SELECT kind, sum(failed) AS failed FROM perdure_run_kinds WHERE run = r.no GROUP BY kind
    ) AS f
) AS k"""
JOINED = _JOINED.format(sums=", ".join(f"coalesce(sum({one}), 0) AS {one}" for one in RUN_COUNTS))
