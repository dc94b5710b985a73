"""Whether the source of a job is still there: the pipeline's own check, asked before a job is given a new life."""

from collections.abc import Callable
from typing import Any

from perdure.engine.operate.eligible import Check
from perdure.engine.payloads import decode
from perdure.engine.run import asked
from perdure.model.outcomes import Evidence
from perdure.model.views import JobView

GONE = "its source is gone"


def source_check(exists: Callable[[Any], Any]) -> Check:
    """A pipeline's ``source_exists`` as a check: it is called with the item as it was enqueued."""

    def check(job: JobView) -> str | None:
        answer = asked(lambda text: exists(decode(text)), job.payload_json)
        if isinstance(answer, Evidence):
            name = answer.names[0] if answer.names else "an error"
            return f"whether its source exists could not be told ({name})"
        return None if answer else GONE

    return check
