DELETE FROM perdure_deaths WHERE letters = 0 AND fingerprint <> '' AND last_at < :old
