-- compat_min: 7
-- More verbs for bulk operations, the payloads that they bring, and those that were replaced.

DROP INDEX perdure_bulks_running;
ALTER TABLE perdure_bulks RENAME TO perdure_bulks_before;
CREATE TABLE perdure_bulks (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    verb        TEXT NOT NULL CHECK (verb IN ('redrive', 'discard', 'cancel', 'retry', 'run now')),
    status      TEXT NOT NULL CHECK (status IN ('running', 'done', 'stopped')),
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
INSERT INTO perdure_bulks (
    no, id, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at,
    settings, run, phase, why
)
SELECT
    no, id, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at,
    settings, run, phase, why
FROM perdure_bulks_before;
DROP TABLE perdure_bulks_before;
CREATE INDEX perdure_bulks_running ON perdure_bulks (no) WHERE status = 'running';

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
