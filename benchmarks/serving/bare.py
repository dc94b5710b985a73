"""What the same server can do at most: a handler that writes one row and commits, with nothing around it.

It has no token, owner, key, tally, change feed or second read; each thread has its connection, as ours do.
"""

import os
import socket
import sqlite3
import threading
from typing import Any

import msgspec
import psycopg
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

URL = os.environ["BENCH_STORE"]
_TABLE = "CREATE TABLE IF NOT EXISTS bare (no {kind} PRIMARY KEY, item TEXT NOT NULL)"
_mine = threading.local()


def connect() -> Any:
    """A connection that syncs, as ours does."""
    if not URL.startswith("sqlite:///"):
        return psycopg.connect(URL, autocommit=True)
    cx = sqlite3.connect(URL.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    cx.execute("PRAGMA journal_mode = WAL")
    cx.execute("PRAGMA synchronous = FULL")
    return cx


def insert(item: str) -> int:
    """One row, durable."""
    if not hasattr(_mine, "cx"):
        _mine.cx = connect()
    mark = "?" if URL.startswith("sqlite:///") else "%s"
    found = _mine.cx.execute(f"INSERT INTO bare (item) VALUES ({mark}) RETURNING no", (item,))
    return int(found.fetchone()[0])


async def create(request: Request) -> Response:
    """Take an item."""
    asked = msgspec.json.decode(await request.body())
    no = await run_in_threadpool(insert, msgspec.json.encode(asked["item"]).decode())
    return Response(msgspec.json.encode({"no": no}), 202, media_type="application/json")


def main() -> None:
    """Serve until it is stopped."""
    kind = "INTEGER" if URL.startswith("sqlite:///") else "bigint GENERATED ALWAYS AS IDENTITY"
    connect().execute(_TABLE.format(kind=kind))
    bound = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    print(f"bare at http://127.0.0.1:{bound.getsockname()[1]}/api", flush=True)
    app = Starlette(routes=[Route("/api/jobs", create, methods=["POST"])])
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[bound])


if __name__ == "__main__":
    main()
