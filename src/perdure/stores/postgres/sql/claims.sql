-- Claims whole, by number, in the order of `claim_out`.
SELECT
    j.no, j.id::text, j.token, j.lane, j.pipeline, j.stage, j.owner, j.payload,
    CASE WHEN j.input_from IS NOT NULL THEN coalesce((
        SELECT c.value FROM perdure_checkpoints AS c WHERE c.job = j.no AND c.stage = j.input_from
    ), '') END,
    j.starts, j.failures, j.waits, j.crashes, j.snoozes, j.probes, j.releases, j.waited_s,
    j.past, j.life, j.isolation, j.claimed_at, j.due_at, j.deadline_at, j.key, j.run, j.tokens,
    j.request_id
FROM perdure_jobs AS j
WHERE j.no = ANY (%(nos)s::bigint[]) AND j.state = 'processing'
ORDER BY j.rank_at, j.no
