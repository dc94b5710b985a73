-- Guarded by (no, token): one that has been given a new life since stays. What another hand holds at this
-- moment is left for the next time. Rows are locked in the order of numbers.
WITH seen AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(seen)s::jsonb) AS s (no bigint, token bigint)
),
held AS MATERIALIZED (
    SELECT j.no, j.owner FROM seen AS s JOIN perdure_jobs AS j ON j.no = s.no AND j.token = s.token
    ORDER BY j.no
    FOR UPDATE OF j SKIP LOCKED
),
owned AS (
    DELETE FROM perdure_owned AS o USING held AS h
    WHERE h.owner <> '' AND o.owner = h.owner AND o.job = h.no
)
DELETE FROM perdure_jobs AS j USING held WHERE j.no = held.no
RETURNING j.no, j.pipeline, j.run, j.redrive_run, j.life, j.state
