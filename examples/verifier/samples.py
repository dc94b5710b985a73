"""Saves of runs of every sort, made by playing: for the demonstration and the tests."""

import json
from typing import Any

from .game import EXIT, START, Burrow, shortest

# What came of it is what a replay must say; the other sorts end as the variant that their name says.
VERDICTS = {
    "good": "passed",
    "all the gems": "passed",
    "perfect": "needs_review",
    "nearly as claimed": "needs_review",
    "slower than claimed": "failed",
    "unfinished": "failed",
    "gems left": "failed",
}


def make_save(sort: str, seed: int, **header: Any) -> str:
    """A save of that sort, as text."""
    board = Burrow(seed)
    way = list(shortest(board, START, EXIT))
    category = "all-gems" if "gems" in sort else "any%"
    if sort == "all the gems":
        way, at = [], START
        for gem in sorted(board.gems):
            way, at = [*way, *shortest(board, at, gem)], gem
        way += shortest(board, at, EXIT)
    inputs = {
        "unfinished": way[: len(way) // 2],
        "perfect": way,
        "crash": [*way, "R", "J"],
        "hang": [". 999999999999", *way],
        "hungry": ["H", ". 1400", *way],
        "injected": [*way, "/open all"],
        "desync": [*way[:5], "= 0000", *way[5:]],
    }.get(sort, [*way[:3], ". 5", *way[3:]])
    ticks = sum(int(one[2:] or 1) if one[0] == "." else one[0] not in "=/" for one in inputs)
    claimed = ticks - {"nearly as claimed": 1, "slower than claimed": 20}.get(sort, 0)
    claim = {"version": "2.0", "category": category, "seed": seed, "ticks": claimed}
    claim |= {"mods": {"base": "1.0"}, **header}
    magic = "A PICTURE" if sort == "no save" else "BURROW SAVE 1"
    return "\n".join([magic, json.dumps(claim), *inputs]) + "\n"
