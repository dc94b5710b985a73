-- compat_min: 6
-- Whose and when: the jobs that have an owner, so that lists of one owner's jobs, newest first or by their last change,
-- cost what they return. A table of its own: the wide row of a job keeps its indexes, a claim touches nothing here, and
-- jobs without an owner have no row. ``ended`` is 0 while the job is open, then 1 succeeded, 2 failed, 3 cancelled.
-- ``changed_at`` is when the job came in, an attempt of it ended, or it ended, had a new life or was discarded.

CREATE TABLE perdure_owned (
    job         bigint NOT NULL,
    changed_at  bigint NOT NULL,
    ended       smallint NOT NULL CHECK (ended IN (0, 1, 2, 3)),
    owner       text NOT NULL CHECK (owner <> ''),
    PRIMARY KEY (owner, ended, job)
);

CREATE INDEX perdure_owned_changed ON perdure_owned (owner, changed_at, job);

ALTER TABLE perdure_owned SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 1000,
    autovacuum_vacuum_cost_delay = 1
);

-- A claim has moved ``updated_at`` of what is in work; its last change was the end of an attempt, or that it came in.
INSERT INTO perdure_owned (owner, ended, job, changed_at)
SELECT
    j.owner, CASE j.state WHEN 'succeeded' THEN 1 WHEN 'failed' THEN 2 WHEN 'cancelled' THEN 3 ELSE 0 END, j.no,
    CASE WHEN j.state = 'processing' THEN coalesce((
        SELECT a.settled_at FROM perdure_attempts AS a WHERE a.job = j.no ORDER BY a.token DESC LIMIT 1
    ), j.enqueued_at) ELSE j.updated_at END
FROM perdure_jobs AS j
WHERE j.owner <> '';
