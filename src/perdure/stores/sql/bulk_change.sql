-- Compare and set.
UPDATE perdure_bulks SET status = :status, why = :why, changed_at = :now
WHERE no = :no AND status = :seen
RETURNING {bulk_columns}
