-- What was uploaded. What becomes of it is the job's own, in Perdure's tables beside this one.
SELECT pg_advisory_xact_lock(hashtext('converter_files')); -- several processes may start at once
CREATE TABLE IF NOT EXISTS converter_files (
    upload text PRIMARY KEY,
    job_id uuid UNIQUE,
    owner text NOT NULL,
    name text NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    changed_at timestamptz NOT NULL DEFAULT now(),
    closed_at timestamptz,
    expired_at timestamptz,
    deleted_at timestamptz,
    download_count integer NOT NULL DEFAULT 0,
    first_downloaded_at timestamptz,
    CHECK (closed_at IS NOT NULL OR (expired_at IS NULL AND deleted_at IS NULL))
);
CREATE UNIQUE INDEX IF NOT EXISTS converter_files_open ON converter_files (owner, sha256) WHERE closed_at IS NULL;
CREATE INDEX IF NOT EXISTS converter_files_owner ON converter_files (owner, created_at);
