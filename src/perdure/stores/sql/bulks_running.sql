SELECT {bulk_columns} FROM perdure_bulks WHERE status = 'running' ORDER BY no DESC LIMIT :limit
