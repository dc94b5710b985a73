-- Each counted up to a bound, in the partial index that holds just these jobs.
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM perdure_jobs WHERE ready = 1 LIMIT %(count_max)s) AS counted),
    (SELECT count(*) FROM (
        SELECT 1 FROM perdure_jobs WHERE ready = 0 LIMIT %(count_max)s) AS counted),
    (SELECT count(*) FROM (
        SELECT 1 FROM perdure_jobs WHERE worker IS NOT NULL LIMIT %(count_max)s) AS counted),
    (SELECT count(*) FROM (
        SELECT 1 FROM perdure_jobs WHERE failed_reason IS NOT NULL LIMIT %(count_max)s) AS counted)
