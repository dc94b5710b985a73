"""Files of earlier versions, made by their migrations alone and filled by hand: jobs of every state and more.

The pipelines are those of `tests/stories/app`. The last numbers of each table are gone, as if by pruning: who
counts on must count on from there.
"""

import sqlite3
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

from perdure.stores.migrations import migrations
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.schema import _TABLE, PACKAGE, SqliteSchema
from perdure.testing import VirtualClock

US = 1_000_000
START = 1_577_836_800 * US  # 2020: everything is due, and every lease has run out
LAST = {"perdure_jobs": 20, "perdure_lanes": 9, "perdure_workers": 7}
JOBS = 15
COUNTED = ("starts", "failures", "waits", "crashes", "snoozes", "probes", "releases")


def make(path: Path, *, through: int = 1, filled: bool = True) -> None:
    """A file as the first so many migrations leave it."""
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute(_TABLE)
    for one in migrations(PACKAGE)[:through]:
        raw.executescript(one.sql)
        row = (one.number, one.name, one.checksum, one.compat_min, START)
        raw.execute("INSERT INTO perdure_migrations VALUES (?, ?, ?, ?, ?)", row)
    if filled:
        _fill(raw)
    raw.close()


def add_runs(path: Path) -> None:
    """Runs, an artifact and bulk operations, as the third migration knows them.

    The first run has ended: job 5 succeeded, 6 to 8 failed, and one that failed is gone. Job 8 was driven
    again in the second, which goes on.
    """
    raw = sqlite3.connect(path)
    for no, status, parent, ended_at in (
        (1, "partial_success", None, START + 900),
        (2, "running", 1, None),
    ):
        row = {"no": no, "id": f"00000000-0000-7000-8000-00000000a{no:03x}", "owner": "ann"}
        row |= {"pipeline": "walk", "name": f"run {no}", "status": status, "parent": parent}
        row |= {"settings": '{"budget":0.1}', "created_at": START, "changed_at": START + no}
        _insert(raw, "runs", row | {"ended_at": ended_at})
    raw.execute("UPDATE perdure_jobs SET run = 1 WHERE no BETWEEN 5 AND 8")
    raw.execute("UPDATE perdure_jobs SET redrive_run = 2 WHERE no = 8")
    raw.execute("UPDATE perdure_jobs SET retries_manual = life - 1")
    for run, writer, total, succeeded, failed in (
        (1, 0, 5, 0, 0),
        (1, 3, 0, 1, 4),
        (2, 3, 1, 0, 1),
    ):
        row = {"run": run, "writer": writer, "total": total, "succeeded": succeeded}
        _insert(raw, "run_counts", row | {"failed": failed, "attempts": 3, "retries": 2})
    row = {"no": 1, "id": "00000000-0000-7000-8000-00000000b001", "job": 5, "token": 1}
    row |= {"stage": "prepare", "kind": "raw", "media_type": "text/plain", "saved_at": START + 3}
    _insert(raw, "artifacts", row | {"content": "naïve".encode()})
    for no, status in ((1, "running"), (2, "done")):
        row = {"no": no, "id": f"00000000-0000-7000-8000-00000000c{no:03x}", "verb": "redrive"}
        row |= {"status": status, "filter": "{}", "begun_by": "ann", "reason": "again", "cursor": 9}
        _insert(raw, "bulks", row | {"done": 3, "begun_at": START + no, "changed_at": START + 5})
    raw.commit()
    raw.close()


def upgrade(path: str) -> None:
    """Upgrade a file, in this process."""
    connection = Connection(path, VirtualClock())
    SqliteSchema(connection, f"sqlite:///{path}").upgrade()
    connection.close()


def _fill(raw: sqlite3.Connection) -> None:
    raw.execute("BEGIN")
    stages = ("prepare", "work", "finish")
    for no, (pipeline, stage) in enumerate(
        [(pipeline, stage) for pipeline in ("walk", "walk_sync") for stage in stages], start=1
    ):
        row = {"no": no, "queue": "default", "category": "default"}
        _insert(raw, "lanes", row | {"pipeline": pipeline, "stage": stage})
    for no, death, settled_at in (
        (1, None, None),
        (2, '{"why":"silent"}', None),
        (3, '{"why":"exited"}', START + 9),
    ):
        row = {
            "no": no,
            "boot": f"boot-{no}",
            "name": f"host:{no}",
            "role": ("main", "suspects", "alone")[no - 1],
        }
        row |= {
            "ttl_us": no * US,
            "started_at": START + no,
            "beat_at": START + 2 * no,
            "steady_at": START + 3 * no,
        }
        row |= {
            "dead_at": None if death is None else START + 8,
            "death": death,
            "settled_at": settled_at,
        }
        _insert(raw, "workers", row)
    for no, job in enumerate(_jobs(), start=1):
        _add(raw, no, *job)
    _insert(
        raw, "books", {"pipeline": "walk", "accepted": 19, "pruned": LAST["perdure_jobs"] - JOBS}
    )
    _insert(raw, "books", {"pipeline": "walk_sync", "accepted": 1, "pruned": 0})
    for name, seq in LAST.items():
        raw.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (seq, name))
    raw.execute("COMMIT")


Attempt = dict[str, Any]
Job = tuple[dict[str, Any], list[Attempt]]


def _jobs() -> list[Job]:
    """What each job is, and the attempts that have led there."""
    prepared = {"stage": "prepare", "status": "success", "state": "queued"}
    tried = {"stage": "work", "status": "retrying", "counted": "failures", "kind": "network"}
    crashed = {
        "stage": "prepare",
        "status": "interrupted",
        "counted": "crashes",
        "kind": "worker_lost",
    }
    at_work = {"lane": 2, "stage": "work", "input_from": "prepare", "past": '{"starts":1}'}
    ended = {"finished_at": START + 500_000}
    failed = {"state": "failed", "ready": None, **ended, "error_message": "It is broken."}
    return [
        ({"priority": 3, "owner": "ann", "key": "k1", "deadline_at": START + 4_000_000_000 * US}, []),
        ({"ready": 0, "error_kind": "network"}, [tried | {"stage": "prepare"}]),
        (at_work, [prepared]),
        (at_work | {"state": "processing", "ready": None, "worker": 2, "claimed_at": START + 7, "starts": 1, "token": 3},
         [prepared | {"state": "processing"}]),
        ({"state": "succeeded", "ready": None, **ended, "lane": 3, "stage": "finish", "input_from": "work",
          "past": '{"starts":2}', "label": "passed", "result": '"done"'},
         [prepared, prepared | {"stage": "work"}, prepared | {"stage": "finish", "state": "succeeded"}]),
        (failed | {"failed_reason": "fatal", "error_kind": "input_invalid"},
         [{"stage": "prepare", "status": "failed", "state": "failed", "counted": "failures"}]),
        (failed | at_work | {"failed_reason": "exhausted", "error_kind": "network"},
         [prepared, tried, tried, tried | {"status": "failed", "state": "failed"}]),
        (failed | {"failed_reason": "crashed", "error_kind": "worker_lost", "isolation": 2},
         [crashed, crashed, crashed | {"status": "failed", "state": "failed"}]),
        (failed | {"failed_reason": "expired", "error_kind": "timeout"},
         [{"stage": "prepare", "status": "waiting", "counted": "waits"},
          {"stage": "prepare", "status": "failed", "state": "failed"}]),
        ({"state": "cancelled", "ready": None, **ended, "token": 1}, []),
        ({"state": "cancelled", "ready": None, **ended},
         [{"stage": "prepare", "status": "cancelled", "state": "cancelled"}]),
        ({"isolation": 1, "error_kind": "worker_lost"}, [crashed]),
        ({"ready": 0, "waited_s": 2.5}, [{"stage": "prepare", "status": "waiting", "counted": "snoozes"},
                                         {"stage": "prepare", "status": "handed_over"}]),
        ({"state": "succeeded", "ready": None, **ended, "life": 2, "lane": 3, "stage": "finish"},
         [{"stage": "finish", "status": "failed", "state": "failed", "counted": "failures", "life": 1},
          {"stage": "finish", "status": "success", "state": "succeeded", "life": 2}]),
        ({"pipeline": "walk_sync", "lane": 4, "owner": "ann", "key": "k1",
          "payload": '{"work":{},"text":"Straße 🦆 \\u0001"}'}, []),
    ]  # fmt: skip


def _add(raw: sqlite3.Connection, no: int, given: dict[str, Any], attempts: list[Attempt]) -> None:
    """A job, its attempts, and a checkpoint for each stage that it has finished and gone on from."""
    moments = count(START + no * 1000)
    job = {
        "no": no, "id": f"00000000-0000-7000-8000-{no:012x}", "owner": "", "pipeline": "walk",
        "lane": 1, "stage": "prepare", "state": "queued", "ready": 1, "priority": no, "life": 1,
        "token": 2 * len(attempts), "order_at": next(moments), "rank_at": next(moments),
        "enqueued_at": next(moments), "due_at": next(moments), "updated_at": next(moments),
        "payload": '{"work":{}}', **given,
    }  # fmt: skip
    for name in COUNTED:
        own = [
            one
            for one in attempts
            if (one["stage"], one.get("life", 1)) == (job["stage"], job["life"])
        ]
        over = [place for place, one in enumerate(own) if one["status"] == "handed_over"]
        own = own[over[-1] + 1 :] if over else own  # counters begin anew at a hand-over
        job[name] = job.get(name, 0) + sum(
            name == "starts" or one.get("counted") == name for one in own
        )
    _insert(raw, "jobs", job)
    numbers: Counter[tuple[str, int]] = Counter()
    for place, one in enumerate(attempts):
        token = 2 * place + 1
        numbers[one["stage"], one.get("life", 1)] += 1
        row = {
            "job": no, "token": token, "number": numbers[one["stage"], one.get("life", 1)], "life": job["life"], "state": "queued",
            "worker": 3, "claimed_at": next(moments), "settled_at": next(moments),
            "elapsed_s": no / 8, "delay_s": token / 4, "message": f"message {no}/{token}",
            "policy": "standard/1", "why": '{"text":"because"}', "evidence": f'{{"no":{no}}}',
            "config_hash": f"{no:016x}", "settled_by": 1,
        }  # fmt: skip
        _insert(raw, "attempts", row | one)
        if one["status"] == "success" and one["state"] != "succeeded":
            saved = {"job": no, "stage": one["stage"], "token": token, "saved_at": next(moments)}
            _insert(raw, "checkpoints", saved | {"value": '{"work":{}}'})


def _insert(raw: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    raw.execute(f"INSERT INTO perdure_{table} ({names}) VALUES ({marks})", tuple(row.values()))
