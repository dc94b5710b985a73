-- Full ones say no more than none. Whoever takes from one meanwhile keeps it.
DELETE FROM perdure_owner_rates WHERE full_at <= :now
AND owner IN (SELECT owner FROM perdure_owner_rates WHERE full_at <= :now LIMIT :limit)
