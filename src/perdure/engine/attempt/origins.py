"""Whose code an exception came from, told by its classes and by the frame that raised it; and where in the application's.

*Own code* is what neither a transport nor an installed library has touched: every class in the chain is
Python's, ours or the application's, and so is the code that raised it, or that called the standard library
which did. *Library* is what one of them has touched. What cannot be told is *unknown*: there is no traceback,
the failure is the operating system's, or it carries a server's answer.

The application's code is the package in which the stage is defined, wherever it is installed, and whatever
else is in no ``site-packages``. An exception is asked where it was caught, for a traceback cannot be sent to
another process or stored.
"""

import sys
from collections import deque
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType, TracebackType

from perdure.engine.stages import package_of
from perdure.model.errors import AnswerError
from perdure.model.outcomes import Evidence, Origin
from perdure.rules.evidence import links_of, one_line
from perdure.rules.foreign_code import member_of, text_of, try_or_none

_FRAMES_MAX = 100  # the innermost ones; standard library code that calls itself deeper is nobody's
_CHARS_MAX = 4_096  # of a path
_PLACE_CHARS_MAX = 200
_INSTALLED = ("/site-packages/", "/dist-packages/")

# What of the standard library talks to others: networks, databases, programs.
_TRANSPORTS = frozenset(
    {
        "_socket",
        "_sqlite3",
        "_ssl",
        "asyncio.exceptions",
        "asyncio.proactor_events",
        "asyncio.selector_events",
        "asyncio.sslproto",
        "asyncio.streams",
        "asyncio.transports",
        "ftplib",
        "http.client",
        "imaplib",
        "multiprocessing",
        "nntplib",
        "poplib",
        "select",
        "selectors",
        "smtplib",
        "socket",
        "socketserver",
        "sqlite3",
        "ssl",
        "subprocess",
        "telnetlib",
        "urllib.error",
        "urllib.request",
        "xmlrpc",
    }
)


def origin_of(error: BaseException, evidence: Evidence, home: str = "") -> Origin:
    """Whose code raised an exception; ``home`` is the package of the stage that let it escape. Never raises."""
    found = try_or_none(_origin, error, home) or Origin.UNKNOWN
    answered = evidence.status is not None or evidence.headers or evidence.sqlstate is not None
    if found is Origin.OWN and (answered or issubclass(type(error), AnswerError)):
        return Origin.UNKNOWN
    return found


def place_of(error: BaseException, home: str = "") -> str:
    """The module and the line of the application's own code that raised, or called who did; "" if unknown. Never raises."""
    return try_or_none(_place, error, home) or ""


def _origin(error: BaseException, home: str) -> Origin:
    seen = set(_signs(error, home))
    if Origin.LIBRARY in seen:
        return Origin.LIBRARY
    return Origin.UNKNOWN if Origin.UNKNOWN in seen else Origin.OWN


def _signs(error: BaseException, home: str) -> Iterator[Origin]:
    """What each exception of the chain says; of one that was only being handled, only the class counts."""
    for link, is_stated in ((error, True), *links_of(error)):
        yield from _classes(type(link), home)
        if is_stated:
            yield _raiser(member_of(link, "__traceback__"), home)


def _classes(kind: type, home: str) -> Iterator[Origin]:
    if issubclass(kind, OSError):
        yield Origin.UNKNOWN
    for one in kind.__mro__:
        owner = _owner(one.__module__, member_of(sys.modules.get(one.__module__), "__file__"), home)
        if owner is not None:
            yield owner


def _raiser(traceback: object, home: str) -> Origin:
    """Whose code raised it; if the standard library or Perdure did, whose code called them."""
    for step in reversed(_innermost(traceback)):
        owner = _frame_owner(step.tb_frame, home)
        if owner is not None:
            return owner
    return Origin.UNKNOWN


def _place(error: BaseException, home: str) -> str:
    """Of the exception itself, and if it has no such frame, of what it was raised from."""
    stated = (link for link, is_stated in links_of(error) if is_stated)
    for link in (error, *stated):
        for step in reversed(_innermost(member_of(link, "__traceback__"))):
            if _frame_owner(step.tb_frame, home) is Origin.OWN:
                return f"{_module(step.tb_frame)}:{step.tb_lineno}"
    return ""


def _module(frame: FrameType) -> str:
    """The name of a frame's module; of a script that is run, and of what is called otherwise, only the file's."""
    name = text_of(frame.f_globals.get("__name__"), _PLACE_CHARS_MAX) or ""
    if name != "__main__" and all(part.isidentifier() for part in name.split(".")):
        return name
    return one_line(PurePath(frame.f_code.co_filename).stem, _PLACE_CHARS_MAX)


def _innermost(traceback: object) -> deque[TracebackType]:
    steps: deque[TracebackType] = deque(maxlen=_FRAMES_MAX)
    while isinstance(traceback, TracebackType):
        steps.append(traceback)
        traceback = traceback.tb_next
    return steps


def _frame_owner(frame: FrameType, home: str) -> Origin | None:
    file = frame.f_code.co_filename
    if not file.startswith("/"):  # compiled by Cython, or never in a file
        file = text_of(frame.f_globals.get("__file__"), _CHARS_MAX) or file
    return _owner(frame.f_globals.get("__name__"), file, home)


def _owner(module: object, file: object, home: str) -> Origin | None:
    """Whose a module is; None if it is of the standard library or ours, which work for whoever calls them."""
    name, package = text_of(module, _CHARS_MAX) or "", package_of(module)
    if package and package == home:
        return Origin.OWN
    if name in _TRANSPORTS or package in _TRANSPORTS:
        return Origin.LIBRARY
    if package == "perdure" or package in sys.stdlib_module_names:
        return None
    path = text_of(file, _CHARS_MAX)
    if not path:
        return Origin.OWN if package == "__main__" else Origin.UNKNOWN
    return Origin.LIBRARY if any(one in path for one in _INSTALLED) else Origin.OWN
