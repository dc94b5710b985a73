-- What people see of a file. Beside it stands the job, which is the scheduler's: Perdure keeps that in tables of its own, in the
-- same database. `job_token` is how far a row has followed its job; whoever knows less changes nothing.
CREATE TABLE IF NOT EXISTS files (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    owner text NOT NULL,
    name text NOT NULL,
    bytes integer NOT NULL,
    version text NOT NULL, -- of the prompt and the schema
    status text NOT NULL DEFAULT 'uploaded'
        CHECK (status IN ('uploaded', 'queued', 'processing', 'succeeded', 'failed')),
    job_id text UNIQUE,
    job_token bigint NOT NULL DEFAULT 0,
    upload_key text NOT NULL UNIQUE,
    report_key text UNIQUE,
    report_sha256 text,
    raw_output text, -- a capture of the job: what the model said that did not fit
    error_code varchar(64),
    error_message varchar(280),
    queued_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    processed_at timestamptz,
    CHECK ((status = 'succeeded') = (report_key IS NOT NULL)),
    CHECK (status <> 'failed' OR error_code IS NOT NULL)
);
CREATE INDEX IF NOT EXISTS files_by_owner ON files (owner, no);
CREATE INDEX IF NOT EXISTS files_open ON files (no) WHERE status IN ('uploaded', 'queued', 'processing');
CREATE INDEX IF NOT EXISTS files_by_end ON files (processed_at);
