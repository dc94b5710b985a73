-- Dead letters by what they died of, as the tallies say and as the rows are.
SELECT fingerprint || ' of pipeline ' || pipeline || ', stage ' || stage,
    'the tallies say ' || letters || ' dead letters of ' || reason || ', ' || kind || ', the rows are ' || found
FROM (
    SELECT fingerprint, owner, pipeline, stage, reason, kind, code, sum(letters) AS letters, sum(found) AS found
    FROM (
        SELECT fingerprint, owner, pipeline, stage, reason, kind, code, letters, 0 AS found FROM perdure_deaths
        UNION ALL
        SELECT coalesce(fingerprint, ''), owner, pipeline, stage, failed_reason, coalesce(error_kind, ''),
            coalesce(error_code, ''), 0, 1
        FROM perdure_jobs WHERE failed_reason IS NOT NULL AND discarded_at IS NULL
    ) AS parts
    GROUP BY fingerprint, owner, pipeline, stage, reason, kind, code
) AS sums
WHERE letters <> found
