SELECT no FROM perdure_workers WHERE boot = :boot
