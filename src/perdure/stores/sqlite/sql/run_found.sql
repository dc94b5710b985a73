SELECT id FROM perdure_runs WHERE owner = :owner AND pipeline = :pipeline AND name = :name
