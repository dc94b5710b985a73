-- What the server says of itself: one row. A transaction keeps dead rows by its snapshot or by its number; of sessions
-- that belong to other roles a plain one sees neither.
WITH ours AS (
    SELECT oid, relname, relkind, reloptions FROM pg_class
    WHERE starts_with(relname, 'perdure_') AND relkind IN ('r', 'v') AND pg_table_is_visible(oid)
), oldest AS (
    SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age_s,
        format('pid %%s, %%s, %%s', pid, coalesce(nullif(application_name, ''), 'without a name'), state) AS whose
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
        AND backend_type = 'client backend' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    UNION ALL
    SELECT extract(epoch FROM clock_timestamp() - prepared)::float8, format('prepared as %%s by %%s', gid, owner)
    FROM pg_prepared_xacts WHERE database = current_database()
    ORDER BY 1 DESC LIMIT 1
)
SELECT
    current_setting('server_version_num')::integer,
    current_setting('transaction_read_only')::boolean,
    ARRAY(
        SELECT s.name FROM pg_settings AS s
        JOIN unnest(%(names)s::text[], %(values)s::text[]) AS asked(name, setting) ON asked.name = s.name
        WHERE s.setting <> asked.setting
        UNION ALL
        SELECT 'synchronous_commit' WHERE current_setting('synchronous_commit') = 'off'
        ORDER BY 1
    ),
    ARRAY(
        SELECT format('%%s on %%s', need, relname) FROM ours
        CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS need
        WHERE (need = 'SELECT' OR (relkind = 'r' AND relname <> 'perdure_migrations'))
            AND NOT has_table_privilege(oid, need)
        ORDER BY relname, need
    ),
    ARRAY(
        SELECT format('%%s is off', name) FROM unnest(ARRAY['autovacuum', 'track_counts']) AS name
        WHERE NOT current_setting(name)::boolean
        UNION ALL
        SELECT format('%%s has autovacuum_enabled=%%s', relname, option_value)
        FROM ours CROSS JOIN LATERAL pg_options_to_table(reloptions)
        WHERE option_name = 'autovacuum_enabled' AND NOT option_value::boolean
        ORDER BY 1
    ),
    (SELECT age_s FROM oldest),
    (SELECT whose FROM oldest),
    ARRAY(SELECT slot_name::text FROM pg_replication_slots WHERE xmin IS NOT NULL AND NOT active ORDER BY 1),
    (
        SELECT count(*)::integer FROM pg_stat_activity
        WHERE datname = current_database() AND query = '<insufficient privilege>'
    )
