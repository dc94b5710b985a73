-- Dead letters by what they died of, as the tallies say and as the rows are; those of all owners, and those of each.
SELECT fingerprint || ' of pipeline ' || pipeline || ', stage ' || stage,
    'the tallies say ' || letters || ' dead letters of ' || reason || ', ' || kind || ', the rows are ' || found
FROM (
    SELECT owner, fingerprint, pipeline, stage, reason, kind, code, sum(letters) AS letters, sum(found) AS found
    FROM (
        SELECT owner, fingerprint, pipeline, stage, reason, kind, code, letters, 0 AS found FROM perdure_deaths
        UNION ALL
        SELECT '', coalesce(fingerprint, ''), pipeline, stage, failed_reason, coalesce(error_kind, ''),
            coalesce(error_code, ''), 0, 1
        FROM perdure_jobs WHERE failed_reason IS NOT NULL AND discarded_at IS NULL
        UNION ALL
        SELECT owner, coalesce(fingerprint, ''), pipeline, stage, failed_reason, coalesce(error_kind, ''),
            coalesce(error_code, ''), 0, 1
        FROM perdure_jobs WHERE failed_reason IS NOT NULL AND discarded_at IS NULL AND owner <> ''
    ) AS parts
    GROUP BY owner, fingerprint, pipeline, stage, reason, kind, code
) AS sums
WHERE letters <> found
