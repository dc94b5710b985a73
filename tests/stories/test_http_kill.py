"""A server that is killed in the middle of uploads: what it has accepted is there, and nothing is there twice.

Clients go on as the how-to says: a run by its name, jobs by their keys. Who sends no key does not know about the request that
was cut off, and loses none of those that were answered.
"""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from perdure.app.surface.access import create_token
from perdure.model.operations import Deed
from tests.stories.kit import CLI, Story, on_both_long, until

pytestmark = pytest.mark.story

PIECE = 10  # items of a run in one request


class Served:
    """`perdure serve`, which is killed and started again, and a client's way to it."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._popen: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.lives = 0
        self.answered = 0
        self.cut = 0
        with story._loaded("work") as app:
            app.ready()
            self._token, _ = create_token(
                app._session,
                name="web",
                owner="ann",
                scopes=["submit", "read"],
                expires=None,
                deed=Deed("test", ""),
            )

    def start(self) -> None:
        self.lives += 1
        log = self._story.folder / f"serve-{self.lives}.log"
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                [*CLI, "serve", "work:app", "--port", "0"],
                cwd=self._story.folder,
                env=self._story.environment(),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        found = until(
            "it serves", lambda: re.search(r"127\.0\.0\.1:(\d+)/api", log.read_text()), within_s=60
        )
        self.port = int(found[1])

    def kill(self) -> None:
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait(30)

    def ask(self, path: str, body: bytes | list[bytes], **headers: str) -> Any:
        """The answer; an error where the server died before it."""
        line = HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {
            "authorization": f"Bearer {self._token}",
            "content-type": "application/json",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        try:
            line.request("POST", path, body, headers)
            answer = line.getresponse()
            told = json.loads(answer.read())
        finally:
            line.close()
        assert answer.status < 300, told
        self.answered += 1
        return told

    def insist(self, path: str, body: bytes | list[bytes], **headers: str) -> Any:
        """The answer, however often it has to be sent."""
        give_up_at = time.monotonic() + 120
        while True:
            try:
                return self.ask(path, body, **headers)
            except (OSError, HTTPException):
                self.cut += 1
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.05)


def encode(told: Any) -> bytes:
    return json.dumps(told).encode()


def feed_run(served: Served, items: int) -> None:
    """Piece by piece, each in several chunks, so that a kill may fall between them; begun anew before every piece."""
    asked = encode({"pipeline": "walk", "name": "nightly"})
    for begin in range(0, items, PIECE):
        lines = [
            encode({"key": f"item-{n}", "item": {"work": {}}}) + b"\n"
            for n in range(begin, begin + PIECE)
        ]
        run = served.insist("/api/runs", asked)["id"]
        told = served.insist(f"/api/runs/{run}/items", lines, content_type="application/x-ndjson")
        assert told["created"] + told["known"] == PIECE
    run = served.insist("/api/runs", asked)["id"]
    served.insist(f"/api/runs/{run}/seal", b"")


def send_keyed(served: Served, jobs: int, accepted: list[str]) -> None:
    body = encode({"pipeline": "walk", "item": {"work": {}}})
    for n in range(jobs):
        told = served.insist("/api/jobs", body, idempotency_key=f"order-{n}")
        accepted.append(told["job"]["id"])


def send_plain(served: Served, jobs: int, accepted: list[str]) -> None:
    """Until so many were accepted; one that was cut off is not sent again."""
    body = encode({"pipeline": "walk", "item": {"work": {}}})
    while len(accepted) < jobs:
        try:
            accepted.append(served.ask("/api/jobs", body)["job"]["id"])
        except (OSError, HTTPException):
            served.cut += 1
            time.sleep(0.05)


def play(story: Story, *, size: int, kills: int) -> None:
    """Three clients upload at once, and the server is killed again and again, each time later in their work."""
    served = Served(story)
    try:
        _upload_and_kill(served, story, size, kills)
    finally:
        served.kill()


def _upload_and_kill(served: Served, story: Story, size: int, kills: int) -> None:
    served.start()
    keyed: list[str] = []
    plain: list[str] = []
    errors: list[BaseException] = []

    def guard(upload: Callable[..., None], *args: Any) -> Callable[[], None]:
        def run() -> None:
            try:
                upload(served, size, *args)
            except BaseException as error:
                errors.append(error)

        return run

    uploads = [guard(feed_run), guard(send_keyed, keyed), guard(send_plain, plain)]
    threads = [threading.Thread(target=one) for one in uploads]
    for one in threads:
        one.start()
    for n in range(1, kills + 1):
        due = n * size // (kills + 1)
        until(f"kill {n} is due", lambda due=due: errors or len(keyed) >= due, within_s=120)
        served.kill()
        served.start()
    for one in threads:
        one.join(300)
    assert errors == []
    assert served.cut >= kills
    assert_all_is_there(story, size, keyed, plain)
    taken = story.perdure("serve", "work:app", "--port", str(served.port))
    assert taken.returncode == 2
    assert f"--port {served.port}" in taken.stderr
    assert "--port 0" in taken.stderr
    print(f"FIGURE server killed {kills} times: {served.answered} answers, {served.cut} cut off")


def assert_all_is_there(story: Story, size: int, keyed: list[str], plain: list[str]) -> None:
    found = story.rows("SELECT id, key, run FROM perdure_jobs")
    by_key = sorted(row["key"] for row in found if row["key"] and row["run"] is None)
    assert by_key == sorted(f"order-{n}" for n in range(size))
    assert sorted(keyed) == sorted(row["id"] for row in found if row["key"] in set(by_key))
    in_run = sorted(row["key"] for row in found if row["run"] is not None)
    assert in_run == sorted(f"item-{n}" for n in range(size))
    assert set(plain) <= {row["id"] for row in found if row["key"] is None}
    assert len(set(plain)) == size
    runs = story.rows("SELECT name, sealed_at FROM perdure_runs")
    assert [(row["name"], row["sealed_at"] is not None) for row in runs] == [("nightly", True)]
    story.assert_audit_is_clean()


@on_both_long
def test_what_a_killed_server_has_accepted_is_there_and_nothing_is_twice(story):
    play(story, size=40, kills=2)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("story", ["sqlite", "postgres"], indirect=True)
def test_what_a_server_killed_twenty_five_times_has_accepted_is_there(story):
    play(story, size=2_500, kills=25)
