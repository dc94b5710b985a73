"""The app that our worker processes load, as a user would write it."""

import asyncio
import os
import sys
from typing import Any

from benchmarks.workers import ledger

from perdure import App, Context
from perdure.rules.policy import RETRY, Policy

AT_ONCE = Policy("at-once", otherwise=RETRY, own_delay=lambda failures, kind: 0.0)
HOLD_S = 600.0

app = App(os.environ[ledger.URL])
notes = ledger.mine()


@app.stage
async def nothing(item: dict[str, Any]) -> None:
    """Do nothing."""


@app.stage(policy=AT_ONCE)
async def flaky(item: dict[str, Any], context: Context) -> None:
    """Fail the first time."""
    if context.attempt == 1:
        raise ConnectionResetError(104, "Connection reset by peer")


@app.stage
async def timed(item: dict[str, Any]) -> None:
    """Say how long it took to get here."""
    notes.timed(item["sent_ns"])


@app.stage(timeout_s=HOLD_S)
async def held(item: dict[str, Any]) -> None:
    """Stay until told to stop."""
    notes.held()
    await asyncio.sleep(HOLD_S)


PIPELINES = [app.pipeline(one.__name__, one) for one in (nothing, flaky, timed, held)]

if "worker-child" in sys.argv:
    notes.ready()
