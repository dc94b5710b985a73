SELECT no FROM perdure_lanes WHERE no IN (SELECT value FROM json_each(?))
