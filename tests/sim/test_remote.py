"""The wire: every call of the ports that the simulated parts make goes over it, writes as writes."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path

import perdure.engine
from perdure import ports
from perdure.stores.sqlite.control import SqliteControl
from perdure.stores.sqlite.store import SqliteStore
from tests.sim.remote import LEFT_OUT, READS, WRITES

SIDES = (ports.Store, ports.Control, ports.Reader)
# What takes a transaction of its own only where something is missing or due.
LOOKS_FIRST = {"lanes", "look_at_gates", "mark_dead", "take_duty"}


def methods(port: type) -> set[str]:
    return {name for name, one in vars(port).items() if inspect.isfunction(one) and name[0] != "_"}


def opened(method: Callable[..., object]) -> set[str]:
    """The kinds of transaction that a method of the real store opens."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    calls = [one.func for one in ast.walk(tree) if isinstance(one, ast.Call)]
    names = {ast.unparse(one).removeprefix("self.") for one in calls}
    writes = {"_connection.write", "_write", "_execute", "_act", "_turn", "turn"}
    reads = {"_connection.read", "_duty_seen"}
    return {kind for kind, ways in (("written", writes), ("read", reads)) if names & ways}


def test_every_method_of_the_ports_is_a_write_a_read_or_left_out_for_a_reason():
    named = [*WRITES, *READS, *LEFT_OUT]
    assert len(named) == len(set(named))
    taken = {"lanes"}  # the reader's is for screens, the store's makes what is missing
    assert set(named) - taken == {name for port in SIDES for name in methods(port)} - taken
    assert all(len(reason) > 10 or reason.startswith("as ") for reason in LEFT_OUT.values())


def test_what_is_called_a_write_writes_and_what_is_called_a_read_does_not():
    for side, port in ((SqliteStore, ports.Store), (SqliteControl, ports.Control)):
        for name in methods(port) - set(LEFT_OUT):
            how = opened(getattr(side, name))
            assert ("written" in how) == (name in WRITES), f"{name} opens {how}"
            assert ("read" in how and "written" in how) == (
                name in LOOKS_FIRST
            ) or name == "enqueue"


def test_what_is_left_out_is_called_by_no_part_that_is_simulated():
    """A part that begins to use what was left out has to be simulated with it."""
    simulated = (
        "call",
        "batch/feeding",
        "batch/runs",
        "gates/caller_gates",
        "gates/changes",
        "gates/gatekeeper",
        "gates/limit_shares",
        "gates/rows",
        "operate/bulks",
        "operate/revival",
        "operate/single_jobs",
        "supervise/lease",
        "supervise/supervisor",
        "worker/lanes",
        "worker/pump",
        "worker/shutdown",
        "worker/stage_runner",
        "worker/worker",
    )
    folder = Path(perdure.engine.__path__[0])
    files = [folder / f"{name}.py" for name in simulated] + sorted((folder / "upkeep").glob("*.py"))
    ways_of_their_own = {"has_changed", "close", "wake_fd"}
    for file in files:
        calls = [
            one.func for one in ast.walk(ast.parse(file.read_text())) if isinstance(one, ast.Call)
        ]
        on_a_side = {
            one.attr
            for one in calls
            if isinstance(one, ast.Attribute)
            and ast.unparse(one.value).rpartition(".")[2].lstrip("_")
            in ("store", "control", "reader")
        }
        assert not on_a_side & (set(LEFT_OUT) - ways_of_their_own), file.name
        assert on_a_side <= WRITES | READS | ways_of_their_own, file.name
