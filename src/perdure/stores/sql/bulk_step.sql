-- That it runs and is where it was seen has been looked at in the same transaction, by `bulk_lock.sql`.
UPDATE perdure_bulks SET
    cursor = :cursor, done = done + :done, refused = refused + :refused, status = :status,
    phase = :phase, why = :why, changed_at = :now
WHERE no = :no
RETURNING {bulk_columns}
