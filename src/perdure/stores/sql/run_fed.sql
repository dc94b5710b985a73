-- Several may feed one run: it is fed since the first of them began, as long as the signs do not end.
-- A sealed one is fed by nobody.
UPDATE perdure_runs SET
    fed_by = :by, fed_at = :now,
    feeding_at = CASE WHEN sealed_at IS NOT NULL THEN NULL WHEN fed_at > :silent_at THEN coalesce(feeding_at, :now) ELSE :now END
WHERE no = :no
