SELECT {bulk_columns} FROM perdure_bulks WHERE owner = coalesce(:owner, owner)
ORDER BY no DESC LIMIT :limit
