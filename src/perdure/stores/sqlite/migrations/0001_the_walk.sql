-- compat_min: 1
-- Jobs, their attempts, and the workers that hold them. Moments are microseconds since 1970, UTC.

CREATE TABLE perdure_lanes (
    no        INTEGER PRIMARY KEY AUTOINCREMENT,
    queue     TEXT NOT NULL,
    category  TEXT NOT NULL,
    pipeline  TEXT NOT NULL,
    stage     TEXT NOT NULL,
    UNIQUE (queue, category, pipeline, stage)
);

CREATE TABLE perdure_workers (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    boot        TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    role        TEXT NOT NULL CHECK (role IN ('main', 'suspects', 'alone')),
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

CREATE TABLE perdure_jobs (
    no             INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL UNIQUE,
    owner          TEXT NOT NULL,
    pipeline       TEXT NOT NULL,
    key            TEXT,
    lane           INTEGER NOT NULL REFERENCES perdure_lanes (no),
    stage          TEXT NOT NULL,
    state          TEXT NOT NULL
        CHECK (state IN ('queued', 'processing', 'succeeded', 'failed', 'cancelled')),
    ready          INTEGER CHECK (ready IN (0, 1)),
    isolation      INTEGER NOT NULL DEFAULT 0 CHECK (isolation IN (0, 1, 2)),
    token          INTEGER NOT NULL DEFAULT 0,
    life           INTEGER NOT NULL DEFAULT 1,
    worker         INTEGER REFERENCES perdure_workers (no),
    priority       INTEGER NOT NULL,
    order_at       INTEGER NOT NULL,
    rank_at        INTEGER NOT NULL,
    enqueued_at    INTEGER NOT NULL,
    due_at         INTEGER NOT NULL,
    claimed_at     INTEGER,
    deadline_at    INTEGER,
    finished_at    INTEGER,
    updated_at     INTEGER NOT NULL,
    starts         INTEGER NOT NULL DEFAULT 0,
    failures       INTEGER NOT NULL DEFAULT 0,
    waits          INTEGER NOT NULL DEFAULT 0,
    crashes        INTEGER NOT NULL DEFAULT 0,
    snoozes        INTEGER NOT NULL DEFAULT 0,
    probes         INTEGER NOT NULL DEFAULT 0,
    releases       INTEGER NOT NULL DEFAULT 0,
    waited_s       REAL NOT NULL DEFAULT 0,
    past           TEXT,
    input_from     TEXT,
    failed_reason  TEXT CHECK (failed_reason IN ('fatal', 'exhausted', 'crashed', 'expired')),
    error_kind     TEXT,
    error_message  TEXT,
    label          TEXT,
    payload        TEXT NOT NULL,
    result         TEXT,
    CHECK ((ready IS NOT NULL) = (state = 'queued')),
    CHECK ((worker IS NOT NULL) = (state = 'processing')),
    CHECK ((failed_reason IS NOT NULL) = (state = 'failed')),
    CHECK ((finished_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled')))
);

-- Only what can run now is in the first of these, only what waits for its time in the second:
-- finished, future and suspect jobs cost a claim nothing.
CREATE INDEX perdure_jobs_ready ON perdure_jobs (lane, isolation, rank_at, no) WHERE ready = 1;
CREATE INDEX perdure_jobs_later ON perdure_jobs (lane, isolation, due_at) WHERE ready = 0;
CREATE INDEX perdure_jobs_suspect ON perdure_jobs (isolation)
    WHERE isolation > 0 AND ready IS NOT NULL;
CREATE INDEX perdure_jobs_held ON perdure_jobs (worker) WHERE worker IS NOT NULL;
CREATE INDEX perdure_jobs_failed ON perdure_jobs (pipeline, stage, failed_reason, error_kind)
    WHERE state = 'failed';
CREATE UNIQUE INDEX perdure_jobs_key ON perdure_jobs (owner, pipeline, key)
    WHERE key IS NOT NULL;

CREATE TABLE perdure_attempts (
    no           INTEGER PRIMARY KEY AUTOINCREMENT,
    job          INTEGER NOT NULL REFERENCES perdure_jobs (no),
    token        INTEGER NOT NULL,
    stage        TEXT NOT NULL,
    number       INTEGER NOT NULL,
    life         INTEGER NOT NULL,
    status       TEXT NOT NULL CHECK (status IN
        ('success', 'retrying', 'waiting', 'interrupted', 'failed', 'cancelled', 'handed_over')),
    state        TEXT NOT NULL,
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
    UNIQUE (job, token)
);

CREATE TABLE perdure_checkpoints (
    job       INTEGER NOT NULL REFERENCES perdure_jobs (no),
    stage     TEXT NOT NULL,
    token     INTEGER NOT NULL,
    saved_at  INTEGER NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (job, stage)
) WITHOUT ROWID;

-- What came in and what was let go, kept apart from the rows it is compared with.
CREATE TABLE perdure_books (
    pipeline  TEXT PRIMARY KEY,
    accepted  INTEGER NOT NULL DEFAULT 0,
    pruned    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
