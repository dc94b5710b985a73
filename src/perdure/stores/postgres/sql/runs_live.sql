-- `runs_page.sql` for runs that are not over, by an index that holds no others.
SELECT
    r.no, r.id::text, r.owner, r.pipeline, r.name, r.status, r.parent, r.settings, r.created_at,
    r.changed_at, r.ended_at, r.sealed_at, r.why, r.checked, r.fed_by, r.feeding_at, r.fed_at,
    c.total, c.succeeded, c.failed, c.cancelled, c.attempts, c.retries, c.tokens_in, c.tokens_out,
    c.cost_nusd, c.calls, k.kinds
FROM (
    SELECT * FROM perdure_runs
    WHERE ended_at IS NULL AND no >= %(floor)s::bigint AND no < %(before)s::bigint
    AND (%(pipeline)s::text IS NULL OR pipeline = %(pipeline)s)
    AND (%(owner)s::text IS NULL OR owner = %(owner)s)
    AND (%(name)s::text IS NULL OR name = %(name)s)
    ORDER BY no DESC LIMIT %(limit)s
) AS r
CROSS JOIN LATERAL (
    SELECT
        coalesce(sum(total), 0) AS total, coalesce(sum(succeeded), 0) AS succeeded,
        coalesce(sum(failed), 0) AS failed, coalesce(sum(cancelled), 0) AS cancelled,
        coalesce(sum(attempts), 0) AS attempts, coalesce(sum(retries), 0) AS retries,
        coalesce(sum(tokens_in), 0) AS tokens_in, coalesce(sum(tokens_out), 0) AS tokens_out,
        coalesce(sum(cost_nusd), 0) AS cost_nusd, coalesce(sum(calls), 0) AS calls
    FROM perdure_run_counts WHERE run = r.no
) AS c
CROSS JOIN LATERAL (
    SELECT json_object_agg(f.kind, f.failed)::text AS kinds FROM (
        SELECT kind, sum(failed) AS failed FROM perdure_run_kinds WHERE run = r.no GROUP BY kind
    ) AS f
) AS k
ORDER BY r.no DESC
