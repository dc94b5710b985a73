"""What a server says of itself, in one statement; what a plain role may not see, it counts."""

from perdure.model.diagnoses import StoreCondition
from perdure.stores.postgres.connection import SETTINGS_ASKED, PostgresConnection
from perdure.stores.postgres.statements import SQL


def condition(connection: PostgresConnection) -> StoreCondition:
    """Version, rights, settings, and what keeps dead rows."""
    asked = {"names": list(SETTINGS_ASKED), "values": list(SETTINGS_ASKED.values())}
    with connection.autocommit() as cx:
        row = cx.execute(SQL.condition, asked).fetchone()
    assert row is not None
    number, read_only, lost, missing, idle, snapshot_s, snapshot_of, slots, hidden = row
    return StoreCondition(
        "PostgreSQL",
        (number // 10_000, number % 10_000),
        read_only=read_only,
        pooled=connection.pooled,
        settings_lost=tuple(lost),
        rights_missing=tuple(missing),
        idle_vacuum=tuple(idle),
        snapshot_s=snapshot_s,
        snapshot_of=snapshot_of or "",
        slots_left=tuple(slots),
        sessions_hidden=hidden,
    )
