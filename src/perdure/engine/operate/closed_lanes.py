"""What closes a lane, and what a person types so that its jobs are claimed again."""

import re
import shlex

from perdure.ports import Reader

# In the words of the view `perdure_closed_lanes`, which both stores have.
_CLOSED = re.compile(r"(queue|run|upstream|credential) (.+) is \w+")
_GATE = "perdure gates release {} --reason …"
_COMMANDS = {
    "queue": "perdure queues resume {}",
    "run": "perdure runs resume {}",
    "upstream": _GATE,
    "credential": _GATE,
}


def release_commands(closed_by: str) -> tuple[str, ...]:
    """What to type about a lane that is closed by this; none where nothing is known that helps."""
    found = [_CLOSED.fullmatch(part) for part in closed_by.split("; ")]
    return tuple(_COMMANDS[one[1]].format(shlex.quote(one[2])) for one in found if one is not None)


def why_closed(reader: Reader, lane: int) -> str | None:
    """What closes a lane, and what to type about it; None for one that is open."""
    closed_by = next((one.closed_by for one in reader.lanes() if one.no == lane), None)
    if closed_by is None:
        return None
    command = " and ".join(release_commands(closed_by))
    return f"{closed_by} (to release it: {command})" if command else closed_by
