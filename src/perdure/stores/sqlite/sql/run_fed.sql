-- Several may feed one run: it is fed since the first of them began, as long as the signs do not end.
UPDATE perdure_runs SET
    fed_by = :by, fed_at = :now,
    feeding_at = CASE WHEN fed_at > :silent_at THEN coalesce(feeding_at, :now) ELSE :now END
WHERE no = :no
