"""The transition table: complete, closed, and the same as what the schema allows."""

import re
from importlib.resources import files

import pytest

from perdure.model.gates import GateState
from perdure.model.operations import BulkStatus, BulkVerb, LaneScope
from perdure.model.runs import RunStatus
from perdure.model.states import (
    TERMINAL,
    TRANSITIONS,
    AttemptStatus,
    FailedReason,
    Move,
    State,
    target,
)
from perdure.model.workers import Role


def tables(store: str) -> dict[str, str]:
    """The statement that makes each table of a store, after all its migrations."""
    made: dict[str, str] = {}
    folder = files(f"perdure.stores.{store}") / "migrations"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            text = entry.read_text(encoding="utf-8")
            made |= re.findall(
                r"^CREATE TABLE perdure_(\w+) \((.*?)\n\)", text, re.MULTILINE | re.DOTALL
            )
            for table, column, check in re.findall(
                r"^ALTER TABLE perdure_(\w+) ADD CONSTRAINT perdure_\1_(\w+)_check\s+(.*);$",
                text,
                re.MULTILINE,
            ):
                before = rf"CHECK \({column} IN\s*\([^)]*\)\)"
                made[table] = re.sub(before, check, made[table])
    return made


def checked(column: str, table: str) -> set[str]:
    """The values that the CHECK of a column allows, be it an IN or a chain of OR."""
    listed = re.findall(rf"CHECK \({column} IN\s*\(([^)]*)\)\)", table)
    chained = re.findall(rf"CHECK \(({column} = '\w+'(?:\s+OR {column} = '\w+')*)\)", table)
    return {value for one in (*listed, *chained) for value in re.findall(r"'([^']*)'", one)}


def reachable(arrows: tuple[tuple[State | None, Move, State], ...]) -> set[State | None]:
    found: set[State | None] = {None}
    while more := {to for source, _, to in arrows if source in found} - found:
        found |= more
    return found


def leaving_terminal(arrows: tuple[tuple[State | None, Move, State], ...]) -> set[Move]:
    return {move for source, move, _ in arrows if source in TERMINAL}


def test_every_state_can_be_reached():
    assert reachable(TRANSITIONS) - {None} == set(State)


def test_a_table_without_the_claim_would_be_caught():
    broken = tuple(arrow for arrow in TRANSITIONS if arrow[1] is not Move.CLAIM)
    assert State.SUCCEEDED not in reachable(broken)


def test_every_move_is_used():
    assert {move for _, move, _ in TRANSITIONS} == set(Move)


def test_a_move_from_a_state_leads_to_one_place():
    pairs = [(source, move) for source, move, _ in TRANSITIONS]
    assert len(pairs) == len(set(pairs))


def test_terminal_states_are_left_only_by_a_redrive():
    assert leaving_terminal(TRANSITIONS) == {Move.REDRIVE}
    assert {source for source, move, _ in TRANSITIONS if move is Move.REDRIVE} == {State.FAILED}


def test_a_way_back_from_success_would_be_caught():
    assert leaving_terminal((*TRANSITIONS, (State.SUCCEEDED, Move.RETRY, State.QUEUED))) != {
        Move.REDRIVE
    }


def test_every_live_state_can_still_end():
    for state in set(State) - TERMINAL:
        assert target(state, Move.CANCEL) is State.CANCELLED
        assert target(state, Move.FAIL) is State.FAILED


def test_processing_is_entered_only_by_a_claim():
    assert {
        move
        for source, move, to in TRANSITIONS
        if to is State.PROCESSING and source is not State.PROCESSING
    } == {Move.CLAIM}


@pytest.mark.parametrize(("source", "move", "to"), TRANSITIONS)
def test_target_reads_the_table(source, move, to):
    assert target(source, move) is to


@pytest.mark.parametrize("state", [None, *State])
def test_target_knows_no_arrow_that_is_not_in_the_table(state):
    known = {move for source, move, _ in TRANSITIONS if source is state}
    assert {move for move in Move if target(state, move) is not None} == known


CHECKED = [
    ("jobs", "state", State),
    ("jobs", "failed_reason", FailedReason),
    ("attempts", "status", AttemptStatus),
    ("attempts", "state", State),
    ("workers", "role", Role),
    ("gates", "state", GateState),
    ("runs", "status", RunStatus),
    ("pauses", "scope", LaneScope),
    ("bulks", "verb", BulkVerb),
    ("bulks", "status", BulkStatus),
]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize(("table", "column", "members"), CHECKED)
def test_the_schema_allows_exactly_the_members(store, table, column, members):
    assert checked(column, tables(store)[table]) == {member.value for member in members}


@pytest.mark.parametrize(
    "table",
    [
        "    state TEXT NOT NULL\n        CHECK (state IN ('queued', 'failed')),",
        "    state TEXT NOT NULL CHECK (state = 'queued'\n        OR state = 'failed'),",
    ],
)
def test_a_schema_that_forgets_a_state_would_be_caught(table):
    assert checked("state", table) == {"queued", "failed"}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_schema_calls_the_same_states_finished_as_the_table(store):
    found = re.search(
        r"CHECK \(\(finished_at IS NOT NULL\) = \((state (?:IN|=).*)\)\),", tables(store)["jobs"]
    )
    assert found is not None
    assert set(re.findall(r"'([^']*)'", found[1])) == {state.value for state in TERMINAL}
