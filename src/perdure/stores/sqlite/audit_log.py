"""Lines of the audit log: who did what to whom, and why."""

import sqlite3
from collections.abc import Sequence

from perdure.model.operations import Deed
from perdure.stores.sqlite.statements import SQL


def note(cx: sqlite3.Connection, verb: str, subjects: Sequence[str], deed: Deed, now: int) -> None:
    """One line for each subject, in the transaction of the deed."""
    where = {"now": now, "by_whom": deed.by_whom, "verb": verb, "reason": deed.reason}
    cx.executemany(SQL.deeds_add, [{**where, "subject": one} for one in subjects])
