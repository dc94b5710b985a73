"""The S3 server that tests and examples run on: it keeps conditions, refuses strangers, and leaves nothing behind."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from tests.servers import guard
from tests.servers.folder import wait_until_gone
from tests.servers.s3 import S3Server

obstore = pytest.importorskip("obstore")
stores = pytest.importorskip("obstore.store")


def bucket(s3: S3Server, **other: str):
    access = {"access_key_id": s3.key, "secret_access_key": s3.secret, **other}
    settled = {"endpoint": s3.url, "region": "us-east-1", "retry_config": {"max_retries": 0}}
    options = {"allow_http": True, "timeout": "60s"}
    return stores.S3Store("servers", **access, **settled, client_options=options)


def test_an_object_is_written_once_where_that_is_asked_for(s3):
    first = bucket(s3)
    obstore.put(first, "once/отчёт 1.txt", b"first", mode="create")
    with pytest.raises(Exception, match="already exists"):
        obstore.put(first, "once/отчёт 1.txt", b"second", mode="create")
    assert bytes(obstore.get(first, "once/отчёт 1.txt").bytes()) == b"first"
    assert [one["path"] for one in obstore.list(first, prefix="once/").collect()] == [
        "once/отчёт 1.txt"
    ]


def test_a_wrong_secret_opens_nothing(s3):
    with pytest.raises(Exception, match=r"403|SignatureDoesNotMatch"):
        obstore.put(bucket(s3, secret_access_key="guessed"), "x", b"")


def _start_and_wait(told) -> None:
    server = S3Server()
    server.start()
    told.send((str(server.folder), server.pid))
    signal.pause()


@pytest.mark.long
def test_a_killed_process_leaves_no_server_and_no_folder():
    hear, told = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_start_and_wait, args=(told,))
    process.start()
    folder, pid = hear.recv()
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    wait_until_gone(Path(folder))
    assert guard.command_of(pid) == ""
    hear.close()
    told.close()
