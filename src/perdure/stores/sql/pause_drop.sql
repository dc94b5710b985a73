DELETE FROM perdure_pauses WHERE scope = :scope AND name = :name
