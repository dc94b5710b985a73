-- Dead letters by what they died of, as the tallies say and as the rows are; those of all owners, and those of each. None
-- died before the first or after the last time; and where all that ever died of it are still there, those two are theirs
-- exactly. As many as ever died in a stage have failed in it, and of no owner are there more than of all.
-- Not shown by any row: the first and last time where some of the dead were revived, discarded or pruned, as far as they
-- lie outside of those that are left; and how many of an owner ever died, which is forgotten after a month.
WITH sums AS (
    SELECT owner, fingerprint, pipeline, stage, reason, kind, code, sum(letters) AS letters, sum(ever) AS ever,
        min(first_at) AS first_at, max(last_at) AS last_at, sum(found) AS found, min(died_at) AS first_found,
        max(died_at) AS last_found
    FROM (
        SELECT owner, fingerprint, pipeline, stage, reason, kind, code, letters, ever, first_at, last_at, 0 AS found,
            CAST(NULL AS bigint) AS died_at
        FROM perdure_deaths
        UNION ALL
        SELECT '', coalesce(fingerprint, ''), pipeline, stage, failed_reason, coalesce(error_kind, ''),
            coalesce(error_code, ''), 0, 0, NULL, NULL, 1, finished_at
        FROM perdure_jobs WHERE failed_reason IS NOT NULL AND discarded_at IS NULL
        UNION ALL
        SELECT owner, coalesce(fingerprint, ''), pipeline, stage, failed_reason, coalesce(error_kind, ''),
            coalesce(error_code, ''), 0, 0, NULL, NULL, 1, finished_at
        FROM perdure_jobs WHERE failed_reason IS NOT NULL AND discarded_at IS NULL AND owner <> ''
    ) AS parts
    GROUP BY owner, fingerprint, pipeline, stage, reason, kind, code
)
SELECT fingerprint || ' of pipeline ' || pipeline || ', stage ' || stage,
    'the tallies say ' || letters || ' dead letters of ' || reason || ', ' || kind || ', the rows are ' || found
FROM sums WHERE letters <> found
UNION ALL
SELECT fingerprint || ' of pipeline ' || pipeline || ', stage ' || stage,
    'the tallies say ' || letters || ' dead letters of ' || reason || ', ' || kind || ', and ' || ever || ' ever'
FROM sums WHERE letters > ever
UNION ALL
SELECT fingerprint || ' of pipeline ' || pipeline || ', stage ' || stage,
    'the tallies say that jobs died of ' || reason || ', ' || kind || ' from ' || coalesce(CAST(first_at AS text), 'never')
    || ' to ' || coalesce(CAST(last_at AS text), 'never') || ', the rows say from '
    || coalesce(CAST(first_found AS text), 'never') || ' to ' || coalesce(CAST(last_found AS text), 'never')
FROM sums
WHERE first_at > last_at OR letters = found AND (
    coalesce(first_at, first_found + 1) > first_found OR coalesce(last_at, last_found - 1) < last_found
    OR (ever = letters AND (first_at <> first_found OR last_at <> last_found))
)
UNION ALL
SELECT 'everything in pipeline ' || pipeline || ', stage ' || stage,
    'the tallies say that ' || ever || ' jobs ever died, and that ' || failed || ' failed'
FROM (
    SELECT pipeline, stage, sum(ever) AS ever, sum(failed) AS failed
    FROM (
        SELECT pipeline, stage, ever, 0 AS failed FROM perdure_deaths WHERE owner = ''
        UNION ALL
        SELECT pipeline, stage, 0, failed FROM perdure_flows WHERE minute >= 0
    ) AS both_sides
    GROUP BY pipeline, stage
) AS stages
WHERE ever <> failed
UNION ALL
SELECT 'every owner in pipeline ' || pipeline || ', stage ' || stage,
    'the tallies say that ' || owned || ' jobs of owners ever died of ' || reason || ', ' || kind || ', and ' || everybodys || ' of all'
FROM (
    SELECT pipeline, stage, reason, kind, code, sum(CASE WHEN owner = '' THEN ever ELSE 0 END) AS everybodys,
        sum(CASE WHEN owner = '' THEN 0 ELSE ever END) AS owned
    FROM perdure_deaths GROUP BY pipeline, stage, reason, kind, code
) AS owners
WHERE owned > everybodys
