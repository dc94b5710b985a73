"""Whose code an exception came from: the stage's own, a library's, or nobody can tell."""

import asyncio
import http.client
import importlib
import json
import socket
import sqlite3
import subprocess
import sys
from urllib.parse import urlsplit

import msgspec
import pytest

from perdure.engine.attempt.perform import raised_outcome
from perdure.engine.stages import Callee
from perdure.model.errors import AnswerError, StageError
from perdure.model.outcomes import Evidence, Origin, seen_in_words
from tests.engine import plays

VENDOR = """
import json
class VendorError(Exception): pass
def fails(): return {}["k"]
def reads(text): return json.loads(text)
def calls(function): return function()
def refuses(): raise VendorError("no")
"""


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """A library that is installed, not written here."""
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "vendor_of_tests.py").write_text(VENDOR, encoding="utf-8")
    monkeypatch.syspath_prepend(str(place))
    yield importlib.import_module("vendor_of_tests")
    del sys.modules["vendor_of_tests"]


def caught(call, *arguments) -> BaseException:
    try:
        call(*arguments)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def origin(call, *arguments, home="tests") -> Origin:
    return raised_outcome(caught(call, *arguments), home=home).evidence.origin


class OwnError(Exception):
    """An application's own."""


class AnsweredError(Exception):
    """An application's own, about an answer of a server."""

    status = 418


def throw(error, cause=None):
    raise error from cause


def while_handling(error, then):
    try:
        throw(error)
    except BaseException:
        throw(then)


def in_a_group():
    async def one():
        return int("x")

    async def all_of_them():
        async with asyncio.TaskGroup() as group:
            group.create_task(one())

    asyncio.run(all_of_them())


OWN = {
    "a key that is not there": (lambda: {}["k"],),
    "an index that is not there": (lambda: list(range(3))[3],),
    "no number": (int, "x"),
    "no JSON": (json.loads, "{"),
    "no URL": (urlsplit, "http://[x"),
    "an error of its own": (throw, OwnError("no")),
    "an error of ours": (throw, StageError("unknown", "no")),
    "one from another": (throw, OwnError("no"), caught(int, "x")),
    "one while another was dealt with": (while_handling, KeyError("a"), OwnError("no")),
    "one of a group": (in_a_group,),
}


@pytest.mark.parametrize("case", OWN.values(), ids=OWN)
def test_what_python_or_the_stage_itself_raises_is_of_its_own_code(case):
    assert origin(*case) is Origin.OWN


LIBRARY = {
    "a class of a library": lambda vendor: vendor.refuses(),
    "a class of a library, raised here": lambda vendor: throw(vendor.VendorError("no")),
    "a class made of a library's": lambda vendor: throw(type("Own", (vendor.VendorError,), {})()),
    "a plain class, raised by a library": lambda vendor: vendor.fails(),
    "a plain class, raised for a library": lambda vendor: vendor.reads("{"),
    "raised from a library's": lambda vendor: throw(OwnError(), caught(vendor.refuses)),
    "raised from what a library raised": lambda vendor: throw(OwnError(), caught(vendor.fails)),
    "raised while a library's was dealt with": lambda vendor: while_handling(
        vendor.VendorError(), KeyError("a")
    ),
    "a transport's class": lambda _: throw(http.client.BadStatusLine("x")),
    "a transport's code": lambda _: socket.create_connection(()),
    "a stream that ended": lambda _: throw(asyncio.IncompleteReadError(b"", 1)),
    "a driver's class": lambda _: sqlite3.connect(":memory:").execute("no SQL"),
    "a program's end": lambda _: subprocess.run([sys.executable, "-c", "1/0"], capture_output=True, check=True),
}  # fmt: skip


@pytest.mark.parametrize("case", LIBRARY.values(), ids=LIBRARY)
def test_what_a_library_or_a_transport_has_touched_is_of_a_library(case, vendor):
    assert origin(case, vendor) is Origin.LIBRARY


UNKNOWN = {
    "the operating system's": (open, "/no/such/file"),
    "a time that ran out": (throw, TimeoutError("its own")),
    "a connection": (throw, ConnectionResetError()),
    "a name": (socket.inet_aton, "x"),
    "from one that was never raised": (throw, OwnError(), KeyError("a")),
    "a class of no module": (throw, type("Odd", (Exception,), {"__module__": "gone"})()),
    "a class of a strange module": (throw, type("Odd", (Exception,), {"__module__": 5})()),
    "a server's answer": (throw, AnsweredError()),
    "an answer that cannot be used": (throw, AnswerError({"error": {"message": "odd"}})),
}


@pytest.mark.parametrize("case", UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_told_is_unknown(case):
    assert origin(*case) is Origin.UNKNOWN


def test_an_exception_without_a_traceback_is_of_unknown_origin():
    assert raised_outcome(KeyError("a"), home="tests").evidence.origin is Origin.UNKNOWN


def test_an_exception_that_hides_its_traceback_is_of_unknown_origin():
    class Hiding(Exception):
        @property
        def __traceback__(self):
            raise RuntimeError("not for you")

        @__traceback__.setter
        def __traceback__(self, _):
            raise RuntimeError("nor this")

    assert origin(throw, Hiding()) is Origin.UNKNOWN


def test_own_code_that_a_library_calls_is_own_code(vendor):
    assert origin(vendor.calls, lambda: {}["k"]) is Origin.OWN


def test_the_package_of_the_stage_is_own_code_even_where_it_is_installed(vendor):
    home = Callee.of(vendor.reads).home
    assert home == "vendor_of_tests"
    assert origin(vendor.fails, home=home) is Origin.OWN
    assert origin(vendor.refuses, home=home) is Origin.OWN


def test_a_recursion_without_an_end_is_own_code():
    def deeper(n):
        return deeper(n + 1)

    assert origin(deeper, 0) is Origin.OWN


def test_evidence_that_was_stored_before_origins_is_of_unknown_origin():
    old = msgspec.json.decode(b'{"names":["builtins.KeyError"]}', type=Evidence)
    assert old.origin is Origin.UNKNOWN
    kept = msgspec.json.encode(Evidence(origin=Origin.OWN))
    assert msgspec.json.decode(kept, type=Evidence).origin is Origin.OWN


def test_the_home_of_a_stage_is_where_its_function_is_defined():
    assert Callee.of(plays.echo).home == "tests"


# -- where -------------------------------------------------------------------------------


def place(call, *arguments, home="tests") -> str:
    return raised_outcome(caught(call, *arguments), home=home).evidence.where


def line_of(call, further: int = 1) -> str:
    return f"{__name__}:{call.__code__.co_firstlineno + further}"


def test_what_own_code_raises_is_placed_by_its_module_and_line():
    assert place(throw, KeyError("nope")) == line_of(throw)


def test_what_a_library_raises_is_placed_where_own_code_called_it(vendor):
    def asks():
        return vendor.refuses()

    assert place(asks) == line_of(asks)
    assert place(in_a_group).startswith(f"{__name__}:")


def test_what_has_no_frame_of_its_own_is_placed_by_what_it_was_raised_from():
    error = RuntimeError("the stage raised StopIteration")
    error.__cause__ = caught(throw, StopIteration())
    assert raised_outcome(error, home="tests").evidence.where == line_of(throw)
    assert raised_outcome(KeyError("a"), home="tests").evidence.where == ""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shop.token", "shop.token:1"),  # a word that else announces a secret
        ("__main__", "place:1"),
        ("/srv/hidden/place.py", "place:1"),
        ("<run_path>", "place:1"),
        (None, "place:1"),
    ],
)
def test_a_module_is_told_by_its_name_and_never_by_a_path_of_the_server(name, told):
    space: dict = {"__name__": name}
    exec(compile("def fails(): return {}['k']", "/srv/hidden/place.py", "exec"), space)
    assert place(space["fails"]) == told


@pytest.mark.parametrize(
    ("names", "where", "message", "words"),
    [
        (("builtins.KeyError",), "shop:4", "'nope'", "KeyError at shop:4: 'nope'"),
        (("shop.errors.Outer.Inner",), "", "no", "Inner: no"),
        (("builtins.KeyError",), "shop:4", "", "KeyError at shop:4"),
        (("perdure.Unstorable",), "", "the result is a set", "the result is a set"),
        ((), "", "no", "no"),
    ],
)
def test_what_was_seen_is_told_with_its_class_its_place_and_its_text(names, where, message, words):
    assert seen_in_words(names, where, message) == words
