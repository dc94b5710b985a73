"""Stages that write rows of their own and their job's record in one transaction.

An item is ``{"n": 7, "die": "rows"}``: the first attempt that comes to that step kills its process there, and no other.
"""

import os
import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import psycopg

import perdure

app = perdure.App()
own = threading.local()


def connection() -> Any:
    """The stage's own connection, one for each thread."""
    if not hasattr(own, "connection"):
        url = os.environ["PERDURE_STORE"]
        if url.startswith("sqlite:///"):
            own.connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)
        else:
            own.connection = psycopg.connect(url)
    return own.connection


def die_at(step: str, item: dict[str, Any]) -> None:
    if item.get("die") == step:
        died = Path(f"died-{item['n']}")
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def saved(item: dict[str, Any], context: perdure.Context) -> None:
    die_at("begin", item)
    cx = connection()
    try:
        cx.execute(f"INSERT INTO saved VALUES ({item['n']}, '{context.stage}')")
        die_at("rows", item)
        context.complete(item, within=cx)
        die_at("complete", item)
        cx.commit()
    except BaseException:
        cx.rollback()
        raise
    die_at("commit", item)


@app.stage
def save(item: dict[str, Any], context: perdure.Context) -> None:
    saved(item, context)


@app.stage
def seal(item: dict[str, Any], context: perdure.Context) -> None:
    saved(item, context)


once = app.pipeline("once", save)
twice = app.pipeline("twice", save, seal)
