-- compat_min: 4
-- What runs, dead letters and the books need: when a run's items are all in, what it has used up and how its jobs
-- failed; the public code, the detail and the fingerprint of a failure; bulk operations that go on after a crash.

ALTER TABLE perdure_jobs ADD COLUMN error_code text;
ALTER TABLE perdure_jobs ADD COLUMN error_detail text;
ALTER TABLE perdure_jobs ADD COLUMN fingerprint text;

ALTER TABLE perdure_attempts ADD COLUMN code text;
ALTER TABLE perdure_attempts ADD COLUMN tokens_in bigint NOT NULL DEFAULT 0;
ALTER TABLE perdure_attempts ADD COLUMN tokens_out bigint NOT NULL DEFAULT 0;
ALTER TABLE perdure_attempts ADD COLUMN cost_nusd bigint NOT NULL DEFAULT 0;

ALTER TABLE perdure_artifacts ADD COLUMN bytes_whole bigint NOT NULL DEFAULT 0;

ALTER TABLE perdure_runs ADD COLUMN sealed_at bigint;
ALTER TABLE perdure_runs ADD COLUMN why text NOT NULL DEFAULT '';
ALTER TABLE perdure_runs ADD COLUMN checked bigint NOT NULL DEFAULT 0;
-- Who feeds it, since when (NULL: nobody does), and the last sign of that.
ALTER TABLE perdure_runs ADD COLUMN fed_by text;
ALTER TABLE perdure_runs ADD COLUMN feeding_at bigint;
ALTER TABLE perdure_runs ADD COLUMN fed_at bigint;

-- Money is counted in whole billionths of a dollar.
ALTER TABLE perdure_run_counts ADD COLUMN tokens_in bigint NOT NULL DEFAULT 0;
ALTER TABLE perdure_run_counts ADD COLUMN tokens_out bigint NOT NULL DEFAULT 0;
ALTER TABLE perdure_run_counts ADD COLUMN cost_nusd bigint NOT NULL DEFAULT 0;
-- Attempts of stages that name an upstream.
ALTER TABLE perdure_run_counts ADD COLUMN calls bigint NOT NULL DEFAULT 0;

-- The failed jobs of a run by failure kind, one row per writer, as in perdure_run_counts.
CREATE TABLE perdure_run_kinds (
    run     bigint NOT NULL,
    writer  bigint NOT NULL,
    kind    text NOT NULL,
    failed  bigint NOT NULL,
    PRIMARY KEY (run, writer, kind)
);
ALTER TABLE perdure_run_kinds SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200
);

-- What failed before is counted by kind as well; of what was pruned since, the kind is not known.
INSERT INTO perdure_run_kinds (run, writer, kind, failed)
SELECT run, 0, kind, sum(failed)
FROM (
    SELECT run, '' AS kind, failed FROM perdure_run_counts
    UNION ALL
    SELECT run, coalesce(error_kind, ''), 1 FROM perdure_jobs
    WHERE state = 'failed' AND run IS NOT NULL
    UNION ALL
    SELECT run, '', -1 FROM perdure_jobs WHERE state = 'failed' AND run IS NOT NULL
    UNION ALL
    SELECT redrive_run, coalesce(error_kind, ''), 1 FROM perdure_jobs
    WHERE state = 'failed' AND redrive_run IS NOT NULL
    UNION ALL
    SELECT redrive_run, '', -1 FROM perdure_jobs
    WHERE state = 'failed' AND redrive_run IS NOT NULL
) AS parts
GROUP BY run, kind HAVING sum(failed) <> 0;

ALTER TABLE perdure_bulks ADD COLUMN settings text NOT NULL DEFAULT '{}';
ALTER TABLE perdure_bulks ADD COLUMN run bigint;
ALTER TABLE perdure_bulks ADD COLUMN phase text NOT NULL DEFAULT 'all'
    CHECK (phase IN ('canary', 'proving', 'all'));
ALTER TABLE perdure_bulks ADD COLUMN why text NOT NULL DEFAULT '';

-- What a bulk operation has left as it was, and why.
CREATE TABLE perdure_bulk_refusals (
    bulk  bigint NOT NULL,
    job   bigint NOT NULL,
    why   text NOT NULL,
    PRIMARY KEY (bulk, job)
);

-- Which lives of jobs belong to a run that drove dead letters again; kept when another run takes them over.
CREATE TABLE perdure_redrives (
    run   bigint NOT NULL,
    job   bigint NOT NULL,
    life  integer NOT NULL,
    PRIMARY KEY (run, job, life)
);
INSERT INTO perdure_redrives (run, job, life)
SELECT redrive_run, no, life FROM perdure_jobs WHERE redrive_run IS NOT NULL;
CREATE INDEX perdure_redrives_job ON perdure_redrives (job);

-- What was pruned of a run, so that its counts stay what its jobs were.
CREATE TABLE perdure_run_pruned (
    run         bigint NOT NULL PRIMARY KEY,
    succeeded   bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    cancelled   bigint NOT NULL DEFAULT 0,
    attempts    bigint NOT NULL DEFAULT 0,
    retries     bigint NOT NULL DEFAULT 0,
    tokens_in   bigint NOT NULL DEFAULT 0,
    tokens_out  bigint NOT NULL DEFAULT 0,
    cost_nusd   bigint NOT NULL DEFAULT 0
);
-- What went before this was kept: all that is counted and not found.
INSERT INTO perdure_run_pruned (run, succeeded, failed, cancelled, attempts, retries)
SELECT run, sum(succeeded), sum(failed), sum(cancelled), sum(attempts), sum(retries)
FROM (
    SELECT run, succeeded, failed, cancelled, attempts, retries FROM perdure_run_counts
    UNION ALL
    SELECT o.run, -CASE WHEN j.state = 'succeeded' THEN 1 ELSE 0 END,
        -CASE WHEN j.state = 'failed' THEN 1 ELSE 0 END,
        -CASE WHEN j.state = 'cancelled' THEN 1 ELSE 0 END, 0, 0
    FROM (
        SELECT run, no FROM perdure_jobs WHERE run IS NOT NULL
        UNION ALL
        SELECT run, job FROM perdure_redrives
    ) AS o JOIN perdure_jobs AS j ON j.no = o.no
    UNION ALL
    SELECT o.run, 0, 0, 0, -1,
        -CASE WHEN a.counted = 'failures' AND a.state NOT IN ('succeeded', 'failed', 'cancelled')
            THEN 1 ELSE 0 END
    FROM (
        SELECT run, no, NULL AS life FROM perdure_jobs WHERE run IS NOT NULL
        UNION ALL
        SELECT run, job, life FROM perdure_redrives
    ) AS o JOIN perdure_attempts AS a ON a.job = o.no AND (o.life IS NULL OR a.life = o.life)
) AS parts
WHERE run IN (SELECT no FROM perdure_runs)
GROUP BY run
HAVING sum(succeeded) <> 0 OR sum(failed) <> 0 OR sum(cancelled) <> 0 OR sum(attempts) <> 0 OR sum(retries) <> 0;

-- As unique as before; in this order it also finds the same key in other runs.
DROP INDEX perdure_jobs_key;
CREATE UNIQUE INDEX perdure_jobs_key ON perdure_jobs (owner, pipeline, key, coalesce(run, 0))
    WHERE key IS NOT NULL;

CREATE INDEX perdure_jobs_run_ended ON perdure_jobs (run, finished_at, no)
    WHERE run IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX perdure_jobs_redrive_ended ON perdure_jobs (redrive_run, finished_at, no)
    WHERE redrive_run IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX perdure_jobs_fingerprint ON perdure_jobs (fingerprint, no) WHERE fingerprint IS NOT NULL;
CREATE INDEX perdure_runs_live ON perdure_runs (no) WHERE ended_at IS NULL;
CREATE INDEX perdure_bulks_running ON perdure_bulks (no) WHERE status = 'running';

-- What there is already: a finished run has all of its items, and a capture was never cut.
UPDATE perdure_runs SET sealed_at = ended_at
WHERE status IN ('completed', 'partial_success', 'failed') AND sealed_at IS NULL;
UPDATE perdure_artifacts SET bytes_whole = octet_length(content);

-- The figures of reports and of dead letters, for whoever asks in SQL; with readable moments and dollars. Those of
-- runs have one row or more for each run, by its number, which goes down to the indexes: WHERE run = 7.

-- What has failed and nobody has discarded.
CREATE VIEW perdure_dead_letters AS
SELECT j.no AS job, j.id AS job_id, j.owner, j.pipeline, j.stage, j.run, j.redrive_run, j.key,
    j.failed_reason AS reason, j.error_kind AS kind, j.error_code AS code, j.error_message AS message,
    j.error_detail AS detail, j.fingerprint, j.life, j.retries_manual,
    (SELECT count(*) FROM perdure_attempts AS a WHERE a.job = j.no) AS attempts,
    to_timestamp(j.enqueued_at / 1e6) AS enqueued_at,
    to_timestamp(j.finished_at / 1e6) AS failed_at
FROM perdure_jobs AS j
WHERE j.failed_reason IS NOT NULL AND j.discarded_at IS NULL;

-- What counts in a run: its own jobs, with all of their lives; and of others the lives that were driven again in it
-- (``driven``). One that another life followed has failed. ``last`` is 0 where the next life was driven in the same run.
CREATE VIEW perdure_run_jobs AS
SELECT j.run, j.no AS job, j.life, j.state, j.enqueued_at, j.finished_at, NULL::bigint AS driven, 1::bigint AS last
FROM perdure_jobs AS j WHERE j.run IS NOT NULL
UNION ALL
SELECT d.run, d.job, d.life, CASE WHEN j.life > d.life THEN 'failed' ELSE j.state END, j.enqueued_at,
    CASE WHEN j.life = d.life THEN j.finished_at END, d.life::bigint,
    CASE WHEN (
        SELECT n.life FROM perdure_redrives AS n WHERE n.run = d.run AND n.job = d.job AND n.life = d.life + 1
    ) IS NULL THEN 1::bigint ELSE 0 END
FROM perdure_redrives AS d JOIN perdure_jobs AS j ON j.no = d.job
WHERE d.run <> coalesce(j.run, 0);

-- How far each run is; from its counts, so that no job is looked at.
CREATE VIEW perdure_run_progress AS
SELECT s.run, s.run_id, s.owner, s.pipeline, s.name, s.status, s.why, s.parent,
    s.total, s.total - s.succeeded - s.failed - s.cancelled AS open, s.succeeded, s.failed, s.cancelled,
    CASE WHEN s.succeeded + s.failed > 0 THEN s.failed * 1.0::double precision / (s.succeeded + s.failed) END AS failed_share,
    s.attempts, s.retries, s.tokens_in, s.tokens_out, s.cost_nusd / 1e9::double precision AS cost_usd,
    to_timestamp(s.created_at / 1e6) AS created_at,
    to_timestamp(s.sealed_at / 1e6) AS sealed_at,
    to_timestamp(s.ended_at / 1e6) AS ended_at
FROM (
    SELECT r.no AS run, r.id AS run_id, r.owner, r.pipeline, r.name, r.status, r.why, r.parent,
        r.created_at, r.sealed_at, r.ended_at,
        coalesce(sum(c.total), 0)::bigint AS total, coalesce(sum(c.succeeded), 0)::bigint AS succeeded,
        coalesce(sum(c.failed), 0)::bigint AS failed, coalesce(sum(c.cancelled), 0)::bigint AS cancelled,
        coalesce(sum(c.attempts), 0)::bigint AS attempts, coalesce(sum(c.retries), 0)::bigint AS retries,
        coalesce(sum(c.tokens_in), 0)::bigint AS tokens_in, coalesce(sum(c.tokens_out), 0)::bigint AS tokens_out,
        coalesce(sum(c.cost_nusd), 0)::bigint AS cost_nusd
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
FROM perdure_run_jobs AS o JOIN perdure_attempts AS a ON a.job = o.job AND a.life = coalesce(o.driven, a.life)
AND a.kind IS NOT NULL
GROUP BY o.run, a.kind, coalesce(a.code, '');

-- What each stage did in a run; durations by the nearest rank, of attempts that succeeded. The stage that was
-- entered first has the lowest ``entered``.
CREATE VIEW perdure_run_stages AS
SELECT p.run, p.stage, count(*) AS attempts, count(*) FILTER (WHERE p.good = 1) AS succeeded,
    count(*) FILTER (WHERE p.status = 'retrying') AS retried,
    count(*) FILTER (WHERE p.status = 'failed') AS failed,
    count(*) FILTER (WHERE p.status = 'retrying') * 1.0::double precision / count(*) AS retry_rate,
    count(*) FILTER (WHERE p.status = 'failed') * 1.0::double precision / count(*) AS failure_rate,
    max(p.elapsed_s) FILTER (WHERE p.good = 1 AND p.place = (p.among * 50 + 99) / 100) AS p50_s,
    max(p.elapsed_s) FILTER (WHERE p.good = 1 AND p.place = (p.among * 95 + 99) / 100) AS p95_s,
    coalesce(sum(p.tokens_in), 0)::bigint AS tokens_in, coalesce(sum(p.tokens_out), 0)::bigint AS tokens_out,
    sum(p.cost_nusd) / 1e9::double precision AS cost_usd,
    coalesce(sum(p.cost_nusd) FILTER (WHERE p.good = 0), 0) / 1e9::double precision AS wasted_usd,
    min(p.token) AS entered
FROM (
    SELECT g.*,
        row_number() OVER w AS place, count(*) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS among
    FROM (
        SELECT o.run, a.stage, a.token, a.status, a.elapsed_s, a.tokens_in, a.tokens_out, a.cost_nusd,
            CASE WHEN a.status = 'success' THEN 1 ELSE 0 END AS good
        FROM perdure_run_jobs AS o JOIN perdure_attempts AS a ON a.job = o.job AND a.life = coalesce(o.driven, a.life)
    ) AS g
    WINDOW w AS (PARTITION BY g.run, g.stage, g.good ORDER BY g.elapsed_s)
) AS p
GROUP BY p.run, p.stage;

-- What the attempts of a run came to, how many of them were wasted, how many had output that did not fit, and of
-- how many raw output is kept.
CREATE VIEW perdure_run_waste AS
SELECT o.run, count(*) AS attempts, count(*) FILTER (WHERE a.status <> 'success') AS wasted_attempts,
    sum(a.cost_nusd) / 1e9::double precision AS cost_usd,
    coalesce(sum(a.cost_nusd) FILTER (WHERE a.status <> 'success'), 0) / 1e9::double precision AS wasted_usd,
    count(*) FILTER (WHERE a.kind IN ('invalid_output', 'truncated_output')) AS invalid_outputs,
    count(*) FILTER (WHERE EXISTS (
        SELECT 1 FROM perdure_artifacts AS c WHERE c.job = a.job AND c.token = a.token
    )) AS attempts_captured
FROM perdure_run_jobs AS o JOIN perdure_attempts AS a ON a.job = o.job AND a.life = coalesce(o.driven, a.life)
GROUP BY o.run;

-- From enqueueing to success, in seconds; by the nearest rank.
CREATE VIEW perdure_run_times AS
SELECT p.run, count(*) AS succeeded,
    max(p.took_s) FILTER (WHERE p.place = (p.among * 50 + 99) / 100) AS p50_s,
    max(p.took_s) FILTER (WHERE p.place = (p.among * 95 + 99) / 100) AS p95_s, avg(p.took_s) AS mean_s
FROM (
    SELECT g.run, g.took_s, row_number() OVER w AS place, count(*) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS among
    FROM (
        SELECT o.run, (o.finished_at - o.enqueued_at) / 1e6::double precision AS took_s
        FROM perdure_run_jobs AS o WHERE o.state = 'succeeded'
    ) AS g
    WINDOW w AS (PARTITION BY g.run ORDER BY g.took_s)
) AS p
GROUP BY p.run;
