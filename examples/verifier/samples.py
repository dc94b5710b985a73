"""Runs of every sort, made by playing: for the demonstration, the tests, and whoever tries it out.

``python -m verifier.samples http://127.0.0.1:8470`` submits one of each.
"""

import json
import sys
from datetime import UTC, datetime
from typing import Any

import httpx2

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
STRANGE = ("crash", "hang", "hungry", "injected", "desync", "no save")


def make_submission(
    run_id: str, sort: str, seed: int, submitted_date: datetime, **header: Any
) -> dict[str, Any]:
    """A run of that sort as the service takes it."""
    run = {
        "id": run_id,
        "player": f"player {seed % 5 + 1}",
        "game": "burrow",
        "category": category_of(sort),
        "submitted_date": submitted_date.isoformat(),
    }
    return {"run": run, "save": make_save(sort, seed, **header)}


def category_of(sort: str) -> str:
    return "all-gems" if "gems" in sort else "any%"


def make_save(sort: str, seed: int, **header: Any) -> str:
    """A save of that sort, as text."""
    board = Burrow(seed)
    way = list(shortest(board, START, EXIT))
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
    claim = {"version": "2.0", "category": category_of(sort), "seed": seed, "ticks": claimed}
    claim |= {"mods": {"base": "1.0"}, **header}
    magic = "A PICTURE" if sort == "no save" else "BURROW SAVE 1"
    return "\n".join([magic, json.dumps(claim), *inputs]) + "\n"


def main(url: str) -> None:
    sorts = [*VERDICTS, *STRANGE]
    runs = [
        make_submission(sort.replace(" ", "-"), sort, seed, datetime.now(UTC))
        for seed, sort in enumerate(sorts, start=1)
    ]
    httpx2.post(f"{url}/submit", json=runs).raise_for_status()
    print(
        f"submitted {len(runs)} runs; the daemon finds them with its next poll, the first when it is started"
    )


if __name__ == "__main__":
    main(sys.argv[1])
