-- compat_min: 2
-- What gates need: the calls that each worker has noted, how limits are parted among workers, which gate closes
-- a lane, how many tokens a job is thought to take; and fair queues, in which owners take turns.

ALTER TABLE perdure_jobs ADD COLUMN tokens INTEGER;
ALTER TABLE perdure_jobs ADD COLUMN fair INTEGER NOT NULL DEFAULT 0 CHECK (fair = 0 OR fair = 1);

-- Where the line of each lane begins, and where that of each owner ends: what the rank of a fair job is made of.
CREATE INDEX perdure_jobs_fair_ready ON perdure_jobs (lane, rank_at) WHERE fair = 1 AND ready = 1;
CREATE INDEX perdure_jobs_fair_waiting ON perdure_jobs (owner, lane, rank_at)
    WHERE fair = 1 AND ready IS NOT NULL;

-- The calls that one worker has noted lately, for the others; gone with the worker.
CREATE TABLE perdure_gate_samples (
    gate      TEXT NOT NULL,
    worker    INTEGER NOT NULL,
    saved_at  INTEGER NOT NULL,
    samples   TEXT NOT NULL,
    PRIMARY KEY (gate, worker)
) WITHOUT ROWID;

-- How the limits of an upstream are parted among workers, changed by who has seen the generation.
CREATE TABLE perdure_gate_slices (
    gate        TEXT PRIMARY KEY,
    generation  INTEGER NOT NULL,
    slices      TEXT NOT NULL
) WITHOUT ROWID;

DROP VIEW perdure_closed_lanes;

-- The lanes from which nothing is claimed, why, and by which gate if it is one; from the few closed things to
-- their lanes, in this order: a CROSS JOIN is never turned round. Each column has one
-- affinity throughout, without which SQLite would copy the rows.
CREATE VIEW perdure_closed_lanes AS
SELECT l.no AS lane, 'queue ' || p.name || ' is paused' AS closed_by, CAST(NULL AS TEXT) AS gate
FROM perdure_pauses AS p JOIN perdure_lanes AS l ON l.queue = p.name WHERE p.scope = 'queue'
UNION ALL
SELECT l.no, 'pipeline ' || p.name || ' is paused', CAST(NULL AS TEXT)
FROM perdure_pauses AS p JOIN perdure_lanes AS l ON l.pipeline = p.name WHERE p.scope = 'pipeline'
UNION ALL
SELECT l.no, 'run ' || p.name || ' is paused', CAST(NULL AS TEXT)
FROM perdure_pauses AS p JOIN perdure_lanes AS l ON l.run = CAST(p.name AS INTEGER)
WHERE p.scope = 'run' AND l.run IS NOT NULL
UNION ALL
SELECT l.no, 'upstream ' || g.name || ' is ' || g.state, g.name
FROM perdure_gates AS g CROSS JOIN perdure_lanes AS l ON l.upstream = g.name
WHERE g.state <> 'flowing' AND l.upstream IS NOT NULL
UNION ALL
SELECT l.no, 'credential ' || k.name || ' is ' || k.state, k.name
FROM perdure_gates AS k CROSS JOIN perdure_gates AS g ON g.parent = k.name
CROSS JOIN perdure_lanes AS l ON l.upstream = g.name
WHERE k.state <> 'flowing' AND g.parent IS NOT NULL AND l.upstream IS NOT NULL;
