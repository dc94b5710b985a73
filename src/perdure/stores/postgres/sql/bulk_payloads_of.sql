SELECT key, payload FROM perdure_bulk_payloads WHERE bulk = %(bulk)s AND key = ANY (%(keys)s::text[])
