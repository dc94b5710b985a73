-- What struck nobody for a month loses its fingerprint and its owner.
INSERT INTO perdure_deaths (
    fingerprint, owner, pipeline, stage, reason, kind, code, letters, ever, first_at, last_at
)
SELECT '', '', pipeline, stage, reason, kind, code, 0, sum(ever), min(first_at), max(last_at)
FROM perdure_deaths WHERE letters = 0 AND fingerprint <> '' AND last_at < :old
GROUP BY pipeline, stage, reason, kind, code
ON CONFLICT (fingerprint, owner, pipeline, stage, reason, kind, code, writer) DO UPDATE SET
    ever = ever + excluded.ever, first_at = coalesce(min(first_at, excluded.first_at), first_at, excluded.first_at),
    last_at = coalesce(max(last_at, excluded.last_at), last_at, excluded.last_at)
