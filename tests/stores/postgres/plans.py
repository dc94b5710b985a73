"""The server's plans for our statements, read as trees."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from perdure.stores.postgres.statements import SQL

_NAMED = re.compile(r"%\(([a-z_]+)\)s")


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
        plan["Node Type"], plan.get("Index Name"), plan.get("Relation Name"),
        plan.get("Function Name"), plan.get("Index Cond", ""),
        tuple(_node(one) for one in plan.get("Plans", ())),
    )  # fmt: skip


def plan_of(cx, name: str, values: Mapping[str, object], *, mode: str) -> Node:
    """How a session would carry out a statement of ours that it has prepared."""
    return plan_of_text(cx, getattr(SQL, name), values, mode=mode)


def plan_of_text(cx, text: str, values: Mapping[str, object], *, mode: str) -> Node:
    """As `plan_of`, for a statement that both stores share."""
    names = list(dict.fromkeys(_NAMED.findall(text)))
    numbered = _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
    literals = sql.SQL(", ").join(sql.Literal(values[one]) for one in names)
    cx.execute(f"SET plan_cache_mode = force_{mode}_plan")
    cx.execute(f"PREPARE planned AS {numbered}", prepare=False)
    try:
        asked = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE planned ({})").format(literals)
        (found,) = cx.execute(
            asked if names else "EXPLAIN (FORMAT JSON) EXECUTE planned"
        ).fetchone()
    finally:
        cx.execute("DEALLOCATE planned", prepare=False)
        cx.execute("RESET plan_cache_mode")
    ((whole),) = json.loads(found) if isinstance(found, str) else found
    return _node(whole["Plan"])
