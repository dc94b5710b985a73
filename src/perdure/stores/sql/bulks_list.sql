SELECT {bulk_columns} FROM perdure_bulks ORDER BY no DESC LIMIT :limit
