"""Raw output that an attempt puts aside: cut to size where it is taken, named where the attempt is settled.

It may hold anything, a customer's words among it. So it goes into its own table and nowhere else: what
carries it does not show it when it is printed, and no message of ours quotes it.
"""

import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from random import Random

from msgspec import Struct

from perdure.engine.ids import Ids
from perdure.model.errors import CallerError, PerdureError
from perdure.model.jobs import Capture
from perdure.model.limits import CAPTURE_BYTES_MAX, CAUSES_MAX, NAME_CHARS_MAX
from perdure.model.outcomes import Interrupted, Outcome
from perdure.ports import Clock
from perdure.rules.redact import redact_line

INVALID_OUTPUT = "invalid_output"
TRACEBACK = "traceback"
_TEXT = "text/plain; charset=utf-8"
_BYTES = "application/octet-stream"
_CHARS_AT_ONCE = 65_536  # of a long text that is measured, so that it is never there twice


class RawOutput(Struct, frozen=True, gc=False):
    """Raw output, cut where it was too long; ``bytes_whole`` is how long it was."""

    kind: str
    media_type: str
    content: bytes
    bytes_whole: int

    def __repr__(self) -> str:
        return f"Aside(kind={self.kind!r}, bytes_whole={self.bytes_whole})"


class CaptureFactory:
    """Gives each raw output that attempts of a process have put aside an id, and says how long it is kept.

    ``tracebacks``: also put aside the traceback of what a stage raises.
    """

    def __init__(
        self, clock: Clock, chance: Random, *, kept_s: float | None, tracebacks: bool = False
    ) -> None:
        self.tracebacks = tracebacks
        self._ids = Ids(clock, chance)
        self._kept_s = kept_s

    def captures_of(self, outcome: Outcome, asides: Sequence[RawOutput]) -> tuple[Capture, ...]:
        """What the store has to keep; nothing for an attempt that is given back, because it counts as nothing."""
        if not asides or isinstance(outcome, Interrupted):
            return ()
        return tuple(
            Capture(
                self._ids.next(),
                one.kind,
                one.media_type,
                one.content,
                one.bytes_whole,
                self._kept_s,
            )
            for one in asides
        )


def aside(raw: object, kind: object, media_type: object) -> RawOutput:
    """What a stage wants to be put aside, checked and cut."""
    if not isinstance(raw, str | bytes):
        raise CallerError(
            f"capture: raw is of type {type(raw).__name__}; pass the output as text or bytes"
        )
    named = _check_name("kind", kind)
    if media_type is None:
        typed = _TEXT if isinstance(raw, str) else _BYTES
    else:
        typed = _check_name("media_type", media_type)
    content, bytes_whole = _cut_text(raw) if isinstance(raw, str) else _cut_bytes(raw)
    return RawOutput(named, typed, content, bytes_whole)


def aside_of(error: BaseException) -> RawOutput | None:
    """The output that did not pass: what an error of ours, or one it was raised from, has as ``raw``.

    Of others only the error of the standard library's own JSON reader is looked at, which has the document that it
    could not read.
    """
    for link in _errors_of_ours(error):
        raw = link.doc if isinstance(link, json.JSONDecodeError) else vars(link).get("raw")
        if isinstance(raw, str | bytes) and raw:
            return aside(raw, INVALID_OUTPUT, None)
    return None


def traceback_of(error: BaseException) -> RawOutput:
    """The whole traceback without secrets; files are named from where modules are looked for, not from the server's root."""
    text = "".join(traceback.format_exception(error))
    for place in sorted({one.rstrip("/") for one in sys.path}, key=len, reverse=True):
        if place:
            text = text.replace(f'File "{place}/', 'File "')
    safe = redact_line(text[:CAPTURE_BYTES_MAX])
    if len(text) > CAPTURE_BYTES_MAX:  # a secret that the cut goes through may not look like one
        safe = safe.rpartition("\n")[0]
    return aside(safe, TRACEBACK, None)


def _errors_of_ours(error: BaseException) -> Iterator[PerdureError | json.JSONDecodeError]:
    link: BaseException | None = error
    for _ in range(1 + CAUSES_MAX):
        if link is None:
            return
        if isinstance(link, PerdureError | json.JSONDecodeError):
            yield link
        link = link.__cause__


def _check_name(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise CallerError(f"capture: {what} is of type {type(name).__name__}; it must be text")
    if len(name) > NAME_CHARS_MAX:  # it may be the output, in the wrong place: not quoted
        raise CallerError(
            f"capture: {what} has {len(name)} characters; give a name of at most {NAME_CHARS_MAX}"
        )
    if not name or not name.isprintable() or name != name.strip():
        raise CallerError(
            f"capture: {what} is {name!r}; it must have printable characters and no space at its ends"
        )
    return name


def _cut_text(raw: str) -> tuple[bytes, int]:
    bytes_whole = len(raw) if raw.isascii() else sum(map(len, _encode_in_pieces(raw)))
    content = _utf8(raw[:CAPTURE_BYTES_MAX])
    if len(content) > CAPTURE_BYTES_MAX:
        content = content[:CAPTURE_BYTES_MAX].decode(errors="ignore").encode()  # no half character
    return content, bytes_whole


def _encode_in_pieces(raw: str) -> Iterator[bytes]:
    for begin in range(0, len(raw), _CHARS_AT_ONCE):
        yield _utf8(raw[begin : begin + _CHARS_AT_ONCE])


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # half a surrogate pair has no UTF-8: a question mark


def _cut_bytes(raw: bytes) -> tuple[bytes, int]:
    return bytes(raw[:CAPTURE_BYTES_MAX]), len(raw)
