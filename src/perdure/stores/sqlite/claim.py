"""Claiming: from the open lanes of an order to claims, inside one write transaction."""

import heapq
import sqlite3
from typing import Any

from perdure.model.jobs import Claim, ClaimOrder, Part
from perdure.model.limits import PROMOTE_BATCH_MAX
from perdure.stores.lane_slots import lanes_of, parts_of, slots_of
from perdure.stores.rows import encode
from perdure.stores.sqlite.record import add_tally, claims_of
from perdure.stores.sqlite.statements import SQL
from perdure.stores.tally_changes import TallyChanges

AFTER_ALL = 2**63 - 1


def open_lanes(cx: sqlite3.Connection, order: ClaimOrder) -> list[int]:
    """Those of the order's lanes that nothing closes."""
    closed = {lane for (lane,) in cx.execute(SQL.closed_lane_nos).fetchall()}
    return [lane for lane in lanes_of(order) if lane not in closed]


def claim(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int], now: int) -> list[Claim]:
    """Promote what has fallen due, merge the heads of the lanes by rank, and take the first ones."""
    promote(cx, order, lanes, now)
    return _take(cx, order, lanes, slots_of(order), now)


def claim_parts(
    cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int], now: int
) -> tuple[list[Claim], list[int]]:
    """As `claim`, for each part of the order and then for its other lanes; and the lanes that fell short."""
    promote(cx, order, lanes, now)
    claims: list[Claim] = []
    short: list[int] = []

    def serve(part: Part) -> None:
        own = [lane for lane in part.lanes if lane in is_open]
        taken = _take(cx, order, own, part.slots, now)
        claims.extend(taken)
        short.extend(own if len(taken) < part.slots else ())

    is_open = set(lanes)
    for part in parts_of(order):
        serve(part)
    left = slots_of(order) - len(claims)
    if left > 0:
        serve(Part(tuple(dict.fromkeys(order.lanes)), left))
    return claims, short


def promote(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int], now: int) -> None:
    """Make ready what has fallen due, so many at a time."""
    where = {"lanes": encode(lanes), "isolation": order.isolation, "now": now}
    due = cx.execute(SQL.due_lanes, where).fetchall()
    tally = TallyChanges()
    for (lane,) in due:  # an equal part for each, so that no turn holds the line for long
        part = max(1, PROMOTE_BATCH_MAX // len(due))
        ready = cx.execute(SQL.promote, where | {"lane": lane, "limit": part}).fetchall()
        retrying = sum(error_kind is not None for (error_kind,) in ready)
        tally.move(lane, "retrying", "ready", jobs=retrying)
        tally.move(lane, "waiting", "ready", jobs=len(ready) - retrying)
    if due:
        add_tally(cx, tally, 0, now)


def _take(
    cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int], slots: int, now: int
) -> list[Claim]:
    nos = heads(cx, order, lanes, slots)
    return take(cx, nos, order.worker, now) if nos else []


def take(cx: sqlite3.Connection, nos: list[int], worker: int, now: int) -> list[Claim]:
    """Claim these jobs, which are ready."""
    cx.execute(SQL.claim, {"nos": encode(nos), "worker": worker, "now": now})
    claims = claims_of(cx, nos)
    tally = TallyChanges()
    for one in claims:
        tally.move(one.lane, "ready", "processing")
    add_tally(cx, tally, 0, now)
    return claims


def heads(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int], slots: int) -> list[int]:
    """The first jobs of all lanes together, by rank.

    The first jobs of lanes are compared first: a job behind as many of those as there are slots gets no slot.
    """
    where: dict[str, Any] = {"lanes": encode(lanes), "isolation": order.isolation, "limit": slots}
    firsts = sorted(cx.execute(SQL.lane_firsts, where).fetchall())[:slots]
    rank_at, no, _ = firsts[-1] if len(firsts) == slots else (AFTER_ALL, AFTER_ALL, None)
    found = [
        cx.execute(SQL.lane_heads, where | {"lane": lane, "rank_at": rank_at, "no": no}).fetchall()
        for _, _, lane in firsts
    ]
    return [no for _, no in heapq.merge(*found)][:slots]


def wait_s(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int], now: int) -> float | None:
    """Seconds until the soonest job of these lanes falls due."""
    where = {"lanes": encode(lanes), "isolation": order.isolation}
    (due_at,) = cx.execute(SQL.next_due, where).fetchone()
    return None if due_at is None else max(0.0, (due_at - now) / 1_000_000)


def has_work(cx: sqlite3.Connection, order: ClaimOrder, lanes: list[int]) -> bool:
    """Whether a job of these lanes can run now."""
    where = {"lanes": encode(lanes), "isolation": order.isolation}
    return cx.execute(SQL.busy_lanes, where).fetchone() is not None
