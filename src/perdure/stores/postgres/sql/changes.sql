-- The lines that a snapshot does not show and a later one does, by number from a place on, until there are as many
-- entries as asked for and one line more. The later one is given, or the next mark, or now: marks keep the range short
-- for a reader that was long away. What the first does not show is what was open then, and what came after: two looks into
-- the index of transactions. They read the whole range, once: a page that goes on inside it reads by number, from its place
-- up to the last line of the range, and no more than it needs. `whole` is false when lines of that range may be gone.
WITH base AS MATERIALIZED (SELECT %(base)s::pg_snapshot AS place),
here AS MATERIALIZED (SELECT coalesce(%(end)s::pg_snapshot, pg_current_snapshot()) AS place),
until AS MATERIALIZED (
    SELECT coalesce(%(until)s::pg_snapshot, (
        SELECT m.place FROM perdure_change_marks AS m, base, here
        WHERE pg_snapshot_xmax(m.place) > pg_snapshot_xmax(base.place)
        AND pg_snapshot_xmax(m.place) < pg_snapshot_xmax(here.place)
        ORDER BY pg_snapshot_xmax(m.place), pg_snapshot_xmin(m.place) LIMIT 1
    ), (SELECT place FROM here)) AS place
),
unseen AS MATERIALIZED (
    SELECT no, size FROM perdure_changes
    WHERE %(last)s::bigint IS NULL AND xid = ANY (ARRAY(SELECT pg_snapshot_xip(place) FROM base))
    AND pg_visible_in_snapshot(xid, (SELECT place FROM until))
    UNION ALL
    SELECT no, size FROM perdure_changes
    WHERE %(last)s::bigint IS NULL AND xid >= (SELECT pg_snapshot_xmax(place) FROM base)
    AND xid < (SELECT pg_snapshot_xmax(place) FROM until)
    AND pg_visible_in_snapshot(xid, (SELECT place FROM until))
    UNION ALL
    (
        SELECT no, size FROM perdure_changes
        WHERE no BETWEEN %(line)s::bigint AND %(last)s::bigint
        AND NOT pg_visible_in_snapshot(xid, (SELECT place FROM base))
        AND pg_visible_in_snapshot(xid, (SELECT place FROM until))
        ORDER BY no LIMIT %(limit)s::bigint + 2
    )
),
firsts AS MATERIALIZED (
    SELECT no FROM (
        SELECT u.no, sum(u.size) OVER (ORDER BY u.no) - u.size AS before
        FROM (SELECT no, size FROM unseen ORDER BY no LIMIT %(limit)s::bigint + 2) AS u
    ) AS counted
    WHERE before <= %(limit)s::bigint + %(done)s::bigint
)
SELECT json_build_object(
    'whole', (
        SELECT pg_snapshot_xmax(place) <= pg_snapshot_xmax(pg_current_snapshot())
        AND pg_snapshot_xmin(place) >= coalesce(
            (
                SELECT min(pg_snapshot_xmin(m.place)) FROM perdure_change_marks AS m
                WHERE pg_snapshot_xmax(m.place) <= pg_snapshot_xmax(pg_current_snapshot())
            ), '0'::xid8
        ) FROM base
    ),
    'until', (SELECT place::text FROM until),
    'here', (SELECT place::text FROM here),
    'last', coalesce(%(last)s::bigint, (SELECT max(no) FROM unseen)),
    'lines', (
        SELECT json_agg(json_build_array(c.no, c.changed_at, c.what, c.entries) ORDER BY c.no)
        FROM perdure_changes AS c WHERE c.no = ANY (ARRAY(SELECT no FROM firsts))
    )
)
