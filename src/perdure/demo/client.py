"""How the demo's stages call the upstream: two small HTTP clients, one blocking, one not.

Both say what went wrong the way any client does: by raising. Which exception means what is
Perdure's business, not theirs. Neither retries: two layers of retries are a defect.
"""

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

# The upstream is on the loopback: a proxy that the environment names must not come between.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class BadStatus(Exception):
    """The upstream answered with a status that is no success."""

    def __init__(self, status: int, phrase: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP {status} {phrase}")
        self.status = status
        self.headers = headers


def post(url: str, body: object, *, timeout_s: float) -> Any:
    """POST JSON and read JSON, on the calling thread."""
    request = urllib.request.Request(  # noqa: S310 - the tour gives the address, on the loopback
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        error.close()
        raise


async def post_async(url: str, body: object) -> Any:
    """As `post`, on the event loop; the stage's own timeout ends it."""
    place = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        content = json.dumps(body).encode()
        head = f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()
        answer_head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        answer = await reader.read()
    finally:
        writer.close()
    _check(answer_head)
    return json.loads(answer)


def _check(head: str) -> None:
    first, *lines = head.rstrip().split("\r\n")
    _, status, phrase = first.split(" ", 2)
    if status != "200":
        pairs = (line.partition(":") for line in lines)
        raise BadStatus(int(status), phrase, {name: value.strip() for name, _, value in pairs})
