-- Every item that was accepted is in exactly one state, or was pruned.
SELECT b.pipeline,
    'accepted ' || b.accepted || ', found ' || count(j.no) || ' and ' || b.pruned || ' pruned'
FROM perdure_books AS b LEFT JOIN perdure_jobs AS j ON j.pipeline = b.pipeline
GROUP BY b.pipeline HAVING b.accepted <> count(j.no) + b.pruned
