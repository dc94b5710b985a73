-- compat_min: 8
-- The change feed: what happened to jobs, runs, gates and workers, one line for each write. Writers come one after the
-- other, so that the order of numbers is the order of commits, and a number is a cursor.
CREATE TABLE perdure_changes (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    xid         INTEGER, -- PostgreSQL's; here numbers are drawn under the write lock
    changed_at  INTEGER NOT NULL,
    what        TEXT NOT NULL CHECK (what IN (
        'job_accepted', 'attempt_ended', 'job_ended', 'job_revived', 'job_discarded', 'run_changed',
        'gate_changed', 'worker_changed')),
    size        INTEGER NOT NULL, -- entries
    entries     TEXT NOT NULL
);

-- Where the feed stood at which moment. The oldest mark says from where on it is whole.
CREATE TABLE perdure_change_marks (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    marked_at  INTEGER NOT NULL,
    place      INTEGER NOT NULL -- the last line that there was
);
