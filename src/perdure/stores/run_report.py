"""What the attempts of a run say: statements that walk over its jobs, the same on every store.

They stand in ``stores/report`` and are written so that both dialects read them alike; the one parameter
is written ``:run``. A run has its own jobs, with all of their lives, and of other jobs the lives that were driven
again in it; ``d.job + 0`` keeps planners from walking over the lives of all runs in the order of their jobs.
"""

from collections.abc import Callable, Mapping, Sequence

from perdure.model.views import Errors, RunFigures, StageFigures
from perdure.stores.rows import Row
from perdure.stores.statements import texts

REPORT: Mapping[str, str] = texts("perdure.stores", "report")

Fetch = Callable[[str, Mapping[str, object]], Sequence[Row]]


def run_figures(fetch: Fetch, run: int) -> RunFigures:
    """All figures of a run; rows may hold whole numbers in whatever type a driver sums them to."""
    found = {name: fetch(sql, {"run": run}) for name, sql in REPORT.items()}
    ((attempts, wasted, cost_nusd, wasted_nusd, invalid, waits, waited_us),) = found["totals"]
    ((p50_us, p95_us, sum_us, succeeded),) = found["successes"]
    return RunFigures(
        retries={int(retries): int(jobs) for retries, jobs in found["retries"]},
        errors=_errors(found["errors"]),
        stages=_stages(found["stages"]),
        attempts=int(attempts),
        wasted_attempts=int(wasted),
        cost_nusd=int(cost_nusd),
        wasted_nusd=int(wasted_nusd),
        invalid_outputs=int(invalid),
        attempts_captured=int(found["captured"][0][0]),
        success_p50_s=_seconds(p50_us),
        success_p95_s=_seconds(p95_us),
        success_mean_s=int(sum_us) / int(succeeded) / 1_000_000 if succeeded else None,
        waits=int(waits),
        waited_s=int(waited_us) / 1_000_000,
    )


def _errors(rows: Sequence[Row]) -> tuple[Errors, ...]:
    """Most frequent first."""
    found = [Errors(kind, code, int(attempts), int(final)) for kind, code, attempts, final in rows]
    return tuple(sorted(found, key=lambda one: (-one.attempts, one.kind, one.code)))


def _stages(rows: Sequence[Row]) -> tuple[StageFigures, ...]:
    """In the order in which they were first entered."""
    found = []
    for row in sorted(rows, key=lambda row: (row[11], row[0])):
        attempts, succeeded, retried, failed = (int(one) for one in row[1:5])
        tokens_in, tokens_out, cost_nusd, wasted_nusd = (int(one) for one in row[7:11])
        found.append(
            StageFigures(
                row[0],
                attempts,
                succeeded,
                retried,
                failed,
                row[5],
                row[6],
                tokens_in,
                tokens_out,
                cost_nusd,
                wasted_nusd,
            )
        )
    return tuple(found)


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000
