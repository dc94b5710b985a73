"""The audit: statements over whole tables that ought to find nothing, the same on every store.

Most stand in ``stores/audit`` and are written so that both dialects read them alike. A store may
add its own: SQLite numbers jobs without gaps, so that there a missing number is a missing job; PostgreSQL's
numbers have gaps by nature.
"""

from collections.abc import Callable, Iterable, Mapping

from perdure.model.views import Finding
from perdure.stores.rows import Row
from perdure.stores.statements import texts

CHECKS: Mapping[str, str] = texts("perdure.stores", "audit")


def findings(checks: Mapping[str, str], rows: Callable[[str], Iterable[Row]]) -> list[Finding]:
    """All that the checks find, in their order; nothing is said twice."""
    return [
        Finding(check, subject, text)
        for check, sql in sorted(checks.items())
        for subject, text in sorted({(str(subject), str(text)) for subject, text in rows(sql)})
    ]
