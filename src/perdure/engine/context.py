"""What a stage may know about the attempt it is."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Context:
    """Given to stages that take a second argument.

    ``idempotency_key`` stays the same when this stage of this job is tried again: hand it to
    outside systems so that they can recognise the repeat. ``token`` rises with every attempt: hand
    it to systems that can refuse an older writer.
    """

    job_id: str
    pipeline: str
    stage: str
    owner: str
    item: Any
    attempt: int
    attempts_left: int
    token: int
    idempotency_key: str
    deadline_at: datetime | None
