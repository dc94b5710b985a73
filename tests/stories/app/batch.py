"""The app of the stories about runs: three flaky stages whose faults follow from the item alone.

``STORY_BROKEN`` names a file; while it is there, the last stage fails on every item, for good.
"""

import os
import zlib
from pathlib import Path
from typing import Any

from pen import noted

import perdure

app = perdure.App()
quick = perdure.Policy(
    "quick",
    attempts_max=4,
    crashes_max=6,
    backoff=perdure.Backoff("fixed", base_s=0.05),
    jitter=perdure.Jitter("none"),
    rules={perdure.Kind.INVALID_REQUEST: perdure.Rule("fail")},
    otherwise=perdure.Rule("retry"),
)
BROKEN = Path(os.environ.get("STORY_BROKEN", "broken"))


def hopeless(n: int) -> bool:
    """Whether an item can never be done: one in fifty."""
    return n % 50 == 7


def _flaky(n: int, context: perdure.Context) -> None:
    """One stage in ten fails once, one in a hundred twice; which ones follows from the item and the stage."""
    fate = zlib.crc32(f"{n} {context.stage}".encode()) % 100
    times = 2 if fate == 0 else 1 if fate < 10 else 0
    if context.attempts_left > quick.attempts_max - 1 - times:
        raise perdure.StageError("upstream_error", f"item {n} has to be tried again")


@app.stage(policy=quick)
async def read(item: Any, context: perdure.Context) -> Any:
    with noted(context):
        _flaky(item["n"], context)
        context.usage(tokens_in=3, tokens_out=1, cost_usd=0.000001)
        return item["n"]


@app.stage(policy=quick)
async def think(n: int, context: perdure.Context) -> Any:
    with noted(context):
        _flaky(n, context)
        context.usage(tokens_in=5, tokens_out=7, cost_usd=0.000002)
        return n


@app.stage(policy=quick)
async def tell(n: int, context: perdure.Context) -> Any:
    with noted(context):
        if hopeless(n) or BROKEN.exists():  # noqa: ASYNC240 - a look at a file, for a test
            raise perdure.StageError("invalid_request", f"item {n} cannot be told")
        _flaky(n, context)
        return {"n": n, "square": n * n}


pipe = app.pipeline("batch", read, think, tell)
