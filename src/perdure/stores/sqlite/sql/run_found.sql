SELECT no FROM perdure_runs WHERE owner = :owner AND pipeline = :pipeline AND name = :name
