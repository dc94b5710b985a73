"""Claiming: from the open lanes of an order to claims, inside one write transaction."""

import heapq
import sqlite3
from typing import Any

from perdure.model.jobs import Claim, ClaimOrder
from perdure.model.limits import CLAIM_BATCH_MAX, PROMOTE_BATCH_MAX
from perdure.stores.rows import encoded
from perdure.stores.sqlite.settling import claims_of
from perdure.stores.sqlite.statements import SQL

AFTER_ALL = 2**63 - 1


def open_lanes(cx: sqlite3.Connection, order: ClaimOrder) -> list[int]:
    """Those of the order's lanes that nothing closes."""
    closed = {lane for (lane,) in cx.execute(SQL.closed_lanes).fetchall()}
    return [lane for lane in dict.fromkeys(order.lanes) if lane not in closed]


def claim(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int], now: int) -> list[Claim]:
    """Promote what has fallen due, merge the heads of the lanes by rank, and take the first ones."""
    slots = min(order.slots, CLAIM_BATCH_MAX)
    where = {"lanes": encoded(lanes), "isolation": order.isolation, "now": now}
    due = cx.execute(SQL.due_lanes, where).fetchall()
    for (lane,) in due:  # an equal part for each, so that no turn holds the line for long
        part = max(1, PROMOTE_BATCH_MAX // len(due))
        cx.execute(SQL.promote, where | {"lane": lane, "limit": part})
    nos = _heads(cx, where | {"limit": slots})
    if not nos:
        return []
    taking = {"nos": encoded(nos), "worker": order.worker, "now": now}
    cx.execute(SQL.claim, taking)
    return claims_of(cx, nos)


def _heads(cx: sqlite3.Connection, where: dict[str, Any]) -> list[int]:
    """The first jobs of all lanes together, by rank.

    A job behind the first ones of as many lanes as there are slots cannot be among them.
    """
    slots = where["limit"]
    firsts = sorted(cx.execute(SQL.firsts, where).fetchall())[:slots]
    rank_at, no, _ = firsts[-1] if len(firsts) == slots else (AFTER_ALL, AFTER_ALL, None)
    heads = [
        cx.execute(SQL.heads, where | {"lane": lane, "rank_at": rank_at, "no": no}).fetchall()
        for _, _, lane in firsts
    ]
    return [no for _, no in heapq.merge(*heads)][:slots]


def wait_s(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int], now: int) -> float | None:
    """Seconds until the soonest job of these lanes falls due."""
    where = {"lanes": encoded(lanes), "isolation": order.isolation}
    (due_at,) = cx.execute(SQL.next_due, where).fetchone()
    return None if due_at is None else max(0.0, (due_at - now) / 1_000_000)


def has_work(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int]) -> bool:
    """Whether a job of these lanes can run now."""
    where = {"lanes": encoded(lanes), "isolation": order.isolation}
    return cx.execute(SQL.busy_lanes, where).fetchone() is not None
