-- compat_min: 11
-- Tallies: what would otherwise have to be counted. Here there is one writer at
-- a time, so one row for each key. They take the place of the books.

DROP TABLE perdure_books;

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

-- Dead letters by what they died of; ``ever`` does not fall when they live again, are discarded or pruned.
CREATE TABLE perdure_deaths (
    fingerprint  TEXT NOT NULL,
    owner        TEXT NOT NULL,
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
    PRIMARY KEY (fingerprint, owner, pipeline, stage, reason, kind, code, writer)
) WITHOUT ROWID;

-- How many jobs of an owner are queued or in work; those of nobody are not counted here.
CREATE TABLE perdure_owners (
    owner   TEXT NOT NULL,
    writer  INTEGER NOT NULL DEFAULT 0,
    open    INTEGER NOT NULL,
    PRIMARY KEY (owner, writer)
) WITHOUT ROWID;
