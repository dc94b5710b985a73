-- Of these runs, which have new items, the ones that had ended are running again; a cancelled one has to be
-- cancelled anew.
UPDATE perdure_runs SET
    status = CASE WHEN status = 'cancelled' THEN status ELSE 'running' END,
    why = CASE WHEN status = 'cancelled' THEN why ELSE '' END,
    ended_at = NULL, changed_at = :now
WHERE no IN (SELECT value FROM json_each(:nos)) AND ended_at IS NOT NULL
RETURNING no, id, owner, pipeline, status
