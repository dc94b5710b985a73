SELECT full_at FROM perdure_owner_rates WHERE owner = :owner
