"""A module that takes its time to be imported, as large applications do."""

import time
from typing import Any

time.sleep(1.0)


def echo(item: Any) -> Any:
    return item
