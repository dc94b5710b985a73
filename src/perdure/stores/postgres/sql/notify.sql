SELECT pg_notify('perdure', '')
