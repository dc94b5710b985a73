"""The files of a form: written to disk as they come, and refused at the place where they become too large."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from .refusals import Refused
from .templates import clean_name, size

FILES_MAX = 50  # in one form
LARGEST_MAX = 10  # files of the largest size in one form
HEADS_BYTES = 64 * 1024  # what a form may add to its files


class Form(MultiPartParser):
    """A form that is being read; whatever ends that closes its files."""

    def __init__(self, request: Request, bytes_max: int) -> None:
        super().__init__(request.headers, self._bounded(request))
        self._bytes_max, self._parts, self._part_bytes = bytes_max, 0, 0

    async def _bounded(self, request: Request) -> AsyncIterator[bytes]:
        bytes_max = LARGEST_MAX * self._bytes_max
        length, seen = request.headers.get("content-length", ""), 0
        if length.isdecimal() and int(length) > bytes_max + HEADS_BYTES:
            raise too_large(f"{size(bytes_max)} at once are the most")
        async for chunk in request.stream():
            seen += len(chunk)
            if seen > bytes_max + HEADS_BYTES:
                raise too_large(f"{size(bytes_max)} at once are the most")
            yield chunk

    def on_part_begin(self) -> None:
        super().on_part_begin()
        self._parts, self._part_bytes = self._parts + 1, 0
        if self._parts > FILES_MAX:
            raise too_large(f"{FILES_MAX} files at once are the most")

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        super().on_part_data(data, start, end)
        self._part_bytes += end - start
        file = self._current_part.file
        if file is not None and self._part_bytes > self._bytes_max:
            name = clean_name(file.filename or "")
            raise too_large(f"{name} is larger than {size(self._bytes_max)}")


def too_large(why: str) -> Refused:
    return Refused("TOO_LARGE", f"{why}. Nothing was uploaded.")


@asynccontextmanager
async def files_of(request: Request, bytes_max: int) -> AsyncIterator[list[UploadFile]]:
    """The files that a request brings; they are gone at the end of the block."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        yield []
        return
    try:
        form = await Form(request, bytes_max).parse()
    except MultiPartException as wrong:
        raise Refused("UNKNOWN", wrong.message, status=400) from None
    try:
        yield [one for one in form.getlist("file") if isinstance(one, UploadFile) and one.filename]
    finally:
        await form.close()
