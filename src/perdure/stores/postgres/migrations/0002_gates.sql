-- compat_min: 2
-- What gates need: the calls that each worker has noted, how limits are parted among workers, which gate closes
-- a lane, how many tokens a job is thought to take; and fair queues, in which owners take turns.

ALTER TABLE perdure_jobs ADD COLUMN tokens bigint;
ALTER TABLE perdure_jobs ADD COLUMN fair boolean NOT NULL DEFAULT false;

-- Where the line of each lane begins, and where that of each owner ends: what the rank of a fair job is made of.
CREATE INDEX perdure_jobs_fair_ready ON perdure_jobs (lane, rank_at) WHERE fair AND ready = 1;
CREATE INDEX perdure_jobs_fair_waiting ON perdure_jobs (owner, lane, rank_at)
    WHERE fair AND ready IS NOT NULL;

-- The calls that one worker has noted lately, for the others; gone with the worker.
CREATE TABLE perdure_gate_samples (
    gate      text NOT NULL,
    worker    bigint NOT NULL,
    saved_at  bigint NOT NULL,
    samples   text NOT NULL,
    PRIMARY KEY (gate, worker)
);

-- How the limits of an upstream are parted among workers, changed by who has seen the generation.
CREATE TABLE perdure_gate_slices (
    gate        text PRIMARY KEY,
    generation  bigint NOT NULL,
    slices      text NOT NULL
);

ALTER TABLE perdure_gate_samples SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200
);
ALTER TABLE perdure_gate_slices SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200
);

-- The lanes from which nothing is claimed, why, and by which gate if it is one; from the few closed things to
-- their lanes.
CREATE OR REPLACE VIEW perdure_closed_lanes AS
SELECT l.no AS lane, 'queue ' || p.name || ' is paused' AS closed_by, NULL::text AS gate
FROM perdure_pauses AS p JOIN perdure_lanes AS l ON l.queue = p.name WHERE p.scope = 'queue'
UNION ALL
SELECT l.no, 'pipeline ' || p.name || ' is paused', NULL
FROM perdure_pauses AS p JOIN perdure_lanes AS l ON l.pipeline = p.name WHERE p.scope = 'pipeline'
UNION ALL
SELECT l.no, 'run ' || p.name || ' is paused', NULL
FROM perdure_pauses AS p JOIN perdure_lanes AS l ON l.run = CASE WHEN p.scope = 'run' THEN p.name::bigint END
WHERE p.scope = 'run' AND l.run IS NOT NULL
UNION ALL
SELECT l.no, 'upstream ' || g.name || ' is ' || g.state, g.name
FROM perdure_gates AS g JOIN perdure_lanes AS l ON l.upstream = g.name
WHERE g.state <> 'flowing' AND l.upstream IS NOT NULL
UNION ALL
SELECT l.no, 'credential ' || k.name || ' is ' || k.state, k.name
FROM perdure_gates AS k JOIN perdure_gates AS g ON g.parent = k.name
JOIN perdure_lanes AS l ON l.upstream = g.name
WHERE k.state <> 'flowing' AND g.parent IS NOT NULL AND l.upstream IS NOT NULL;
