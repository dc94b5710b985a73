-- Keep this worker's samples, by gate, while it lives, and read all there is about these gates and their
-- parents: one JSON value each way. Without samples nothing is written or locked.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
writer AS MATERIALIZED (
    SELECT no FROM perdure_workers
    WHERE no = %(worker)s::bigint AND dead_at IS NULL AND %(samples)s::jsonb <> '{}'::jsonb FOR KEY SHARE
),
kept AS (
    INSERT INTO perdure_gate_samples (gate, worker, saved_at, samples)
    SELECT k.key, w.no, clock.now, k.value
    FROM clock, writer AS w, jsonb_each_text(%(samples)s::jsonb) AS k
    ON CONFLICT (gate, worker) DO UPDATE SET saved_at = excluded.saved_at, samples = excluded.samples
),
named AS MATERIALIZED (
    SELECT n.name FROM jsonb_array_elements_text(%(names)s::jsonb) AS n (name)
),
asked AS MATERIALIZED (
    SELECT name FROM named
    UNION
    SELECT g.parent FROM named AS n JOIN perdure_gates AS g ON g.name = n.name
    WHERE g.parent IS NOT NULL
)
SELECT json_build_object(
    'now', (SELECT now FROM clock),
    'rows', (
        SELECT json_agg(json_build_array({g.gate_columns}) ORDER BY g.name COLLATE "C")
        FROM asked AS a JOIN perdure_gates AS g ON g.name = a.name
    ),
    'samples', (
        SELECT json_agg(
            json_build_array(s.gate, s.worker, s.samples, s.saved_at) ORDER BY s.gate COLLATE "C", s.worker
        )
        FROM asked AS a
        CROSS JOIN clock
        JOIN perdure_gate_samples AS s ON s.gate = a.name
        JOIN perdure_workers AS w ON w.no = s.worker
        WHERE s.worker <> %(worker)s::bigint AND w.dead_at IS NULL
        AND s.saved_at >= clock.now - %(most_us)s::bigint
    ),
    'slices', (
        SELECT json_agg(json_build_array(s.gate, s.generation, s.slices) ORDER BY s.gate COLLATE "C")
        FROM asked AS a JOIN perdure_gate_slices AS s ON s.gate = a.name
    ),
    'alive', (SELECT json_agg(no) FROM perdure_workers WHERE dead_at IS NULL)
)
