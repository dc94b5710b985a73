-- compat_min: 6
-- Whose and when: lists of one owner's jobs, newest first or by their last change, cost what they return. The jobs that
-- have an owner stand in a table of their own, and the attempts of those jobs name it: the wide row of a job keeps its
-- indexes, a claim writes nothing here, and what has no owner stands in none of these indexes.
-- ``changed_at`` is when the job last changed otherwise than by the end of an attempt: it came in, was given a new life
-- or discarded, or ended while it waited (the final end of a failed one is noted here, too).

-- The key stands first: else the integrity check of SQLite 3.40 misses a value that is there.
CREATE TABLE perdure_owned (
    owner       TEXT NOT NULL CHECK (owner <> ''),
    job         INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL,
    failed      INTEGER NOT NULL DEFAULT 0 CHECK (failed IN (0, 1)),
    PRIMARY KEY (owner, job)
) WITHOUT ROWID;
CREATE INDEX perdure_owned_changed ON perdure_owned (owner, changed_at, job);
CREATE INDEX perdure_owned_failed ON perdure_owned (owner, job) WHERE failed;

ALTER TABLE perdure_attempts ADD COLUMN owner TEXT;
CREATE INDEX perdure_attempts_owner ON perdure_attempts (owner, settled_at, job) WHERE owner IS NOT NULL;

INSERT INTO perdure_owned (owner, job, failed, changed_at)
SELECT owner, no, state = 'failed', CASE WHEN state = 'processing' THEN enqueued_at ELSE updated_at END
FROM perdure_jobs WHERE owner <> '';
UPDATE perdure_attempts SET owner = (SELECT j.owner FROM perdure_jobs AS j WHERE j.no = job)
WHERE job IN (SELECT no FROM perdure_jobs WHERE owner <> '');
