"""Who judges what is heard of the change feed: what a feed may get wrong is named."""

from datetime import UTC, datetime

import pytest

from perdure.model.changes import Change, ChangeKind, ChangePage
from perdure.model.jobs import Enqueued, NewJob
from perdure.model.nouns import replace
from tests.sim.invariants import Violation
from tests.sim.scenes import Scene

HEARD = Change(
    kind=ChangeKind.JOB_ACCEPTED,
    changed_at=datetime(2026, 1, 1, tzinfo=UTC),
    no=1,
    id="a",
    owner="ann",
    pipeline="p",
    stage="one",
    state="queued",
    status=None,
    token=0,
    run=None,
)


@pytest.fixture
def scene() -> Scene:
    """Ann's job has come in, and nothing is heard of it yet."""
    scene = Scene()
    job = NewJob("a", "p", 1, "one", "{}", owner="ann")
    scene.show("enqueue", [Enqueued("a", 1, True)], [job])
    return scene


def test_what_was_committed_may_be_heard_once(scene):
    scene.checker.feed.heard(ChangePage((HEARD,), "c", False))
    with pytest.raises(Violation, match="next is"):
        scene.checker.feed.heard(ChangePage((HEARD,), "c", False))


@pytest.mark.parametrize("owner", ["", "bob"])
def test_an_entry_of_another_owner_is_named(scene, owner):
    with pytest.raises(Violation, match=f"heard of owner '{owner}', it is 'ann'") as found:
        scene.checker.feed.heard(ChangePage((replace(HEARD, owner=owner),), "c", False))
    assert found.value.invariant == "E17"
