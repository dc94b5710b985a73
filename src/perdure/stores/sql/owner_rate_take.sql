-- An owner's bucket is one moment, at which it is full again; a request makes that later by what it costs, and an empty
-- bucket lets nobody in. A moment that no bucket of this size can have (the clock was set back, the limit was
-- another one) is that of a full one; but for ten seconds: who waited for the row has an older `now` than who had it.
INSERT INTO perdure_owner_rates AS r (owner, full_at) VALUES (:owner, :now + :every)
ON CONFLICT (owner) DO UPDATE SET
    full_at = CASE WHEN r.full_at BETWEEN :now AND :empty + 10000000 THEN r.full_at ELSE :now END + :every
WHERE r.full_at <= :empty - :every OR r.full_at > :empty + 10000000
