"""The keeper, step by step: it beats while its host runs, says at once that it has ended, and never touches it."""

import msgspec
import pytest

from perdure.engine.observe import Observers
from perdure.engine.supervise.keeper import Keeper
from perdure.engine.supervise.oom import OomCounter
from perdure.engine.supervise.proc import Gone, Running, Stopped
from perdure.model.events import EventName
from perdure.model.outcomes import OUT_OF_MEMORY, Death
from tests.engine.kit import Notes, Unreliable
from tests.stores.kit import TTL_S


class Post:
    """A keeper on a pushed clock, whose host does what the test says."""

    def __init__(self, place, oom=None) -> None:
        self.place = place
        self.clock = place.clock
        self.seen = Running()
        self.notes = Notes()
        self.store = Unreliable(place.store)
        self.judge = place.hire()
        self.worker = place.hire()
        self.keeper = Keeper(
            self.store,
            self.worker,
            lambda: self.seen,
            self.clock,
            Observers([self.notes]),
            TTL_S,
            oom,
        )

    def row(self):
        (seen,) = [one for one in self.place.reader.workers() if one.no == self.worker]
        return seen

    @property
    def death(self) -> Death | None:
        text = self.row().death_json
        return None if text is None else msgspec.json.decode(text, type=Death)

    def pass_time(self, seconds: float, *, step: float = 0.5) -> tuple[int, ...]:
        """Rounds in which the judge looks for the silent; those that it has declared dead."""
        dead: tuple[int, ...] = ()
        for _ in range(round(seconds / step)):
            self.clock.push(step)
            self.keeper.once()
            self.place.store.beat([self.judge])
            dead += self.place.store.mark_dead(by=self.judge)
        return dead


@pytest.fixture
def post(place):
    return Post(place)


def test_it_beats_while_its_host_runs(post):
    assert post.pass_time(5 * TTL_S) == ()
    assert not post.keeper.done
    assert post.row().steady_at == post.row().started_at


def test_a_stopped_host_is_beaten_for_once_more_and_then_no_longer(post):
    post.pass_time(TTL_S)
    post.seen = Stopped()
    post.pass_time(0.5)
    last = post.row().beat_at
    assert last == post.clock.now()
    assert post.pass_time(2 * TTL_S) == (post.worker,)
    assert post.row().beat_at == last


def test_a_host_that_goes_on_within_its_lease_is_beaten_for_at_once(post):
    post.pass_time(TTL_S)
    post.seen = Stopped()
    assert post.pass_time(TTL_S - 1) == ()
    post.seen = Running()
    post.pass_time(0.5)
    assert post.row().beat_at == post.clock.now()
    assert post.pass_time(3 * TTL_S) == ()


def test_when_the_beat_is_refused_there_is_nothing_left_to_keep(post):
    post.seen = Stopped()
    assert post.pass_time(3 * TTL_S) == (post.worker,)
    assert not post.keeper.done
    post.seen = Running()
    post.pass_time(0.5)
    assert post.keeper.done
    assert post.notes.names() == []


@pytest.mark.parametrize(
    ("status", "death"),
    [
        (0, Death("exited", exit_status=0)), (3, Death("exited", exit_status=3)),
        (-9, Death("exited", signal="SIGKILL")), (-40, Death("exited", signal="signal 40")),
        (None, Death("gone")),
    ],
)  # fmt: skip
def test_the_end_of_its_host_is_reported_in_the_same_round(post, status, death):
    post.seen = Gone(status)
    post.keeper.once()
    assert post.death == death
    assert post.keeper.done
    assert post.notes.names() == [EventName.WORKER_LOST]


def test_a_host_that_the_kernel_killed_for_its_size_is_reported_so(place, tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    events = tmp_path / "sys/fs/cgroup/memory.events"
    events.parent.mkdir(parents=True)
    events.write_text("oom_kill 0\n")
    post = Post(place, OomCounter(tmp_path))
    post.keeper.once()
    events.write_text("oom_kill 1\n")
    post.seen = Gone(-9)
    post.keeper.once()
    assert post.death == Death(OUT_OF_MEMORY, signal="SIGKILL")


def test_a_host_that_has_closed_its_worker_has_stopped_it(post):
    post.keeper.note_closed()
    post.keeper.once()
    assert (post.death, post.keeper.done) == (Death("stopped"), True)
    assert post.notes.names() == []


def test_a_line_that_closes_a_moment_before_the_end_does_not_hide_how_it_ended(post):
    post.keeper.note_left()
    post.keeper.once()
    assert post.death is None
    post.clock.push(0.1)
    post.seen = Gone(-11)
    post.keeper.once()
    assert post.death == Death("exited", signal="SIGSEGV")


def test_a_host_that_lets_go_and_lives_on_has_no_worker_any_more(post):
    """It has become another program, by exec."""
    post.keeper.note_left()
    post.pass_time(0.5)
    assert (post.death, post.keeper.done) == (Death("gone"), True)


def test_a_death_that_cannot_be_told_is_told_when_the_store_is_back(post):
    post.pass_time(1)
    post.store.away = True
    post.seen = Gone(1)
    post.keeper.once()
    post.clock.push(TTL_S - 1)
    post.keeper.once()
    assert not post.keeper.done
    post.store.away = False
    post.keeper.once()
    assert (post.death, post.keeper.done) == (Death("exited", exit_status=1), True)


def test_it_does_not_try_for_ever_since_the_lease_runs_out_as_well(post):
    post.pass_time(1)
    post.store.away = True
    post.seen = Gone(1)
    post.keeper.once()
    post.clock.push(10 * TTL_S)
    post.keeper.once()
    assert post.keeper.done
    assert post.death is None


def test_a_store_that_is_away_while_the_host_runs_ends_nothing(post):
    post.pass_time(1)
    post.store.away = True
    for _ in range(50):
        post.clock.push(TTL_S / 10)
        post.keeper.once()
    assert not post.keeper.done
    post.store.away = False
    post.clock.push(1)
    post.keeper.once()
    assert post.row().beat_at == post.clock.now()
