"""The audit: statements over whole tables that ought to find nothing, the same on every store.

Most stand in ``stores/audit`` and are written so that both dialects read them alike. A store may
add its own: SQLite numbers jobs without gaps, so that there a missing number is a missing job; PostgreSQL's
numbers have gaps by nature.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from perdure.model.views import Finding
from perdure.stores.rows import Row
from perdure.stores.statements import texts

Fetch = Callable[[Sequence[str]], Iterable[str]]

CHECKS: Mapping[str, str] = texts("perdure.stores", "audit")


def of_run(found: Sequence[Finding], run: int, fetch: Fetch) -> list[Finding]:
    """The findings about a run, about its jobs, and about jobs that are driven again in it.

    ``fetch`` says which of some ids are the run's own or those of its jobs.
    """
    own = {f"run number {run}", *fetch([one.subject for one in found])} if found else set()
    return [one for one in found if one.subject in own]


def findings(checks: Mapping[str, str], rows: Callable[[str], Iterable[Row]]) -> list[Finding]:
    """All that the checks find, in their order; nothing is said twice."""
    return [
        Finding(check, subject, text)
        for check, sql in sorted(checks.items())
        for subject, text in sorted({(str(subject), str(text)) for subject, text in rows(sql)})
    ]
