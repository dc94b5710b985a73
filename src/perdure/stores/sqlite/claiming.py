"""Claiming: from the open lanes of an order to claims, inside one write transaction."""

import heapq
import sqlite3

from perdure.model.jobs import Claim, ClaimOrder
from perdure.model.limits import CLAIM_BATCH_MAX, PROMOTE_BATCH_MAX
from perdure.stores.rows import claim_out, encoded
from perdure.stores.sqlite.statements import SQL


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
    heads = [
        cx.execute(
            SQL.heads, {"lane": lane, "isolation": order.isolation, "limit": slots}
        ).fetchall()
        for (lane,) in cx.execute(SQL.busy_lanes, where).fetchall()
    ]
    nos = [no for _, no in heapq.merge(*heads)][:slots]
    if not nos:
        return []
    taking = {"nos": encoded(nos), "worker": order.worker, "now": now}
    claims = {row[0]: claim_out(row) for row in cx.execute(SQL.claim, taking).fetchall()}
    return [claims[no] for no in nos if no in claims]


def wait_s(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int], now: int) -> float | None:
    """Seconds until the soonest job of these lanes falls due."""
    where = {"lanes": encoded(lanes), "isolation": order.isolation}
    (due_at,) = cx.execute(SQL.next_due, where).fetchone()
    return None if due_at is None else max(0.0, (due_at - now) / 1_000_000)


def has_work(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int]) -> bool:
    """Whether a job of these lanes can run now."""
    where = {"lanes": encoded(lanes), "isolation": order.isolation}
    return cx.execute(SQL.busy_lanes, where).fetchone() is not None
