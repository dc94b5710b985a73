-- The length of a content is known without reading it.
SELECT {capture_columns} FROM perdure_artifacts WHERE job = :job ORDER BY no
