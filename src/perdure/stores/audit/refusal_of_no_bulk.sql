SELECT 'bulk number ' || f.bulk, 'has refused ' || count(*) || ' jobs and does not exist'
FROM perdure_bulk_refusals AS f LEFT JOIN perdure_bulks AS b ON b.no = f.bulk
WHERE b.no IS NULL GROUP BY f.bulk
UNION ALL
SELECT CAST(b.id AS text), 'counts ' || b.refused || ' refused, ' || count(f.job) || ' are written down'
FROM perdure_bulks AS b LEFT JOIN perdure_bulk_refusals AS f ON f.bulk = b.no
GROUP BY b.no, b.id, b.refused HAVING b.refused < count(f.job)
