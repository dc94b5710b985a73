-- compat_min: 1
-- All of it, in the shape that PostgreSQL has as well. Moments are microseconds since 1970, UTC; the views show them as
-- texts. Hot tables have no foreign keys, whose place the audit takes.

CREATE TABLE perdure_lanes (
    no        INTEGER PRIMARY KEY AUTOINCREMENT,
    queue     TEXT NOT NULL,
    category  TEXT NOT NULL,
    pipeline  TEXT NOT NULL,
    stage     TEXT NOT NULL,
    run       INTEGER,
    upstream  TEXT
);

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
    request_id      TEXT,  -- what its caller gave; without it, the job's id serves
    lane            INTEGER NOT NULL,
    stage           TEXT NOT NULL,
    state           TEXT NOT NULL
        CHECK (state = 'queued' OR state = 'processing' OR state = 'succeeded' OR state = 'failed'
            OR state = 'cancelled'),
    ready           INTEGER CHECK (ready = 0 OR ready = 1),
    isolation       INTEGER NOT NULL DEFAULT 0 CHECK (isolation = 0 OR isolation = 1 OR isolation = 2),
    fair            INTEGER NOT NULL DEFAULT 0 CHECK (fair = 0 OR fair = 1),
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
    deadline_us     INTEGER,  -- the total time of each life that its caller brought
    policies_us     INTEGER,  -- the one that its policies gave to this life instead
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
    error_code      TEXT,
    error_message   TEXT,
    error_detail    TEXT,
    fingerprint     TEXT,
    label           TEXT,
    payload         TEXT NOT NULL,
    tokens          INTEGER,
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
    owner        TEXT,
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
    tokens_in    INTEGER NOT NULL DEFAULT 0,
    tokens_out   INTEGER NOT NULL DEFAULT 0,
    cost_nusd    INTEGER NOT NULL DEFAULT 0,
    delay_s      REAL,
    due_at       INTEGER,
    counted      TEXT,
    kind         TEXT,
    code         TEXT,
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
    expires_at  INTEGER,
    bytes_whole  INTEGER NOT NULL DEFAULT 0
);

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
    sealed_at   INTEGER,
    why         TEXT NOT NULL DEFAULT '',
    checked     INTEGER NOT NULL DEFAULT 0,
    -- Who feeds it, since when (NULL: nobody does), and the last sign of that.
    fed_by      TEXT,
    feeding_at  INTEGER,
    fed_at      INTEGER,
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
    -- Money is counted in whole billionths of a dollar.
    tokens_in   INTEGER NOT NULL DEFAULT 0,
    tokens_out  INTEGER NOT NULL DEFAULT 0,
    cost_nusd   INTEGER NOT NULL DEFAULT 0,
    -- Attempts of stages that name an upstream.
    calls       INTEGER NOT NULL DEFAULT 0,
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

-- When an owner's bucket of requests is full again; no row is a full one.
CREATE TABLE perdure_owner_rates (
    owner    TEXT PRIMARY KEY,
    full_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE perdure_audit_log (
    no       INTEGER PRIMARY KEY AUTOINCREMENT,
    done_at  INTEGER NOT NULL,
    by_whom  TEXT NOT NULL,
    verb     TEXT NOT NULL,
    subject  TEXT NOT NULL,
    reason   TEXT NOT NULL
);

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

-- The failed jobs of a run by failure kind, one row per writer, as in perdure_run_counts.
CREATE TABLE perdure_run_kinds (
    run     INTEGER NOT NULL,
    writer  INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    failed  INTEGER NOT NULL,
    PRIMARY KEY (run, writer, kind)
) WITHOUT ROWID;

-- What a bulk operation has left as it was, and why.
CREATE TABLE perdure_bulk_refusals (
    bulk  INTEGER NOT NULL,
    job   INTEGER NOT NULL,
    why   TEXT NOT NULL,
    PRIMARY KEY (bulk, job)
) WITHOUT ROWID;

-- Which lives of jobs belong to a run that drove dead letters again; kept when another run takes them over.
CREATE TABLE perdure_redrives (
    run   INTEGER NOT NULL,
    job   INTEGER NOT NULL,
    life  INTEGER NOT NULL,
    PRIMARY KEY (run, job, life)
) WITHOUT ROWID;

-- What was pruned of a run, so that its counts stay what its jobs were.
CREATE TABLE perdure_run_pruned (
    run         INTEGER NOT NULL PRIMARY KEY,
    succeeded   INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    cancelled   INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    retries     INTEGER NOT NULL DEFAULT 0,
    tokens_in   INTEGER NOT NULL DEFAULT 0,
    tokens_out  INTEGER NOT NULL DEFAULT 0,
    cost_nusd   INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE perdure_bulks (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    verb        TEXT NOT NULL CHECK (verb IN ('redrive', 'discard', 'cancel', 'retry', 'run now')),
    status      TEXT NOT NULL CHECK (status IN ('running', 'done', 'stopped')),
    owner       TEXT NOT NULL,
    filter      TEXT NOT NULL,
    begun_by    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    cursor      INTEGER,
    done        INTEGER NOT NULL DEFAULT 0,
    refused     INTEGER NOT NULL DEFAULT 0,
    begun_at    INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL,
    settings    TEXT NOT NULL DEFAULT '{}',
    run         INTEGER,
    phase       TEXT NOT NULL DEFAULT 'all' CHECK (phase IN ('canary', 'proving', 'all')),
    why         TEXT NOT NULL DEFAULT ''
);

-- Corrected payloads that a bulk operation brings, by the keys of their jobs; gone when it is done.
CREATE TABLE perdure_bulk_payloads (
    bulk     INTEGER NOT NULL,
    key      TEXT NOT NULL,
    payload  TEXT NOT NULL,
    PRIMARY KEY (bulk, key)
);

-- What a job was given until the end of a life, when another payload took its place.
CREATE TABLE perdure_payloads (
    job      INTEGER NOT NULL,
    life     INTEGER NOT NULL,
    payload  TEXT NOT NULL,
    PRIMARY KEY (job, life)
);

-- The change feed: what happened to jobs, runs, gates and workers, one line for each write. Writers come one after the
-- other, so that the order of numbers is the order of commits, and a number is a cursor.
CREATE TABLE perdure_changes (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    xid         INTEGER, -- PostgreSQL's; here numbers are drawn under the write lock
    changed_at  INTEGER NOT NULL,
    what        TEXT NOT NULL CHECK (what IN (
        'job_accepted', 'attempt_ended', 'job_ended', 'job_revived', 'job_discarded', 'run_changed',
        'gate_changed', 'worker_changed')),
    size        INTEGER NOT NULL, -- entries
    entries     TEXT NOT NULL
);

-- Where the feed stood at which moment. The oldest mark says from where on it is whole.
CREATE TABLE perdure_change_marks (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    marked_at  INTEGER NOT NULL,
    place      INTEGER NOT NULL -- the last line that there was
);

-- Lists of one owner's jobs cost what they return; jobs without an owner are not in it. ``changed_at`` is when the job
-- last changed otherwise than by the end of an attempt. The key comes first: else the library's own check of a file
-- finds NULLs that are not there (3.40).
CREATE TABLE perdure_owned (
    owner       TEXT NOT NULL CHECK (owner <> ''),
    job         INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL,
    failed      INTEGER NOT NULL DEFAULT 0 CHECK (failed IN (0, 1)),
    PRIMARY KEY (owner, job)
) WITHOUT ROWID;

-- Tallies: numbers that are kept as jobs move, one row for each key and writer, summed on read and folded now and then.
-- How many jobs stand where. ``waiting`` for their time; ``retrying`` for it after a failure.
CREATE TABLE perdure_depths (
    lane        INTEGER NOT NULL,
    writer      INTEGER NOT NULL DEFAULT 0,
    ready       INTEGER NOT NULL DEFAULT 0,
    waiting     INTEGER NOT NULL DEFAULT 0,
    retrying    INTEGER NOT NULL DEFAULT 0,
    processing  INTEGER NOT NULL DEFAULT 0,
    succeeded   INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    cancelled   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (lane, writer)
) WITHOUT ROWID;

-- What has happened, by the minute since 1970; minute 0 is all that is older than an hour, and minute -1 what of all
-- this is not found in the rows any more, because it was pruned.
CREATE TABLE perdure_flows (
    pipeline    TEXT NOT NULL,
    stage       TEXT NOT NULL,
    minute      INTEGER NOT NULL,
    writer      INTEGER NOT NULL DEFAULT 0,
    created     INTEGER NOT NULL DEFAULT 0,
    succeeded   INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    cancelled   INTEGER NOT NULL DEFAULT 0,
    revived     INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    retries     INTEGER NOT NULL DEFAULT 0,
    waits       INTEGER NOT NULL DEFAULT 0,
    tokens_in   INTEGER NOT NULL DEFAULT 0,
    tokens_out  INTEGER NOT NULL DEFAULT 0,
    cost_nusd   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (pipeline, stage, minute, writer)
) WITHOUT ROWID;

-- Dead letters by what they died of; ``ever`` does not fall when they live again, are discarded or pruned. Those of all
-- owners stand under no name, and those of an owner under his, too.
CREATE TABLE perdure_deaths (
    owner        TEXT NOT NULL,
    fingerprint  TEXT NOT NULL,
    pipeline     TEXT NOT NULL,
    stage        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    kind         TEXT NOT NULL,
    code         TEXT NOT NULL,
    writer       INTEGER NOT NULL DEFAULT 0,
    letters      INTEGER NOT NULL DEFAULT 0,
    ever         INTEGER NOT NULL DEFAULT 0,
    first_at     INTEGER,
    last_at      INTEGER,
    PRIMARY KEY (owner, fingerprint, pipeline, stage, reason, kind, code, writer)
) WITHOUT ROWID;

-- How many jobs of an owner are queued or in work; those of nobody are not counted here.
CREATE TABLE perdure_owners (
    owner   TEXT NOT NULL,
    writer  INTEGER NOT NULL DEFAULT 0,
    open    INTEGER NOT NULL,
    PRIMARY KEY (owner, writer)
) WITHOUT ROWID;

CREATE UNIQUE INDEX perdure_lanes_name
    ON perdure_lanes (pipeline, stage, queue, category, coalesce(run, 0));
CREATE INDEX perdure_lanes_queue ON perdure_lanes (queue);
CREATE INDEX perdure_lanes_run ON perdure_lanes (run) WHERE run IS NOT NULL;
CREATE INDEX perdure_lanes_upstream ON perdure_lanes (upstream) WHERE upstream IS NOT NULL;
CREATE INDEX perdure_workers_alive ON perdure_workers (beat_at) WHERE dead_at IS NULL;
CREATE INDEX perdure_workers_unsettled ON perdure_workers (no)
    WHERE dead_at IS NOT NULL AND settled_at IS NULL;
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
CREATE INDEX perdure_artifacts_job ON perdure_artifacts (job);
CREATE INDEX perdure_artifacts_expiry ON perdure_artifacts (expires_at, id) WHERE expires_at IS NOT NULL;
CREATE INDEX perdure_gates_parent ON perdure_gates (parent) WHERE parent IS NOT NULL;
CREATE INDEX perdure_gates_shut ON perdure_gates (name) WHERE state <> 'flowing';
CREATE INDEX perdure_audit_log_subject ON perdure_audit_log (subject);
-- Where the line of each lane begins, and where that of each owner ends: what the rank of a fair job is made of.
CREATE INDEX perdure_jobs_fair_ready ON perdure_jobs (lane, rank_at) WHERE fair = 1 AND ready = 1;
CREATE INDEX perdure_jobs_fair_waiting ON perdure_jobs (owner, lane, rank_at)
    WHERE fair = 1 AND ready IS NOT NULL;
CREATE INDEX perdure_redrives_job ON perdure_redrives (job);
CREATE UNIQUE INDEX perdure_jobs_key ON perdure_jobs (owner, pipeline, key, coalesce(run, 0))
    WHERE key IS NOT NULL;
CREATE INDEX perdure_jobs_run_ended ON perdure_jobs (run, finished_at, no)
    WHERE run IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX perdure_jobs_redrive_ended ON perdure_jobs (redrive_run, finished_at, no)
    WHERE redrive_run IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX perdure_jobs_fingerprint ON perdure_jobs (fingerprint, no) WHERE fingerprint IS NOT NULL;
CREATE INDEX perdure_runs_live ON perdure_runs (no) WHERE ended_at IS NULL;
CREATE INDEX perdure_bulks_running ON perdure_bulks (no) WHERE status = 'running';
CREATE INDEX perdure_owned_changed ON perdure_owned (owner, changed_at, job);
CREATE INDEX perdure_owned_failed ON perdure_owned (owner, job) WHERE failed;
CREATE INDEX perdure_attempts_owner ON perdure_attempts (owner, settled_at, job) WHERE owner IS NOT NULL;

CREATE VIEW perdure_open_jobs AS SELECT owner, open FROM perdure_owners;

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

-- What has failed and nobody has discarded.
CREATE VIEW perdure_dead_letters AS
SELECT j.no AS job, j.id AS job_id, j.owner, j.pipeline, j.stage, j.run, j.redrive_run, j.key,
    j.failed_reason AS reason, j.error_kind AS kind, j.error_code AS code, j.error_message AS message,
    j.error_detail AS detail, j.fingerprint, j.life, j.retries_manual,
    (SELECT count(*) FROM perdure_attempts AS a WHERE a.job = j.no) AS attempts,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.enqueued_at / 1e6, 'unixepoch') AS enqueued_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.finished_at / 1e6, 'unixepoch') AS failed_at
FROM perdure_jobs AS j
WHERE j.failed_reason IS NOT NULL AND j.discarded_at IS NULL;

-- What counts in a run: its own jobs, with all of their lives; and of others the lives that were driven again in it
-- (``driven``). One that another life followed has failed. ``last`` is 0 where the next life was driven in the same run.
-- SQLite takes one run of this to the indexes, as it would not with a UNION ALL: first its own jobs, then the others.
CREATE VIEW perdure_run_jobs AS
SELECT r.no AS run, j.no AS job, coalesce(d.life, j.life) AS life,
    CASE WHEN j.life > d.life THEN 'failed' ELSE j.state END AS state, j.enqueued_at,
    CASE WHEN j.life > d.life THEN NULL ELSE j.finished_at END AS finished_at, d.life AS driven,
    CASE WHEN (
        SELECT n.life FROM perdure_redrives AS n WHERE n.run = d.run AND n.job = d.job AND n.life = d.life + 1
    ) IS NULL THEN 1 ELSE 0 END AS last
FROM perdure_runs AS r CROSS JOIN json_each('[0, 1]') AS k
LEFT JOIN perdure_redrives AS d ON k.value = 1 AND d.run = r.no
CROSS JOIN perdure_jobs AS j
    ON j.run = CASE WHEN k.value = 0 THEN r.no END OR (j.no = d.job AND coalesce(j.run, 0) <> r.no);

-- How far each run is; from its counts, so that no job is looked at.
CREATE VIEW perdure_run_progress AS
SELECT s.run, s.run_id, s.owner, s.pipeline, s.name, s.status, s.why, s.parent,
    s.total, s.total - s.succeeded - s.failed - s.cancelled AS open, s.succeeded, s.failed, s.cancelled,
    CASE WHEN s.succeeded + s.failed > 0 THEN s.failed * 1.0 / (s.succeeded + s.failed) END AS failed_share,
    s.attempts, s.retries, s.tokens_in, s.tokens_out, s.cost_nusd / 1e9 AS cost_usd,
    strftime('%Y-%m-%dT%H:%M:%fZ', s.created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', s.sealed_at / 1e6, 'unixepoch') AS sealed_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', s.ended_at / 1e6, 'unixepoch') AS ended_at
FROM (
    SELECT r.no AS run, r.id AS run_id, r.owner, r.pipeline, r.name, r.status, r.why, r.parent,
        r.created_at, r.sealed_at, r.ended_at,
        coalesce(sum(c.total), 0) AS total, coalesce(sum(c.succeeded), 0) AS succeeded,
        coalesce(sum(c.failed), 0) AS failed, coalesce(sum(c.cancelled), 0) AS cancelled,
        coalesce(sum(c.attempts), 0) AS attempts, coalesce(sum(c.retries), 0) AS retries,
        coalesce(sum(c.tokens_in), 0) AS tokens_in, coalesce(sum(c.tokens_out), 0) AS tokens_out,
        coalesce(sum(c.cost_nusd), 0) AS cost_nusd
    FROM perdure_runs AS r LEFT JOIN perdure_run_counts AS c ON c.run = r.no
    GROUP BY r.no
) AS s;

-- How many counted retries the ended items of a run have needed in their last life, and how many items each.
CREATE VIEW perdure_run_retries AS
SELECT n.run, n.retries, count(*) AS items
FROM (
    SELECT o.run, (
        SELECT count(*) FROM perdure_attempts AS a
        WHERE a.job = o.job AND a.life = o.life AND a.status = 'retrying' AND a.counted = 'failures'
    ) AS retries
    FROM perdure_run_jobs AS o WHERE o.last = 1 AND o.state IN ('succeeded', 'failed')
) AS n
GROUP BY n.run, n.retries;

-- Attempts that met a failure, by its kind and public code; and how many of them ended their item.
CREATE VIEW perdure_run_errors AS
SELECT o.run, a.kind, coalesce(a.code, '') AS code, count(*) AS attempts,
    count(*) FILTER (WHERE a.status = 'failed') AS final
FROM perdure_run_jobs AS o CROSS JOIN perdure_attempts AS a ON a.job = o.job AND a.life = coalesce(o.driven, a.life)
AND a.kind IS NOT NULL
GROUP BY o.run, a.kind, coalesce(a.code, '');

-- What each stage did in a run; durations by the nearest rank, of attempts that succeeded. The stage that was
-- entered first has the lowest ``entered``.
CREATE VIEW perdure_run_stages AS
SELECT p.run, p.stage, count(*) AS attempts, count(*) FILTER (WHERE p.good = 1) AS succeeded,
    count(*) FILTER (WHERE p.status = 'retrying') AS retried,
    count(*) FILTER (WHERE p.status = 'failed') AS failed,
    count(*) FILTER (WHERE p.status = 'retrying') * 1.0 / count(*) AS retry_rate,
    count(*) FILTER (WHERE p.status = 'failed') * 1.0 / count(*) AS failure_rate,
    max(p.elapsed_s) FILTER (WHERE p.good = 1 AND p.place = (p.among * 50 + 99) / 100) AS p50_s,
    max(p.elapsed_s) FILTER (WHERE p.good = 1 AND p.place = (p.among * 95 + 99) / 100) AS p95_s,
    coalesce(sum(p.tokens_in), 0) AS tokens_in, coalesce(sum(p.tokens_out), 0) AS tokens_out,
    sum(p.cost_nusd) / 1e9 AS cost_usd,
    coalesce(sum(p.cost_nusd) FILTER (WHERE p.good = 0), 0) / 1e9 AS wasted_usd,
    min(p.token) AS entered
FROM (
    SELECT g.*,
        row_number() OVER w AS place, count(*) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS among
    FROM (
        SELECT o.run, a.stage, a.token, a.status, a.elapsed_s, a.tokens_in, a.tokens_out, a.cost_nusd,
            CASE WHEN a.status = 'success' THEN 1 ELSE 0 END AS good
        FROM perdure_run_jobs AS o CROSS JOIN perdure_attempts AS a ON a.job = o.job AND a.life = coalesce(o.driven, a.life)
    ) AS g
    WINDOW w AS (PARTITION BY g.run, g.stage, g.good ORDER BY g.elapsed_s)
) AS p
GROUP BY p.run, p.stage;

-- What the attempts of a run came to, how many of them were wasted, how many had output that did not fit, and of
-- how many raw output is kept.
CREATE VIEW perdure_run_waste AS
SELECT o.run, count(*) AS attempts, count(*) FILTER (WHERE a.status <> 'success') AS wasted_attempts,
    sum(a.cost_nusd) / 1e9 AS cost_usd,
    coalesce(sum(a.cost_nusd) FILTER (WHERE a.status <> 'success'), 0) / 1e9 AS wasted_usd,
    count(*) FILTER (WHERE a.kind IN ('invalid_output', 'truncated_output')) AS invalid_outputs,
    count(*) FILTER (WHERE EXISTS (
        SELECT 1 FROM perdure_artifacts AS c WHERE c.job = a.job AND c.token = a.token
    )) AS attempts_captured
FROM perdure_run_jobs AS o CROSS JOIN perdure_attempts AS a ON a.job = o.job AND a.life = coalesce(o.driven, a.life)
GROUP BY o.run;

-- From enqueueing to success, in seconds; by the nearest rank.
CREATE VIEW perdure_run_times AS
SELECT p.run, count(*) AS succeeded,
    max(p.took_s) FILTER (WHERE p.place = (p.among * 50 + 99) / 100) AS p50_s,
    max(p.took_s) FILTER (WHERE p.place = (p.among * 95 + 99) / 100) AS p95_s, avg(p.took_s) AS mean_s
FROM (
    SELECT g.run, g.took_s, row_number() OVER w AS place, count(*) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS among
    FROM (
        SELECT o.run, (o.finished_at - o.enqueued_at) / 1e6 AS took_s
        FROM perdure_run_jobs AS o WHERE o.state = 'succeeded'
    ) AS g
    WINDOW w AS (PARTITION BY g.run ORDER BY g.took_s)
) AS p
GROUP BY p.run;

CREATE VIEW perdure_job_events AS
SELECT j.id AS job_id, j.enqueued_at AS at_us, strftime('%Y-%m-%dT%H:%M:%fZ', j.enqueued_at / 1e6, 'unixepoch') AS at,
    'queued' AS event, NULL AS stage, NULL AS attempt, NULL AS kind, NULL AS detail,
    NULL AS code
FROM perdure_jobs AS j
UNION ALL
SELECT j.id, a.claimed_at, strftime('%Y-%m-%dT%H:%M:%fZ', a.claimed_at / 1e6, 'unixepoch'),
    'processing', a.stage, a.number, NULL, NULL, NULL
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
UNION ALL
SELECT j.id, j.claimed_at, strftime('%Y-%m-%dT%H:%M:%fZ', j.claimed_at / 1e6, 'unixepoch'),
    'processing', j.stage, j.starts, NULL, NULL, NULL
FROM perdure_jobs AS j
WHERE j.state = 'processing'
UNION ALL
SELECT j.id, a.settled_at, strftime('%Y-%m-%dT%H:%M:%fZ', a.settled_at / 1e6, 'unixepoch'),
    CASE WHEN a.status = 'retrying' THEN 'retry'
        WHEN a.status = 'success' AND a.state = 'succeeded' THEN 'complete'
        WHEN a.status = 'success' THEN 'advanced'
        WHEN a.status = 'failed' AND j.failed_reason = 'expired' AND a.life = j.life THEN 'expired'
        ELSE a.status END,
    a.stage, a.number, a.kind, a.why, a.code
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
UNION ALL
SELECT j.id, j.finished_at, strftime('%Y-%m-%dT%H:%M:%fZ', j.finished_at / 1e6, 'unixepoch'),
    CASE WHEN j.failed_reason = 'expired' THEN 'expired' ELSE j.state END,
    j.stage, NULL, j.error_kind, NULL, j.error_code
FROM perdure_jobs AS j
WHERE j.finished_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM perdure_attempts AS a
    WHERE a.job = j.no AND a.life = j.life AND a.state = j.state
)
UNION ALL
SELECT j.id, d.done_at, strftime('%Y-%m-%dT%H:%M:%fZ', d.done_at / 1e6, 'unixepoch'),
    d.verb, NULL, NULL, NULL, d.reason, NULL
FROM perdure_audit_log AS d JOIN perdure_jobs AS j ON d.subject = j.id;

-- Jobs as the converter calls them. A lease is the worker's, and a caller's lasts until its job must have ended. Attempts
-- are those of this life that succeeded or count as failures, and the one under way; a job that was driven again was
-- queued when it was.
CREATE VIEW perdure_converter_jobs AS
SELECT j.no AS job, j.id, j.owner, j.pipeline, j.stage,
    CASE WHEN j.state = 'succeeded' THEN 'complete' ELSE j.state END AS status,
    (SELECT count(*) FROM perdure_attempts AS a
        WHERE a.job = j.no AND a.life = j.life AND (a.status = 'success' OR a.counted IN ('failures', 'crashes,failures'))
    ) + CASE WHEN j.state = 'processing' THEN 1 ELSE 0 END AS "attemptCount",
    strftime('%Y-%m-%dT%H:%M:%fZ', j.claimed_at / 1e6, 'unixepoch') AS "lastAttemptAt",
    CASE WHEN j.ready = 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', j.due_at / 1e6, 'unixepoch') END AS "retryAfter",
    w.name AS leased_by,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(CASE WHEN w.no IS NOT NULL THEN j.hard_at END, w.beat_at + w.ttl_us) / 1e6, 'unixepoch') AS lease_expires_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.enqueued_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', (CASE WHEN j.life = 1 THEN j.enqueued_at ELSE j.order_at END) / 1e6, 'unixepoch') AS "queuedAt",
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(
        (SELECT min(a.claimed_at) FROM perdure_attempts AS a WHERE a.job = j.no), j.claimed_at
    ) / 1e6, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.updated_at / 1e6, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.finished_at / 1e6, 'unixepoch') AS "endedAt",
    j.error_code AS "errorCode", j.error_message AS "errorMessage", j.failed_reason AS "failedReason",
    CASE WHEN j.failed_reason IS NOT NULL AND j.discarded_at IS NULL THEN 1 ELSE 0 END AS "deadLetter"
FROM perdure_jobs AS j LEFT JOIN perdure_workers AS w ON w.no = j.worker;

-- Jobs as samples of a dataset. What has failed is in the DLQ until it is driven again, or discarded.
-- The JSON is put together by hand: where the schema is not trusted, a view may not call json_object (3.40).
CREATE VIEW perdure_dataset_samples AS
SELECT j.id, j.no AS job, j.owner AS tenant_id, j.pipeline AS pipeline_id, r.id AS run_id, j.key,
    CASE WHEN j.state = 'queued' THEN 'pending'
        WHEN j.state = 'succeeded' THEN 'completed'
        WHEN j.state = 'failed' AND j.discarded_at IS NULL THEN 'dlq'
        ELSE j.state END AS status,
    CASE WHEN j.state = 'failed' AND j.discarded_at IS NULL THEN
        '{"stage":"' || j.stage || '","error":"'
        || replace(replace(replace(replace(coalesce(j.error_detail, j.error_message, ''), '\', '\\'), '"', '\"'), char(10), ' '), char(9), ' ')
        || '","last_attempt_at":' || coalesce('"' || strftime('%Y-%m-%dT%H:%M:%fZ', j.claimed_at / 1e6, 'unixepoch') || '"', 'null') || '}'
    END AS dlq_reason,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.enqueued_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', j.updated_at / 1e6, 'unixepoch') AS updated_at
FROM perdure_jobs AS j LEFT JOIN perdure_runs AS r ON r.no = j.run;

-- Every try of a stage, whatever ended it: what is tried again is retrying.
CREATE VIEW perdure_dataset_stages_applied AS
SELECT j.id AS sample_id, j.no AS job, r.id AS run_id, a.stage AS stage_name, a.config_hash AS stage_config_hash, a.life, a.number AS attempt,
    CASE WHEN a.status IN ('success', 'failed', 'cancelled') THEN a.status ELSE 'retrying' END AS status,
    CASE WHEN a.status <> 'success' THEN coalesce(nullif(a.message, ''), a.kind) END AS error_message,
    a.kind AS error_kind, a.elapsed_s AS duration_s, a.tokens_in, a.tokens_out, a.cost_nusd / 1e9 AS cost_usd,
    strftime('%Y-%m-%dT%H:%M:%fZ', a.settled_at / 1e6, 'unixepoch') AS applied_at
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job LEFT JOIN perdure_runs AS r ON r.no = j.run;
