"""The server's plans for our statements, read as trees."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from perdure.stores.postgres.statements import SQL

_READ = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
_NAMED = re.compile(r"%\(([a-z_0-9]+)\)s")


@dataclass(frozen=True, slots=True)
class Node:
    """One step of a plan."""

    type: str
    index: str | None
    table: str | None
    function: str | None
    condition: str
    inner: tuple["Node", ...] = field(default=())

    def walk(self) -> Iterator["Node"]:
        """This step and all below it."""
        yield self
        for one in self.inner:
            yield from one.walk()

    def __str__(self) -> str:
        what = [self.type, self.table or self.function or "", self.index or "", self.condition]
        lines = [" ".join(filter(None, what))]
        lines += [f"  {line}" for one in self.inner for line in str(one).splitlines()]
        return "\n".join(lines)


def _node(plan: Mapping[str, Any]) -> Node:
    return Node(
        plan["Node Type"],
        plan.get("Index Name"),
        plan.get("Relation Name"),
        plan.get("Function Name"),
        plan.get("Index Cond", ""),
        tuple(_node(one) for one in plan.get("Plans", ())),
    )


def plan_of(cx, name: str, values: Mapping[str, object], *, mode: str) -> Node:
    """How a session would carry out a statement of ours that it has prepared."""
    return plan_of_text(cx, getattr(SQL, name), values, mode=mode)


def plan_of_text(cx, text: str, values: Mapping[str, object], *, mode: str) -> Node:
    """As `plan_of`, for a statement that both stores share."""
    return _node(_explained(cx, text, values, mode=mode, options="FORMAT JSON"))


def rows_touched(cx, text: str, values: Mapping[str, object], *, mode: str) -> int:
    """Carry a statement out, and count the rows that its scans read: those they gave and those they threw away."""
    plan = _explained(cx, text, values, mode=mode, options="ANALYZE, TIMING off, FORMAT JSON")
    return math.ceil(_touched(plan))


def _touched(plan: Mapping[str, Any]) -> float:
    below = sum(_touched(one) for one in plan.get("Plans", ()))
    if "Relation Name" not in plan and "Index Name" not in plan:
        return below  # of a function, a subquery or a CTE
    each = sum(plan.get(one, 0) for one in _READ)
    return below + each * plan["Actual Loops"]


def _explained(
    cx, text: str, values: Mapping[str, object], *, mode: str, options: str
) -> Mapping[str, Any]:
    names = list(dict.fromkeys(_NAMED.findall(text)))
    numbered = _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
    literals = sql.SQL(", ").join(sql.Literal(values[one]) for one in names)
    cx.execute(f"SET plan_cache_mode = force_{mode}_plan")
    cx.execute(f"PREPARE planned AS {numbered}", prepare=False)
    try:
        arguments = sql.SQL(" ({})").format(literals) if names else sql.SQL("")
        asked = sql.SQL("EXPLAIN ({}) EXECUTE planned{}").format(sql.SQL(options), arguments)
        (found,) = cx.execute(asked).fetchone()
    finally:
        cx.execute("DEALLOCATE planned", prepare=False)
        cx.execute("RESET plan_cache_mode")
    ((whole),) = json.loads(found) if isinstance(found, str) else found
    return whole["Plan"]
