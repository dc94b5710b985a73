-- A statement of its own after `bulk_add.sql`, to see the row of whoever was quicker.
SELECT
    no, id::text, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at,
    settings, run, phase, why
FROM perdure_bulks WHERE id = %(id)s
