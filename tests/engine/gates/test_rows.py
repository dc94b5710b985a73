"""The gates' rows: one write wins, no event is lost, and a store that is away costs nothing but time."""

import threading

import pytest

from perdure.engine.gates.changes import apply_event, gate_of, hold_by_person
from perdure.engine.gates.rows import GateRows
from perdure.engine.observe import Observers
from perdure.model.errors import StoreBusy, StoreUnavailable
from perdure.model.events import EventName
from perdure.model.gates import GateChange, GateState
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.rules.gate.gate import Gate, GateMove, GateSettings, Step, after
from perdure.rules.gate.hold import hint
from tests.engine.gating import DOWN, STANDARD, Post, failed, gate, put, stage, upstream
from tests.engine.kit import Notes, Unreliable

HELD, FLOWING, PROBING = GateState.HELD, GateState.FLOWING, GateState.PROBING


def rows_of(place, notes=None, **upstreams) -> GateRows:
    """The rows alone, without calls."""
    rows = GateRows(
        Unreliable(place.store),
        Unreliable(place.control),
        upstreams or {"vendor": upstream()},
        place.hire(),
        clock=place.clock,
        observers=Observers([notes] if notes else []),
        on_look=lambda _: None,
        on_change=lambda _: None,
        samples=dict,
    )
    rows.look()
    return rows


def pause(place, for_s: float):
    """An event: somebody was asked to wait."""
    until = after(place.clock.now(), for_s)

    def event(gate: Gate) -> Step:
        return hint(
            gate,
            GateSettings(),
            kind=Kind.RATE_LIMITED,
            generation=gate.generation,
            until=until,
            now=place.clock.now(),
        )

    return event


def left_s(place) -> float:
    return (gate(place).held_until - place.clock.now()).total_seconds()


def test_of_two_writers_that_saw_the_same_row_one_wins_and_the_other_reads_again(either):
    first, second = rows_of(either), rows_of(either)
    first.happen("vendor", pause(either, 10.0))
    second.happen("vendor", pause(either, 40.0))
    first.write()
    second.write()
    assert (left_s(either), gate(either).generation) == (40.0, 2)


def test_a_hint_that_is_shorter_than_what_stands_is_no_change_at_all(either):
    notes = Notes()
    first, second = rows_of(either), rows_of(either, notes)
    first.happen("vendor", pause(either, 40.0))
    second.happen("vendor", pause(either, 10.0))
    first.write()
    second.write()
    assert (left_s(either), gate(either).generation, notes.events) == (40.0, 1, [])


def test_what_happened_waits_in_the_line_while_the_store_is_away(either):
    rows = rows_of(either)
    rows.happen("vendor", pause(either, 40.0))
    rows._control.away = True
    with pytest.raises(StoreUnavailable):
        rows.write()
    assert gate(either).state is FLOWING
    rows._control.away = False
    rows.write()
    assert left_s(either) == 40.0


def test_a_change_whose_answer_was_lost_is_not_made_twice(either):
    """The store wrote it, and the line broke on the way back."""
    notes = Notes()
    rows = rows_of(either, notes)
    real = rows._control.change_gate

    def breaking(change: GateChange, deed: Deed):
        real(change, deed)
        raise StoreUnavailable("the line broke on the way back")

    rows.happen("vendor", pause(either, 40.0))
    rows._control.change_gate = breaking
    with pytest.raises(StoreUnavailable):
        rows.write()
    rows._control.change_gate = real
    rows.write()
    assert (left_s(either), gate(either).generation) == (40.0, 1)
    assert len(either.reader.deeds()) == 1


def test_an_event_that_always_comes_second_stays_in_the_line(either):
    """Somebody else writes between each of our looks and writes; ours is not forgotten for that."""
    rows = rows_of(either)
    real = rows._control.change_gate
    busy = [True]

    def beaten(change: GateChange, deed: Deed):
        if busy[0]:
            apply_event(either.reader, either.control, "vendor", _touch, Deed("somebody"))
        return real(change, deed)

    rows._control.change_gate = beaten
    rows.happen("vendor", pause(either, 40.0))
    rows.write()
    assert gate(either).held_until is None
    busy[0] = False
    rows.write()
    assert left_s(either) == 40.0


def _touch(gate: Gate) -> Step:
    return Step(replace(gate, generation=gate.generation + 1), GateMove.LEASE, "touched")


def test_a_row_that_never_stands_still_is_said_to_be_busy(either):
    class Losing:
        def change_gate(self, change: GateChange, deed: Deed):
            return None

    with pytest.raises(StoreBusy, match="was changed by others 100 times"):
        hold_by_person(either.reader, Losing(), "vendor", Deed("ann"))


def test_many_hints_at_once_leave_the_latest_and_one_row_for_each_change(anywhere):
    places = [anywhere() for _ in range(3)]
    all_rows = [rows_of(place) for place in places]
    start = threading.Barrier(3)
    waits_s = [[10.0 + 3 * n + who for n in range(20)] for who in range(3)]

    def write(who: int) -> None:
        start.wait(20)
        for for_s in waits_s[who]:
            all_rows[who].happen("vendor", pause(places[who], for_s))
            while all_rows[who]._unwritten:
                all_rows[who].write()

    threads = [threading.Thread(target=write, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert left_s(places[0]) == max(max(one) for one in waits_s)
    assert gate(places[0]).generation == len(places[0].reader.deeds())


def test_a_row_names_its_credential_once_it_is_known(either):
    rows = rows_of(either, vendor=upstream(credential="key-1"))
    rows.write()
    row = either.reader.gate("vendor")
    assert (row.parent, row.state, row.generation) == ("key-1", FLOWING, 1)
    rows.look()
    rows.write()
    assert either.reader.gate("vendor").generation == 1


def test_a_credential_is_not_written_over_a_probe_that_is_out(either):
    """It would make the probe's answer old news, and the gate wait for the end of the lease."""
    lone = Post(either)
    put(either, 12)
    lone.trip()
    lone.running.clear()
    while gate(either).state is not PROBING:
        lone.turn(passing_s=0.2)
    (probe,) = lone.running.values()
    knowing = rows_of(either, vendor=upstream(credential="key-1"))
    knowing.write()
    lone.end(probe)
    lone.turn()
    assert gate(either).state is FLOWING
    knowing.look()
    knowing.write()
    assert either.reader.gate("vendor").parent == "key-1"


def test_a_row_that_cannot_be_read_is_what_its_columns_say(either):
    change = GateChange("vendor", 0, HELD, held_for_s=20.0, reason="by hand", control_json="[1]")
    row = either.control.change_gate(change, Deed("ann"))
    read = gate_of(row)
    assert (read.state, read.generation, read.reason) == (HELD, 1, "by hand")
    assert read.held_until == row.held_until


def test_every_change_is_told_once_with_its_reason(either):
    post = Post(either, stage(policy=STANDARD))
    put(either, 8)
    claim = post.turn()[0]
    post.end(claim, failed(Kind.RATE_LIMITED, wait_s=5.0))
    post.turn()
    (told,) = post.notes.of(EventName.GATE_CHANGED)
    assert told == {
        "gate": "vendor",
        "gate_state": "held",
        "move": "hint",
        "generation": 1,
        "reason": "held for 5 s: rate_limited",
    }
    assert post.notes.of(EventName.GATE_ALERT) == []


def test_while_the_store_is_away_the_worker_knows_what_has_happened(either):
    """The trip is in our copy at once: what settles next is a wait, though nothing is written yet."""
    post = Post(either)
    put(either, 8)
    running = post.turn()
    post.control.away = True
    for claim in running:
        post.end(claim, DOWN)
    with pytest.raises(StoreUnavailable):
        post.turn(passing_s=0.1)
    assert gate(either).state is FLOWING
    post.control.away = False
    post.turn()
    assert gate(either).state is HELD
    waits = sorted(either.see(claim.id).counters.waits for claim in running)
    assert waits == [0] * 3 + [1] * 5
