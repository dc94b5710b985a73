"""The app of the stories about gates: one call of the upstream that the environment names, and a fair queue."""

import asyncio
import os
from typing import Any

import perdure
from perdure.demo.client import post_async

app = perdure.App()
app.upstream("model")
app.queue("shared", fair=True)

_UPSTREAM = os.environ.get("STORY_UPSTREAM", "")
_TASK_S = float(os.environ.get("STORY_TASK_S", "0"))


@app.stage(upstream="model")
async def behind(item: Any) -> Any:
    return await post_async(f"{_UPSTREAM}/call", item)


@app.stage
async def bare(item: Any) -> Any:
    return await post_async(f"{_UPSTREAM}/call", item)


@app.stage
async def task(item: Any) -> Any:
    await asyncio.sleep(_TASK_S)
    return item


gated = app.pipeline("gated", behind)
ungated = app.pipeline("ungated", bare)
fair = app.pipeline("fair", task, queue="shared")
unfair = app.pipeline("unfair", task, queue="anyhow")
