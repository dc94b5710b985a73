SELECT coalesce(sum(accepted), 0)::bigint, coalesce(sum(pruned), 0)::bigint FROM perdure_books
WHERE %(pipeline)s::text IS NULL OR pipeline = %(pipeline)s
