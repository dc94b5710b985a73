-- How many jobs stand where, by lane; from the tallies, so that no job is counted.
SELECT d.lane, l.queue, l.pipeline, l.stage, sum(d.ready), sum(d.waiting), sum(d.retrying), sum(d.processing),
    sum(d.succeeded), sum(d.failed), sum(d.cancelled)
FROM perdure_depths AS d JOIN perdure_lanes AS l ON l.no = d.lane
GROUP BY d.lane, l.queue, l.pipeline, l.stage
