SELECT {bulk_columns} FROM perdure_bulks WHERE no = ?
