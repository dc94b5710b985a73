-- compat_min: 7
-- More verbs for bulk operations, the payloads that they bring, and those that were replaced.

ALTER TABLE perdure_bulks DROP CONSTRAINT perdure_bulks_verb_check;
ALTER TABLE perdure_bulks ADD CONSTRAINT perdure_bulks_verb_check
    CHECK (verb IN ('redrive', 'discard', 'cancel', 'retry', 'run now'));

-- Corrected payloads that a bulk operation brings, by the keys of their jobs; gone when it is done.
CREATE TABLE perdure_bulk_payloads (
    bulk     bigint NOT NULL,
    key      text NOT NULL,
    payload  text NOT NULL,
    PRIMARY KEY (bulk, key)
);

-- What a job was given until the end of a life, when another payload took its place.
CREATE TABLE perdure_payloads (
    job      bigint NOT NULL,
    life     integer NOT NULL,
    payload  text NOT NULL,
    PRIMARY KEY (job, life)
);
