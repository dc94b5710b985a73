"""The report of a run: how many retries its items needed, what went wrong, where, and what that has cost."""

from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.model.runs import RunView, usd_text
from perdure.model.views import RunFigures, StageFigures
from perdure.ports import Reader


@dataclass(frozen=True, slots=True)
class Report:
    """A run and the figures of its attempts, with the shares that people ask for."""

    run: RunView
    figures: RunFigures

    @property
    def retried_share(self) -> float:
        """Of the ended items, those that needed a retry."""
        ended = sum(self.figures.retries.values())
        return _share(ended - self.figures.retries.get(0, 0), ended)

    @property
    def failed_share(self) -> float:
        """Of the processed items, those that failed for good."""
        return _share(self.run.counts.failed, self.run.counts.processed)

    @property
    def invalid_share(self) -> float:
        """Of all attempts, those whose output did not parse or did not fit its schema."""
        return _share(self.figures.invalid_outputs, self.figures.attempts)

    @property
    def captured_share(self) -> float:
        """Of all attempts, those that have put raw output aside."""
        return _share(self.figures.attempts_captured, self.figures.attempts)

    @property
    def wasted_share(self) -> float:
        """Of all attempts, those that did not succeed."""
        return _share(self.figures.wasted_attempts, self.figures.attempts)

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object; money in dollars as a decimal text, times in seconds."""
        run, figures = self.run, self.figures
        return {
            "run": {
                "id": run.id,
                "no": run.no,
                "name": run.name,
                "pipeline": run.pipeline,
                "owner": run.owner,
                "status": run.status.value,
                "why": run.why,
                "created_at": run.created_at.isoformat(),
                "ended_at": None if run.ended_at is None else run.ended_at.isoformat(),
            },
            "counts": {
                **msgspec.to_builtins(run.counts),
                "open": run.counts.open,
                "cost_usd": usd_text(run.counts.cost_nusd),
                "failed_by_kind": dict(run.kinds),
            },
            "retries": {str(count): items for count, items in sorted(figures.retries.items())},
            "waits": {"attempts": figures.waits, "waited_s": figures.waited_s},
            "errors": [msgspec.to_builtins(one) for one in figures.errors],
            "stages": [_stage(one) for one in figures.stages],
            "waste": {
                "attempts": figures.attempts,
                "wasted_attempts": figures.wasted_attempts,
                "wasted_share": self.wasted_share,
                "cost_usd": usd_text(figures.cost_nusd),
                "wasted_usd": usd_text(figures.wasted_nusd),
            },
            "shares": {
                "retried": self.retried_share,
                "failed": self.failed_share,
                "invalid_output": self.invalid_share,
                "captured": self.captured_share,
            },
            "time_to_success_s": {
                "p50": figures.success_p50_s,
                "p95": figures.success_p95_s,
                "mean": figures.success_mean_s,
            },
        }


def report_of(reader: Reader, run: RunView) -> Report:
    """The report of a run as it stands."""
    return Report(run, reader.run_figures(run.no))


def _stage(one: StageFigures) -> dict[str, Any]:
    return {
        "stage": one.stage,
        "attempts": one.attempts,
        "succeeded": one.succeeded,
        "retried": one.retried,
        "failed": one.failed,
        "retry_rate": _share(one.retried, one.attempts),
        "failure_rate": _share(one.failed, one.attempts),
        "p50_s": one.p50_s,
        "p95_s": one.p95_s,
        "tokens_in": one.tokens_in,
        "tokens_out": one.tokens_out,
        "cost_usd": usd_text(one.cost_nusd),
        "wasted_usd": usd_text(one.wasted_nusd),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
