"""Lines of the audit log: who did what to whom, and why."""

from collections.abc import Sequence

from perdure.model.operations import Deed
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import encode


def note(cx: Cx, verb: str, subjects: Sequence[str], deed: Deed, now: int) -> None:
    """One line for each subject, in the transaction of the deed."""
    if subjects:
        where = {
            "now": now,
            "by_whom": deed.by_whom,
            "verb": verb,
            "subjects": encode(subjects),
            "reason": deed.reason,
        }
        cx.execute(SQL.deeds_add, where)
