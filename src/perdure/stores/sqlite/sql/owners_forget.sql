DELETE FROM perdure_owners WHERE open = 0
