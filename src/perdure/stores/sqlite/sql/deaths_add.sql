INSERT INTO perdure_deaths (
    owner, fingerprint, pipeline, stage, reason, kind, code, letters, ever, first_at, last_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, fingerprint, pipeline, stage, reason, kind, code, writer) DO UPDATE SET
    letters = letters + excluded.letters, ever = ever + excluded.ever,
    first_at = coalesce(min(first_at, excluded.first_at), first_at, excluded.first_at),
    last_at = coalesce(max(last_at, excluded.last_at), last_at, excluded.last_at)
