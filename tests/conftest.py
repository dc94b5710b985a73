"""What every test shares: the hypothesis profile, and what a missing part means.

pytest-randomly prints the run's seed in the header; `-p no:randomly` or `--randomly-seed=N` steers it.
"""

import os
import signal
from collections.abc import Callable
from typing import NoReturn

import hypothesis
import pytest

# A shell that runs us in the background ignores SIGINT for us and for every process we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline measures the machine, not the code; pytest-timeout ends what hangs.
hypothesis.settings.register_profile("perdure", deadline=None, print_blob=True)
hypothesis.settings.load_profile("perdure")


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """Say that a real part (a database, a browser, a document) is not here: `missing("chromium")`.

    At home the test is skipped, under CI=true it fails: there, everything is expected to be present.
    """

    def leave(part: str) -> NoReturn:
        if os.environ.get("CI") == "true":
            pytest.fail(f"missing under CI: {part}", pytrace=False)
        pytest.skip(f"missing: {part}")

    return leave
