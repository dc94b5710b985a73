-- `claims.sql` reads them back: RETURNING so many columns is slower than a second look (3.40).
UPDATE perdure_jobs SET
    state = 'processing', ready = NULL, worker = :worker, token = token + 1,
    starts = starts + 1, claimed_at = :now, updated_at = :now
WHERE no IN (SELECT value FROM json_each(:nos)) AND ready = 1
