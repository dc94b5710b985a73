-- `runs_page.sql` among the few that are not over.
SELECT
    r.no, r.id, r.owner, r.pipeline, r.name, r.status, r.parent, r.settings, r.created_at,
    r.changed_at, r.ended_at, r.sealed_at, r.why, r.checked, r.fed_by, r.feeding_at, r.fed_at,
    coalesce(sum(c.total), 0), coalesce(sum(c.succeeded), 0), coalesce(sum(c.failed), 0),
    coalesce(sum(c.cancelled), 0), coalesce(sum(c.attempts), 0), coalesce(sum(c.retries), 0),
    coalesce(sum(c.tokens_in), 0), coalesce(sum(c.tokens_out), 0), coalesce(sum(c.cost_nusd), 0),
    coalesce(sum(c.calls), 0),
    (SELECT json_group_object(kind, failed) FROM (
        SELECT k.kind, sum(k.failed) AS failed FROM perdure_run_kinds AS k
        WHERE k.run = r.no GROUP BY k.kind
    ))
FROM (
    SELECT * FROM perdure_runs
    WHERE ended_at IS NULL AND no >= :floor AND no < :before
    AND (:pipeline IS NULL OR pipeline = :pipeline) AND (:owner IS NULL OR owner = :owner)
    AND (:name IS NULL OR name = :name)
    ORDER BY no DESC LIMIT :limit
) AS r
LEFT JOIN perdure_run_counts AS c ON c.run = r.no
GROUP BY r.no ORDER BY r.no DESC
