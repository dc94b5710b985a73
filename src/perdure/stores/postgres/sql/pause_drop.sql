DELETE FROM perdure_pauses WHERE scope = %(scope)s AND name = %(name)s
