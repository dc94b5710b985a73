-- What struck nobody for a month is forgotten; of what is counted for all owners the sum stays, without the fingerprint.
INSERT INTO perdure_deaths (
    owner, fingerprint, pipeline, stage, reason, kind, code, letters, ever, first_at, last_at
)
SELECT '', '', pipeline, stage, reason, kind, code, 0, sum(ever), min(first_at), max(last_at)
FROM perdure_deaths WHERE owner = '' AND letters = 0 AND fingerprint <> '' AND last_at < :old
GROUP BY pipeline, stage, reason, kind, code
ON CONFLICT (owner, fingerprint, pipeline, stage, reason, kind, code, writer) DO UPDATE SET
    ever = ever + excluded.ever, first_at = coalesce(min(first_at, excluded.first_at), first_at, excluded.first_at),
    last_at = coalesce(max(last_at, excluded.last_at), last_at, excluded.last_at)
