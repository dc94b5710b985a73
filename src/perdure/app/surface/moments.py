"""Moments as JSON has them: RFC 3339, in UTC, and so said in the document of the API."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

Moment = Annotated[datetime, Meta(tz=True)]
