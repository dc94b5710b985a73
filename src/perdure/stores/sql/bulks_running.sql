SELECT {bulk_columns} FROM perdure_bulks
WHERE status = 'running' AND owner = coalesce(:owner, owner)
ORDER BY no DESC LIMIT :limit
