-- The claims come back whole: what a worker needs to run them, in the order of `claim_out`.
UPDATE perdure_jobs SET
    state = 'processing', ready = NULL, worker = :worker, token = token + 1,
    starts = starts + 1, claimed_at = :now, updated_at = :now
WHERE no IN (SELECT value FROM json_each(:nos)) AND ready = 1
RETURNING
    no, id, token, lane, pipeline, stage, owner, payload,
    CASE WHEN input_from IS NOT NULL THEN coalesce((
        SELECT c.value FROM perdure_checkpoints AS c
        WHERE c.job = perdure_jobs.no AND c.stage = input_from
    ), '') END,
    starts, failures, waits, crashes, snoozes, probes, releases, waited_s,
    past, life, isolation, claimed_at, due_at, deadline_at, key, run
