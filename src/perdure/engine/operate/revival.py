"""Where a failed job goes on: at which stage, in which lane, with whose result, and what is forgotten."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from perdure.engine.enqueue import admit_item
from perdure.engine.stages import Catalogue, LaidPipeline
from perdure.model.errors import CallerError, NotRetriable, UnknownName
from perdure.model.jobs import Lane
from perdure.model.nouns import replace
from perdure.model.operations import Revival
from perdure.model.states import AttemptStatus, State
from perdure.model.views import JobView
from perdure.ports import Reader


class Restart(Struct, frozen=True):
    """From where a new life begins: the failed stage, a named one, or the first."""

    stage: str | None = None
    from_start: bool = False

    def __post_init__(self) -> None:
        if self.stage is not None and self.from_start:
            raise CallerError("say either a stage to go on from, or from the start; not both")


FAILED_STAGE = Restart()
FROM_START = Restart(from_start=True)


class ChildRun(Struct, frozen=True):
    """A run that drives dead letters of one pipeline again, and its lanes by stage."""

    no: int
    pipeline: str
    lane_nos: Mapping[str, int]


def admit_correction(catalogue: Catalogue, pipeline: str, item: Any) -> str:
    """An item that takes the place of a job's own, as JSON; checked as a new one is."""
    laid = catalogue.pipeline(pipeline)
    if laid is None:
        raise _unknown(pipeline)
    return admit_item(item, laid.stages[0])


def _unknown(pipeline: str) -> UnknownName:
    return UnknownName(
        f"pipeline {pipeline!r} is not in this app, so a corrected payload cannot be checked; retry "
        "with the app that has it"
    )


def enqueue_anew(job: JobView) -> str:
    """What to do about a job that has ended well or was cancelled, so that its item is worked on again."""
    return "enqueue its item again" + ("" if job.key is None else ", under another key")


def _instead_of_retry(job: JobView) -> str:
    if job.state in (State.SUCCEEDED, State.CANCELLED):
        return f"; to have it done once more, {enqueue_anew(job)}"
    return "" if job.ready or job.state is State.PROCESSING else "; to let it be due, run it now"


@dataclass(slots=True)
class Revivals:
    """New lives for failed jobs of the pipelines that this process knows."""

    reader: Reader
    catalogue: Catalogue
    restart: Restart = FAILED_STAGE
    child: ChildRun | None = None
    lanes_later: bool = False  # for a look ahead: the lanes of a child are made when there is one
    _lanes: dict[Lane, int] = field(default_factory=dict)

    def of(self, job: JobView, payload_json: str | None = None) -> Revival:
        """The new life of a job, perhaps with another payload; says why there can be none."""
        if job.state is not State.FAILED:
            raise NotRetriable(
                f"job {job.id} is {job.state.value}; only a failed job can be retried{_instead_of_retry(job)}"
            )
        laid = self.catalogue.pipeline(job.pipeline)
        if payload_json is None:
            stage, input_from, forgotten = self._place(job, laid)
        else:
            stage, input_from, forgotten = self._first_stage(job, laid)
        return Revival(
            no=job.no,
            id=job.id,
            token=job.token,
            stage=stage,
            lane=self._lane(job, laid, stage),
            input_from=input_from,
            forgotten=forgotten,
            redrive_run=None if self.child is None else self.child.no,
            deadline_s=job.policies_s if laid is None else laid.deadline_s,
            request_id=job.request_id,
            owner=job.owner,
            payload_json=payload_json,
        )

    def _first_stage(
        self, job: JobView, laid: LaidPipeline | None
    ) -> tuple[str, None, tuple[str, ...]]:
        """The first stage; whatever the job's stages have made of the old payload is dropped."""
        if laid is None:
            raise _unknown(job.pipeline)
        if self.restart.stage not in (None, laid.stages[0].name):
            raise CallerError(
                f"a corrected payload begins at the first stage, {laid.stages[0].name!r}, and not at "
                f"{self.restart.stage!r}; leave the stage out"
            )
        names = [stage.name for stage in laid.stages]
        passed = [one.stage for one in self.reader.attempts(job.no)]  # perhaps of an older pipeline
        return names[0], None, tuple(dict.fromkeys([*names, *passed]))

    def _place(
        self, job: JobView, laid: LaidPipeline | None
    ) -> tuple[str, str | None, tuple[str, ...]]:
        """The stage, the stage whose result it takes, and those whose results are dropped.

        Whatever will be run again is dropped: a stage's result is kept once.
        """
        if laid is None:
            if self.restart != FAILED_STAGE:
                raise UnknownName(
                    f"pipeline {job.pipeline!r} of job {job.id} is not in this app, so its stages "
                    "are not known; retry it at its failed stage, or from the app that has it"
                )
            return job.stage, job.input_from, ()
        names = [stage.name for stage in laid.stages]
        stage = names[0] if self.restart.from_start else self.restart.stage or job.stage
        if stage not in names:
            raise UnknownName(
                f"pipeline {laid.name!r} has no stage {stage!r}; it has: {', '.join(names)}"
            )
        place = names.index(stage)
        if stage == job.stage:
            again = tuple(name for name in names[place:] if name != job.input_from)
            return stage, job.input_from, again
        before = names[place - 1] if place else None
        self._check_passed(job, names, stage, before)
        return stage, before, tuple(names[place:])

    def _check_passed(self, job: JobView, names: list[str], stage: str, before: str | None) -> None:
        """Refuse to begin where the job has not been, or on a result that is not there."""
        if job.stage in names and names.index(stage) > names.index(job.stage):
            raise NotRetriable(
                f"job {job.id} failed at stage {job.stage!r} and has not reached {stage!r}; retry it "
                f"from one of: {', '.join(names[: names.index(job.stage) + 1])}"
            )
        passed = {
            one.stage for one in self.reader.attempts(job.no) if one.status is AttemptStatus.SUCCESS
        }
        if before is not None and before not in passed:
            raise NotRetriable(
                f"job {job.id} has no result of stage {before!r}, which stage {stage!r} begins with; "
                "retry it from the start"
            )

    def _lane(self, job: JobView, laid: LaidPipeline | None, stage: str) -> int:
        if self.lanes_later:
            return 0
        if self.child is not None:
            return self._lane_of_child(job, self.child, stage)
        in_run = job.run is not None or job.redrive_run is not None
        if laid is not None and not in_run:
            return laid.lane_nos[stage]
        return job.lane if stage == job.stage else self._lane_beside(job, stage)

    def _lane_of_child(self, job: JobView, child: ChildRun, stage: str) -> int:
        if child.pipeline != job.pipeline or stage not in child.lane_nos:
            raise NotRetriable(
                f"job {job.id} of pipeline {job.pipeline!r} cannot go on at stage {stage!r} in run "
                f"{child.no}, which is of pipeline {child.pipeline!r}"
            )
        return child.lane_nos[stage]

    def _lane_beside(self, job: JobView, stage: str) -> int:
        """The lane of another stage of the run in whose lane the job stands."""
        if not self._lanes:
            self._lanes = {replace(one.lane, upstream=None): one.no for one in self.reader.lanes()}
        own = next((lane for lane, no in self._lanes.items() if no == job.lane), None)
        found = None if own is None else self._lanes.get(replace(own, stage=stage))
        if found is None:
            raise NotRetriable(
                f"job {job.id} stands in lane {job.lane} of a run that has no lane for stage "
                f"{stage!r}; retry it at its failed stage"
            )
        return found
