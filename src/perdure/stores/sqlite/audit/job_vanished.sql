-- Numbers are given out without gaps: a gap is a job that was taken out of the table by hand.
SELECT 'job number ' || (j.no + 1) ||
    CASE WHEN n.no - j.no > 2 THEN ' to ' || (n.no - 1) ELSE '' END,
    'is missing between ' || j.id || ' and ' || n.id
FROM perdure_jobs AS j JOIN perdure_jobs AS n
    ON n.no = (SELECT min(m.no) FROM perdure_jobs AS m WHERE m.no > j.no)
WHERE n.no <> j.no + 1 AND NOT EXISTS (SELECT 1 FROM perdure_flows WHERE minute < 0)
UNION ALL
SELECT 'job number 1 to ' || (min(no) - 1), 'is missing before ' || id
FROM perdure_jobs HAVING min(no) > 1 AND NOT EXISTS (SELECT 1 FROM perdure_flows WHERE minute < 0)
UNION ALL
SELECT 'job number ' || s.seq, 'is missing at the end'
FROM sqlite_sequence AS s
WHERE s.name = 'perdure_jobs' AND s.seq > coalesce((SELECT max(no) FROM perdure_jobs), 0)
AND NOT EXISTS (SELECT 1 FROM perdure_flows WHERE minute < 0)
