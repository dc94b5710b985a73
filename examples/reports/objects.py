"""Objects in S3. Nothing is written twice: whoever comes second finds the first and keeps it."""

from datetime import timedelta
from functools import cache

import obstore
from examples.reports.settings import S3_BUCKET, S3_KEY, S3_SECRET, S3_URL, SETTINGS, TIMEOUT_S
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

UPLOADS, REPORTS = "uploads/", "reports/"


@cache
def bucket() -> S3Store:
    """The bucket; its client tries nothing again by itself, and waits no longer than a stage does."""
    return S3Store(
        SETTINGS[S3_BUCKET],
        endpoint=SETTINGS[S3_URL],
        access_key_id=SETTINGS[S3_KEY],
        secret_access_key=SETTINGS[S3_SECRET],
        region="us-east-1",
        client_options={"allow_http": True, "timeout": timedelta(seconds=SETTINGS[TIMEOUT_S])},
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
