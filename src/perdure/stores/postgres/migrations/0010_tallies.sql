-- compat_min: 10
-- Tallies: what would otherwise have to be counted. One row for each key and writer (a backend, or a borrowed transaction), so
-- that no row is hot; summed on read, and folded into those of writer 0 now and then. They take the place of the books.

DROP TABLE perdure_books;

-- How many jobs stand where. ``waiting`` for their time; ``retrying`` for it after a failure.
CREATE TABLE perdure_depths (
    lane        bigint NOT NULL,
    writer      bigint NOT NULL DEFAULT 0,
    ready       bigint NOT NULL DEFAULT 0,
    waiting     bigint NOT NULL DEFAULT 0,
    retrying    bigint NOT NULL DEFAULT 0,
    processing  bigint NOT NULL DEFAULT 0,
    succeeded   bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    cancelled   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (lane, writer)
);

-- What has happened, by the minute since 1970; minute 0 is all that is older than an hour, and minute -1 what of all
-- this is not found in the rows any more, because it was pruned.
CREATE TABLE perdure_flows (
    pipeline    text NOT NULL,
    stage       text NOT NULL,
    minute      bigint NOT NULL,
    writer      bigint NOT NULL DEFAULT 0,
    created     bigint NOT NULL DEFAULT 0,
    succeeded   bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    cancelled   bigint NOT NULL DEFAULT 0,
    revived     bigint NOT NULL DEFAULT 0,
    attempts    bigint NOT NULL DEFAULT 0,
    retries     bigint NOT NULL DEFAULT 0,
    waits       bigint NOT NULL DEFAULT 0,
    tokens_in   bigint NOT NULL DEFAULT 0,
    tokens_out  bigint NOT NULL DEFAULT 0,
    cost_nusd   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (pipeline, stage, minute, writer)
);

-- Dead letters by what they died of; ``ever`` does not fall when they live again, are discarded or pruned.
CREATE TABLE perdure_deaths (
    fingerprint  text NOT NULL,
    owner        text NOT NULL,
    pipeline     text NOT NULL,
    stage        text NOT NULL,
    reason       text NOT NULL,
    kind         text NOT NULL,
    code         text NOT NULL,
    writer       bigint NOT NULL DEFAULT 0,
    letters      bigint NOT NULL DEFAULT 0,
    ever         bigint NOT NULL DEFAULT 0,
    first_at     bigint,
    last_at      bigint,
    PRIMARY KEY (fingerprint, owner, pipeline, stage, reason, kind, code, writer)
);

-- How many jobs of an owner are queued or in work; those of nobody are not counted here.
CREATE TABLE perdure_owners (
    owner   text NOT NULL,
    writer  bigint NOT NULL DEFAULT 0,
    open    bigint NOT NULL,
    PRIMARY KEY (owner, writer)
);

ALTER TABLE perdure_depths SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200
);
ALTER TABLE perdure_flows SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000
);
ALTER TABLE perdure_deaths SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE perdure_owners SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
