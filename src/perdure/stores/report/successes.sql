-- Microseconds from enqueueing to success: percentiles by the nearest rank, their sum, and how many.
WITH jobs AS (
    SELECT enqueued_at, finished_at, state FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT j.enqueued_at, j.finished_at, j.state
    FROM perdure_redrives AS d CROSS JOIN perdure_jobs AS j
    WHERE d.run = :run AND j.no = d.job + 0 AND j.life = d.life AND coalesce(j.run, 0) <> :run
),
placed AS (
    SELECT finished_at - enqueued_at AS took_us,
        row_number() OVER (ORDER BY finished_at - enqueued_at) AS place, count(*) OVER () AS among
    FROM jobs WHERE state = 'succeeded'
)
SELECT max(took_us) FILTER (WHERE place = (among * 50 + 99) / 100),
    max(took_us) FILTER (WHERE place = (among * 95 + 99) / 100), sum(took_us), count(*)
FROM placed
