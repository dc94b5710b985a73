"""Lines of the audit log: who did what to whom, and why."""

import sqlite3

from perdure.model.operations import Deed
from perdure.stores.sqlite.statements import SQL


def note(cx: sqlite3.Connection, verb: str, subject: str, deed: Deed, now: int) -> None:
    """One line, in the transaction of the deed."""
    where = {
        "now": now, "by_whom": deed.by_whom, "verb": verb, "subject": subject,
        "reason": deed.reason,
    }  # fmt: skip
    cx.execute(SQL.deed_add, where)
