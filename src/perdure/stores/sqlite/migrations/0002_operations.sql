-- compat_min: 2
-- Runs, gates, pauses, schedules and what operators do; lanes of runs; hot tables without foreign keys,
-- whose place the audit takes. Runs with foreign keys switched off, as SQLite wants it for rebuilt tables.

DROP INDEX perdure_jobs_ready;
DROP INDEX perdure_jobs_later;
DROP INDEX perdure_jobs_suspect;
DROP INDEX perdure_jobs_held;
DROP INDEX perdure_jobs_failed;
DROP INDEX perdure_jobs_key;

DROP INDEX perdure_workers_alive;
DROP INDEX perdure_workers_unsettled;

ALTER TABLE perdure_lanes RENAME TO perdure_old_lanes;
ALTER TABLE perdure_workers RENAME TO perdure_old_workers;
ALTER TABLE perdure_jobs RENAME TO perdure_old_jobs;
ALTER TABLE perdure_attempts RENAME TO perdure_old_attempts;
ALTER TABLE perdure_checkpoints RENAME TO perdure_old_checkpoints;

CREATE TABLE perdure_lanes (
    no        INTEGER PRIMARY KEY AUTOINCREMENT,
    queue     TEXT NOT NULL,
    category  TEXT NOT NULL,
    pipeline  TEXT NOT NULL,
    stage     TEXT NOT NULL,
    run       INTEGER,
    upstream  TEXT
);

CREATE UNIQUE INDEX perdure_lanes_name
    ON perdure_lanes (pipeline, stage, queue, category, coalesce(run, 0));
CREATE INDEX perdure_lanes_queue ON perdure_lanes (queue);
CREATE INDEX perdure_lanes_run ON perdure_lanes (run) WHERE run IS NOT NULL;
CREATE INDEX perdure_lanes_upstream ON perdure_lanes (upstream) WHERE upstream IS NOT NULL;

-- A caller runs a job itself while it waits; nobody beats for it, and its jobs are found by their hard limit.
CREATE TABLE perdure_workers (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    boot        TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    role        TEXT NOT NULL CHECK (role IN ('main', 'suspects', 'alone', 'caller')),
    ttl_us      INTEGER NOT NULL CHECK (ttl_us > 0),
    started_at  INTEGER NOT NULL,
    beat_at     INTEGER NOT NULL,
    steady_at   INTEGER NOT NULL,
    dead_at     INTEGER,
    death       TEXT,
    settled_at  INTEGER,
    CHECK ((dead_at IS NULL) = (death IS NULL)),
    CHECK (settled_at IS NULL OR dead_at IS NOT NULL)
);

CREATE INDEX perdure_workers_alive ON perdure_workers (beat_at) WHERE dead_at IS NULL;
CREATE INDEX perdure_workers_unsettled ON perdure_workers (no)
    WHERE dead_at IS NOT NULL AND settled_at IS NULL;

-- The checks of hot tables are chains of OR: for an IN of more than two SQLite builds a small table each time,
-- which doubled the cost of an insert (3.40).
CREATE TABLE perdure_jobs (
    no              INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL UNIQUE,
    owner           TEXT NOT NULL,
    pipeline        TEXT NOT NULL,
    run             INTEGER,
    redrive_run     INTEGER,
    key             TEXT,
    lane            INTEGER NOT NULL,
    stage           TEXT NOT NULL,
    state           TEXT NOT NULL
        CHECK (state = 'queued' OR state = 'processing' OR state = 'succeeded' OR state = 'failed'
            OR state = 'cancelled'),
    ready           INTEGER CHECK (ready = 0 OR ready = 1),
    isolation       INTEGER NOT NULL DEFAULT 0 CHECK (isolation = 0 OR isolation = 1 OR isolation = 2),
    token           INTEGER NOT NULL DEFAULT 0,
    life            INTEGER NOT NULL DEFAULT 1,
    worker          INTEGER,
    priority        INTEGER NOT NULL,
    order_at        INTEGER NOT NULL,
    rank_at         INTEGER NOT NULL,
    enqueued_at     INTEGER NOT NULL,
    due_at          INTEGER NOT NULL,
    claimed_at      INTEGER,
    deadline_at     INTEGER,
    hard_at         INTEGER,
    on_lost         TEXT CHECK (on_lost = 'hand_over' OR on_lost = 'drop'),
    finished_at     INTEGER,
    discarded_at    INTEGER,
    updated_at      INTEGER NOT NULL,
    starts          INTEGER NOT NULL DEFAULT 0,
    failures        INTEGER NOT NULL DEFAULT 0,
    waits           INTEGER NOT NULL DEFAULT 0,
    crashes         INTEGER NOT NULL DEFAULT 0,
    snoozes         INTEGER NOT NULL DEFAULT 0,
    probes          INTEGER NOT NULL DEFAULT 0,
    releases        INTEGER NOT NULL DEFAULT 0,
    waited_s        REAL NOT NULL DEFAULT 0,
    retries_manual  INTEGER NOT NULL DEFAULT 0,
    past            TEXT,
    input_from      TEXT,
    failed_reason   TEXT CHECK (failed_reason = 'fatal' OR failed_reason = 'exhausted'
        OR failed_reason = 'crashed' OR failed_reason = 'expired'),
    error_kind      TEXT,
    error_message   TEXT,
    label           TEXT,
    payload         TEXT NOT NULL,
    result          TEXT,
    CHECK ((ready IS NOT NULL) = (state = 'queued')),
    CHECK ((worker IS NOT NULL) = (state = 'processing')),
    CHECK ((failed_reason IS NOT NULL) = (state = 'failed')),
    CHECK ((finished_at IS NOT NULL) = (state = 'succeeded' OR state = 'failed' OR state = 'cancelled')),
    CHECK (discarded_at IS NULL OR state = 'failed')
);

CREATE TABLE perdure_attempts (
    job          INTEGER NOT NULL,
    token        INTEGER NOT NULL,
    stage        TEXT NOT NULL,
    number       INTEGER NOT NULL,
    life         INTEGER NOT NULL,
    status       TEXT NOT NULL CHECK (status = 'success' OR status = 'retrying' OR status = 'waiting'
        OR status = 'interrupted' OR status = 'failed' OR status = 'cancelled'
        OR status = 'handed_over'),
    state        TEXT NOT NULL
        CHECK (state = 'queued' OR state = 'processing' OR state = 'succeeded' OR state = 'failed'
            OR state = 'cancelled'),
    worker       INTEGER,
    claimed_at   INTEGER NOT NULL,
    settled_at   INTEGER NOT NULL,
    elapsed_s    REAL NOT NULL,
    delay_s      REAL,
    due_at       INTEGER,
    counted      TEXT,
    kind         TEXT,
    message      TEXT NOT NULL,
    policy       TEXT NOT NULL,
    why          TEXT NOT NULL,
    evidence     TEXT,
    config_hash  TEXT NOT NULL,
    settled_by   INTEGER,
    PRIMARY KEY (job, token)
) WITHOUT ROWID;

CREATE TABLE perdure_checkpoints (
    job       INTEGER NOT NULL,
    stage     TEXT NOT NULL,
    token     INTEGER NOT NULL,
    saved_at  INTEGER NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (job, stage)
) WITHOUT ROWID;

INSERT INTO perdure_workers SELECT * FROM perdure_old_workers;

INSERT INTO perdure_lanes (no, queue, category, pipeline, stage)
SELECT no, queue, category, pipeline, stage FROM perdure_old_lanes;

INSERT INTO perdure_jobs (
    no, id, owner, pipeline, key, lane, stage, state, ready, isolation, token, life, worker, priority,
    order_at, rank_at, enqueued_at, due_at, claimed_at, deadline_at, finished_at, updated_at, starts,
    failures, waits, crashes, snoozes, probes, releases, waited_s, past, input_from, failed_reason,
    error_kind, error_message, label, payload, result
)
SELECT
    no, id, owner, pipeline, key, lane, stage, state, ready, isolation, token, life, worker, priority,
    order_at, rank_at, enqueued_at, due_at, claimed_at, deadline_at, finished_at, updated_at, starts,
    failures, waits, crashes, snoozes, probes, releases, waited_s, past, input_from, failed_reason,
    error_kind, error_message, label, payload, result
FROM perdure_old_jobs ORDER BY no;

INSERT INTO perdure_attempts
SELECT
    job, token, stage, number, life, status, state, worker, claimed_at, settled_at, elapsed_s, delay_s,
    due_at, counted, kind, message, policy, why, evidence, config_hash, settled_by
FROM perdure_old_attempts;

INSERT INTO perdure_checkpoints SELECT job, stage, token, saved_at, value FROM perdure_old_checkpoints;

-- Numbers go on where they were, even if the last rows are gone: none is given twice.
DELETE FROM sqlite_sequence WHERE name IN ('perdure_lanes', 'perdure_workers', 'perdure_jobs');
INSERT INTO sqlite_sequence (name, seq)
SELECT replace(name, 'perdure_old_', 'perdure_'), seq FROM sqlite_sequence
WHERE name IN ('perdure_old_lanes', 'perdure_old_workers', 'perdure_old_jobs');

DROP TABLE perdure_old_checkpoints;
DROP TABLE perdure_old_attempts;
DROP TABLE perdure_old_jobs;
DROP TABLE perdure_old_lanes;
DROP TABLE perdure_old_workers;

-- Only what can run now is in the first of these, only what waits for its time in the second:
-- finished, future, suspect and held jobs cost a claim nothing.
CREATE INDEX perdure_jobs_ready ON perdure_jobs (lane, isolation, rank_at, no) WHERE ready = 1;
CREATE INDEX perdure_jobs_later ON perdure_jobs (lane, isolation, due_at) WHERE ready = 0;
CREATE INDEX perdure_jobs_suspect ON perdure_jobs (isolation, lane)
    WHERE isolation > 0 AND ready IS NOT NULL;
CREATE INDEX perdure_jobs_held ON perdure_jobs (worker) WHERE worker IS NOT NULL;
CREATE INDEX perdure_jobs_failed ON perdure_jobs (pipeline, stage, failed_reason, error_kind)
    WHERE failed_reason IS NOT NULL;
CREATE INDEX perdure_jobs_deadline ON perdure_jobs (deadline_at)
    WHERE deadline_at IS NOT NULL AND ready IS NOT NULL;
CREATE INDEX perdure_jobs_run ON perdure_jobs (run, no) WHERE run IS NOT NULL;
CREATE INDEX perdure_jobs_redrive ON perdure_jobs (redrive_run, no) WHERE redrive_run IS NOT NULL;
CREATE UNIQUE INDEX perdure_jobs_key ON perdure_jobs (owner, pipeline, coalesce(run, 0), key)
    WHERE key IS NOT NULL;

-- Raw model output and the like, read only by their owner.
CREATE TABLE perdure_artifacts (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    job         INTEGER NOT NULL,
    token       INTEGER NOT NULL,
    stage       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    media_type  TEXT NOT NULL,
    content     BLOB NOT NULL,
    saved_at    INTEGER NOT NULL,
    expires_at  INTEGER
);

CREATE INDEX perdure_artifacts_job ON perdure_artifacts (job);
CREATE INDEX perdure_artifacts_expiry ON perdure_artifacts (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE perdure_runs (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    owner       TEXT NOT NULL,
    pipeline    TEXT NOT NULL,
    name        TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status IN
        ('running', 'paused', 'completed', 'partial_success', 'failed', 'aborted', 'cancelled')),
    parent      INTEGER,
    settings    TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    UNIQUE (owner, pipeline, name)
);

-- One row per run and writer, summed on read, so that no row is hot.
CREATE TABLE perdure_run_counts (
    run        INTEGER NOT NULL,
    writer     INTEGER NOT NULL,
    total      INTEGER NOT NULL DEFAULT 0,
    succeeded  INTEGER NOT NULL DEFAULT 0,
    failed     INTEGER NOT NULL DEFAULT 0,
    cancelled  INTEGER NOT NULL DEFAULT 0,
    attempts   INTEGER NOT NULL DEFAULT 0,
    retries    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run, writer)
) WITHOUT ROWID;

-- The control row of a gate; a gate without a row is flowing.
CREATE TABLE perdure_gates (
    name        TEXT PRIMARY KEY,
    parent      TEXT,
    state       TEXT NOT NULL CHECK (state IN ('flowing', 'held', 'probing')),
    generation  INTEGER NOT NULL,
    held_until  INTEGER,
    reason      TEXT NOT NULL,
    changed_by  TEXT NOT NULL,
    changed_at  INTEGER NOT NULL,
    control     TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX perdure_gates_parent ON perdure_gates (parent) WHERE parent IS NOT NULL;
CREATE INDEX perdure_gates_shut ON perdure_gates (name) WHERE state <> 'flowing';

CREATE TABLE perdure_pauses (
    scope      TEXT NOT NULL CHECK (scope IN ('queue', 'pipeline', 'run')),
    name       TEXT NOT NULL,
    reason     TEXT NOT NULL,
    paused_by  TEXT NOT NULL,
    paused_at  INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;

CREATE TABLE perdure_schedules (
    name       TEXT PRIMARY KEY,
    pipeline   TEXT NOT NULL,
    spec       TEXT NOT NULL,
    payload    TEXT NOT NULL,
    next_at    INTEGER NOT NULL,
    ticked_at  INTEGER,
    ticks      INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- What one living worker at a time does for all, such as upkeep.
CREATE TABLE perdure_duties (
    name      TEXT PRIMARY KEY,
    worker    INTEGER NOT NULL,
    until_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE perdure_access_tokens (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    hash        TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    owner       TEXT NOT NULL,
    scopes      TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER
);

CREATE TABLE perdure_audit_log (
    no       INTEGER PRIMARY KEY AUTOINCREMENT,
    done_at  INTEGER NOT NULL,
    by_whom  TEXT NOT NULL,
    verb     TEXT NOT NULL,
    subject  TEXT NOT NULL,
    reason   TEXT NOT NULL
);

CREATE INDEX perdure_audit_log_subject ON perdure_audit_log (subject);

CREATE TABLE perdure_bulks (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    verb        TEXT NOT NULL CHECK (verb IN ('redrive', 'discard')),
    status      TEXT NOT NULL CHECK (status IN ('running', 'done', 'stopped')),
    filter      TEXT NOT NULL,
    begun_by    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    cursor      INTEGER,
    done        INTEGER NOT NULL DEFAULT 0,
    refused     INTEGER NOT NULL DEFAULT 0,
    begun_at    INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL
);

-- The lanes from which nothing is claimed, and why; from the few closed things to their lanes, in this order:
-- a CROSS JOIN is never turned round.
CREATE VIEW perdure_closed_lanes AS
SELECT l.no AS lane, 'queue ' || p.name || ' is paused' AS closed_by
FROM perdure_pauses AS p JOIN perdure_lanes AS l ON l.queue = p.name WHERE p.scope = 'queue'
UNION ALL
SELECT l.no, 'pipeline ' || p.name || ' is paused'
FROM perdure_pauses AS p JOIN perdure_lanes AS l ON l.pipeline = p.name WHERE p.scope = 'pipeline'
UNION ALL
SELECT l.no, 'run ' || p.name || ' is paused'
FROM perdure_pauses AS p JOIN perdure_lanes AS l ON l.run = CAST(p.name AS INTEGER)
WHERE p.scope = 'run' AND l.run IS NOT NULL
UNION ALL
SELECT l.no, 'upstream ' || g.name || ' is ' || g.state
FROM perdure_gates AS g CROSS JOIN perdure_lanes AS l ON l.upstream = g.name
WHERE g.state <> 'flowing' AND l.upstream IS NOT NULL
UNION ALL
SELECT l.no, 'credential ' || k.name || ' is ' || k.state
FROM perdure_gates AS k CROSS JOIN perdure_gates AS g ON g.parent = k.name
CROSS JOIN perdure_lanes AS l ON l.upstream = g.name
WHERE k.state <> 'flowing' AND g.parent IS NOT NULL AND l.upstream IS NOT NULL;

-- What happened to each job, one line an event, with readable moments.
CREATE VIEW perdure_job_events AS
SELECT j.id AS job_id, j.enqueued_at AS at_us,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.enqueued_at / 1e6, 'unixepoch') AS at,
    'queued' AS event, NULL AS stage, NULL AS attempt, NULL AS kind, NULL AS detail
FROM perdure_jobs AS j
UNION ALL
SELECT j.id, a.claimed_at, strftime('%Y-%m-%dT%H:%M:%fZ', a.claimed_at / 1e6, 'unixepoch'),
    'processing', a.stage, a.number, NULL, NULL
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
UNION ALL
SELECT j.id, a.settled_at, strftime('%Y-%m-%dT%H:%M:%fZ', a.settled_at / 1e6, 'unixepoch'),
    CASE WHEN a.status = 'retrying' THEN 'retry'
        WHEN a.status = 'success' AND a.state = 'succeeded' THEN 'complete'
        WHEN a.status = 'success' THEN 'advanced'
        WHEN a.status = 'failed' AND j.failed_reason = 'expired' AND a.life = j.life THEN 'expired'
        ELSE a.status END,
    a.stage, a.number, a.kind, a.why
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
UNION ALL
SELECT j.id, j.finished_at, strftime('%Y-%m-%dT%H:%M:%fZ', j.finished_at / 1e6, 'unixepoch'),
    CASE WHEN j.failed_reason = 'expired' THEN 'expired' ELSE j.state END,
    j.stage, NULL, j.error_kind, NULL
FROM perdure_jobs AS j
WHERE j.finished_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM perdure_attempts AS a
    WHERE a.job = j.no AND a.life = j.life AND a.state = j.state
)
UNION ALL
SELECT j.id, d.done_at, strftime('%Y-%m-%dT%H:%M:%fZ', d.done_at / 1e6, 'unixepoch'),
    d.verb, NULL, NULL, NULL, d.reason
FROM perdure_audit_log AS d JOIN perdure_jobs AS j ON d.subject = j.id;
