"""A new life for failed jobs."""

import sqlite3

from perdure.model.operations import Revival
from perdure.stores.counting import Tally
from perdure.stores.rows import AGEING_US
from perdure.stores.sqlite.settling import add_tally
from perdure.stores.sqlite.statements import SQL


def revive_one(
    cx: sqlite3.Connection, one: Revival, now: int, tally: Tally, rank_at: int | None
) -> bool:
    """Begin a new life, if the job is still the failed one that was seen; a fair job has its rank."""
    before = cx.execute(SQL.runs_of_job, (one.no,)).fetchone()
    done = cx.execute(
        SQL.revive,
        {
            "no": one.no, "token": one.token, "lane": one.lane, "stage": one.stage,
            "input_from": one.input_from, "redrive_run": one.redrive_run, "now": now,
            "ageing_us": AGEING_US, "rank_at": rank_at,
        },
    ).rowcount  # fmt: skip
    if done != 1:
        return False
    run, redriven = before
    tally.came_back(run)
    if one.redrive_run in (None, redriven):
        tally.came_back(redriven)
    else:
        tally.came_in(one.redrive_run)
    cx.executemany(SQL.checkpoint_forget, [(one.no, stage) for stage in one.forgotten])
    return True


def revive_alone(cx: sqlite3.Connection, one: Revival, now: int, rank_at: int | None) -> bool:
    """As `revive_one`, counts included."""
    tally = Tally()
    done = revive_one(cx, one, now, tally, rank_at)
    add_tally(cx, tally, 0)
    return done
