"""Objects in S3. Nothing is written twice: whoever comes second finds the first and keeps it."""

from datetime import timedelta
from functools import cache

import obstore
from examples.reports.settings import SETTINGS, TIMEOUT_S
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from examples.reports import settings as known

UPLOADS, REPORTS = "uploads/", "reports/"


@cache
def bucket() -> S3Store:
    """The bucket; its client tries nothing again by itself, and waits no longer than a stage does."""
    limit = timedelta(seconds=SETTINGS[TIMEOUT_S])
    return S3Store(
        SETTINGS[known.S3_BUCKET],
        endpoint=SETTINGS[known.S3_URL],
        access_key_id=SETTINGS[known.S3_KEY],
        secret_access_key=SETTINGS[known.S3_SECRET],
        region=SETTINGS[known.S3_REGION],
        client_options={"allow_http": True, "timeout": limit, "connect_timeout": limit},
        retry_config={"max_retries": 0},
    )


def get(key: str) -> bytes:
    """An object's bytes."""
    return bytes(obstore.get(bucket(), key).bytes())


def put_once(key: str, body: bytes) -> bytes:
    """Write an object unless it is there (`If-None-Match: *`); the bytes that are there now."""
    try:
        obstore.put(bucket(), key, body, mode="create")
    except AlreadyExistsError:
        return get(key)
    return body


def exists(key: str) -> bool:
    """Whether there is such an object."""
    try:
        obstore.head(bucket(), key)
    except FileNotFoundError:
        return False
    return True
