"""The app that is served, as a user would write it."""

import os
from typing import Any

from perdure import App

app = App(os.environ["BENCH_STORE"])


@app.stage
async def nothing(item: Any) -> None:
    """Do nothing."""


pipe = app.pipeline("nothing", nothing)
