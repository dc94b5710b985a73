SELECT coalesce(sum(accepted), 0), coalesce(sum(pruned), 0) FROM perdure_books
WHERE :pipeline IS NULL OR pipeline = :pipeline
