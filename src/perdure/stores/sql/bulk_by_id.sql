-- A statement of its own after `bulk_add.sql`, to see the row of whoever was quicker.
SELECT {bulk_columns} FROM perdure_bulks WHERE id = :id AND owner = coalesce(:owner, owner)
