"""The app of the stories about gates: calls of the upstream that the environment names, and a fair queue."""

import asyncio
import os
from typing import Any

import perdure
from perdure.checks import check
from perdure.demo.client import post_async
from perdure.model.nouns import replace
from perdure.rules.presets import preset

app = perdure.App()
app.upstream("model")
app.upstream(
    "shy",  # a breaker for any trouble, and not only for outages
    gate=perdure.GateSettings(
        perdure.WindowSettings(fail_share=0.4),
        gaps=perdure.Backoff("fixed", base_s=0.1),
        pace=perdure.PaceSettings(start_calls=32),
    ),
)
app.upstream("narrow", concurrency=6)
app.queue("shared", fair=True)

_UPSTREAM = os.environ.get("STORY_UPSTREAM", "")
_DELAY_S = float(os.environ.get("STORY_DELAY_S", "2"))
_TASK_S = float(os.environ.get("STORY_TASK_S", "0"))
_STANDARD = preset("standard")
_POLICY = replace(_STANDARD, backoff=replace(_STANDARD.backoff, base_s=_DELAY_S))


@app.stage(upstream="model", policy=_POLICY)
async def behind(item: Any) -> Any:
    return await post_async(f"{_UPSTREAM}/call", item)


@app.stage(upstream="model", policy=_POLICY)
async def buggy(item: Any) -> Any:
    """It forgets that items may be without a title."""
    answer = await post_async(f"{_UPSTREAM}/call", item)
    return {**answer, "title": item["title"]}


@app.stage(upstream="model", policy=_POLICY)
async def allergic(item: Any) -> Any:
    """The upstream breaks down over items without a title, and over no others."""
    answer = await post_async(f"{_UPSTREAM}/call", item)
    if "title" not in item:
        raise perdure.StageError("upstream_error", "Internal Server Error")
    return answer


@app.stage(upstream="model", policy=_POLICY)
async def choosy(item: Any) -> Any:
    """It wants a number where the upstream answers with nothing."""
    return check(await post_async(f"{_UPSTREAM}/call", item), int)


@app.stage(upstream="shy", policy=_POLICY)
async def shy(item: Any) -> Any:
    return await post_async(f"{_UPSTREAM}/call", item)


@app.stage(upstream="narrow")
async def squeezed(item: Any) -> Any:
    return await post_async(f"{_UPSTREAM}/call", item)


@app.stage
async def bare(item: Any) -> Any:
    return await post_async(f"{_UPSTREAM}/call", item)


@app.stage
async def task(item: Any) -> Any:
    await asyncio.sleep(_TASK_S)
    return item


gated = app.pipeline("gated", behind)
bugged = app.pipeline("bugged", buggy)
unfit = app.pipeline("unfit", choosy)
poisoned = app.pipeline("poisoned", allergic)
breaking = app.pipeline("breaking", shy)
limited = app.pipeline("limited", squeezed)
ungated = app.pipeline("ungated", bare)
fair = app.pipeline("fair", task, queue="shared")
unfair = app.pipeline("unfair", task, queue="anyhow")
