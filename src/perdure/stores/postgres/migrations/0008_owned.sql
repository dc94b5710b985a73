-- compat_min: 6
-- Whose and when: lists of one owner's jobs, newest first or by their last change, cost what they return. The jobs that
-- have an owner stand in a table of their own, and the attempts of those jobs name it: the wide row of a job keeps its
-- indexes, a claim writes nothing here, and what has no owner stands in none of these indexes.
-- ``changed_at`` is when the job last changed otherwise than by the end of an attempt: it came in, was given a new life
-- or discarded, or ended while it waited (the final end of a failed one is noted here, too).

CREATE TABLE perdure_owned (
    owner       text NOT NULL CHECK (owner <> ''),
    job         bigint NOT NULL,
    changed_at  bigint NOT NULL,
    failed      boolean NOT NULL DEFAULT false,
    PRIMARY KEY (owner, job)
);
CREATE INDEX perdure_owned_changed ON perdure_owned (owner, changed_at, job);
CREATE INDEX perdure_owned_failed ON perdure_owned (owner, job) WHERE failed;

ALTER TABLE perdure_attempts ADD COLUMN owner text;
CREATE INDEX perdure_attempts_owner ON perdure_attempts (owner, settled_at, job) WHERE owner IS NOT NULL;

INSERT INTO perdure_owned (owner, job, failed, changed_at)
SELECT owner, no, state = 'failed', CASE WHEN state = 'processing' THEN enqueued_at ELSE updated_at END
FROM perdure_jobs WHERE owner <> '';
UPDATE perdure_attempts AS a SET owner = j.owner FROM perdure_jobs AS j WHERE j.no = a.job AND j.owner <> '';
