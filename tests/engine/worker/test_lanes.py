"""Waiting jobs of lanes that we do not know: said once a lane, and left alone."""

import pytest

from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue, LaidPipeline
from perdure.engine.worker.lanes import UnknownLanes
from perdure.model.events import EventName
from perdure.stores.opening import open_store
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import Place
from tests.engine.kit import Notes, line_on, stage


@pytest.fixture(params=["sqlite", "postgres"])
def anywhere(request, tmp_path):
    """A place on either store."""
    url = (
        request.getfixturevalue("furnished")
        if request.param == "postgres"
        else f"sqlite:///{tmp_path / 'work.db'}"
    )
    clock = VirtualClock()
    opened = open_store(url, clock, create=True, wait_s_max=5.0, injected=True)
    yield Place(opened, clock)
    opened.close()


def strangers(place, *lines: LaidPipeline) -> tuple[UnknownLanes, Notes]:
    notes = Notes()
    return UnknownLanes(place.reader, Catalogue(lines), Observers([notes])), notes


def test_a_lane_with_work_that_nobody_here_knows_is_said_once(anywhere):
    anywhere.put_many(3)
    watch, notes = strangers(anywhere)
    assert (watch.once(), watch.once()) == (1, 0)
    assert notes.of(EventName.STAGE_UNKNOWN) == [
        {"pipeline": "p", "stage": "one", "queue": "q", "category": "c"}
    ]
    assert anywhere.reader.books().queued == 3


def test_known_lanes_and_empty_lanes_are_not_worth_a_word(anywhere):
    watch, notes = strangers(anywhere)
    assert watch.once() == 0  # there are lanes, and nothing waits in them
    anywhere.put_many(3)
    watch, notes = strangers(anywhere, line_on(anywhere))
    assert watch.once() == 0
    assert notes.events == []


def test_a_stage_that_was_renamed_leaves_its_jobs_behind(anywhere):
    anywhere.put()
    watch, _ = strangers(anywhere, LaidPipeline("p", "q", "c", (stage("first"), stage("two"))))
    assert watch.once() == 1


@pytest.mark.parametrize(("queue", "category"), [("other", "c"), ("q", "other")])
def test_a_pipeline_that_has_moved_leaves_its_jobs_behind(anywhere, queue, category):
    anywhere.put()
    watch, _ = strangers(anywhere, LaidPipeline("p", queue, category, (stage("one"), stage("two"))))
    assert watch.once() == 1


def test_a_lane_that_is_known_and_not_served_is_no_stranger(anywhere):
    anywhere.put()
    notes = Notes()
    catalogue = Catalogue([line_on(anywhere)]).only(queues=["elsewhere"])
    assert UnknownLanes(anywhere.reader, catalogue, Observers([notes])).once() == 0


def test_jobs_that_are_due_later_count_as_work(anywhere):
    anywhere.put(run_at=anywhere.clock.now().replace(year=2100))
    watch, _ = strangers(anywhere)
    assert watch.once() == 1
