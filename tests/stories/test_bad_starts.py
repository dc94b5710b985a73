"""A worker that cannot work says why in one line, with a status that says whose fault it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories.kit import CLI, Story, processes, until

pytestmark = pytest.mark.story

# Root may write anywhere; without this capability it may write only what it has the right to.
WITHOUT_OVERRIDE = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
if os.geteuid() == 0 and ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0:
    sys.exit(99)
os.execv(sys.executable, sys.argv[1:])
"""

APP = """
import perdure
app = perdure.App()
@app.stage()
def only(item):
    return item
app.pipeline("one", only)
"""


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """One line, the right status, and no stack trace."""
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("perdure: ")
    for word in words:
        assert word in line


def nothing_is_left(story: Story) -> None:
    until(
        "no process of the story is left",
        lambda: not [one for one in processes() if story.is_ours(one.pid)],
        within_s=30,
    )


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nosuch:app", ["no module 'nosuch'"]),
        ("work.nosuch:app", ["no module 'work.nosuch'"]),
        ("work:nosuch", ("work", "no app or pipeline 'nosuch'", "it has the apps: app")),
        ("work:walk:app", ["work:walk is no perdure.App"]),
        ("./work.py:app", ["names no module"]),
        (":app", ["names no module"]),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(story, reference, words):
    refused(story.perdure("worker", reference), 2, *words)
    nothing_is_left(story)


def test_an_app_without_a_pipeline_is_refused(story):
    (story.folder / "empty.py").write_text("import perdure\napp = perdure.App()\n")
    refused(story.perdure("worker", "empty:app"), 2, "empty:app", "no pipeline")
    nothing_is_left(story)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise RuntimeError('mine')", "RuntimeError at works.py:1: mine"),
        ("\nimport json\njson.loads('{')", "JSONDecodeError at works.py:3: Expecting"),
        (
            "import nosuch_dependency",
            "ModuleNotFoundError at works.py:1: No module named 'nosuch_d",
        ),
        ("import wor", "ModuleNotFoundError at works.py:1: No module named 'wor'"),
        ("def broken(:", "SyntaxError at works.py:1: invalid syntax"),
    ],
    ids=[
        "it raises",
        "a library raises",
        "a missing module",
        "one of a similar name",
        "its syntax",
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_own_line(story, text, words):
    (story.folder / "works.py").write_text(text)
    refused(story.perdure("worker", "works:app"), 2, f"works:app cannot be loaded: {words}")
    refused(story.perdure("enqueue", "works:app", "1"), 2, words)
    nothing_is_left(story)


@pytest.mark.parametrize("status", [0, 1])
def test_a_module_that_ends_the_process_is_refused(story, status):
    (story.folder / "ends.py").write_text(f"import sys\nsys.exit({status})")
    refused(story.perdure("worker", "ends:app"), 2, "ends:app cannot be loaded")
    nothing_is_left(story)


def test_a_module_that_talks_and_leaves_a_thread_running_is_accepted(story):
    (story.folder / "talks.py").write_text(
        APP + "import threading, time\nprint('hello')\n"
        "threading.Thread(target=lambda: time.sleep(3600)).start()\nprint('no end of line', end='')"
    )
    done = story.perdure("worker", "talks:app", "--lease-ttl", "0.1")
    refused(done, 2, "lease_ttl_s", "at least 0.3")
    done = story.perdure("worker", "talks:app", PERDURE_STORE="sqlite:///nowhere/story.db")
    refused(done, 11, "nowhere/story.db")
    nothing_is_left(story)


@pytest.mark.parametrize(
    ("flag", "value", "word"),
    [
        ("--concurrency", "0", "concurrency"),
        ("--grace", "-1", "grace_s"),
        ("--poll", "nan", "poll_s"),
        ("--log-level", "LOUD", "LOUD"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(story, flag, value, word):
    refused(story.perdure("worker", "work:app", flag, value), 2, word)
    nothing_is_left(story)


def test_a_store_in_a_folder_that_does_not_exist_is_refused(story):
    url = f"sqlite:///{story.folder}/nowhere/story.db"
    refused(story.perdure("worker", "work:app", PERDURE_STORE=url), 11, "nowhere", "folder")
    assert not (story.folder / "nowhere").exists()
    nothing_is_left(story)


def test_a_file_that_is_not_a_database_is_refused_and_left_alone(story):
    story.file.write_text("these are my notes, not a database\n" * 40)
    refused(story.perdure("worker", "work:app"), 15, str(story.file), "not an SQLite database")
    assert story.file.read_text().startswith("these are my notes")
    nothing_is_left(story)


def test_a_url_that_is_no_store_is_refused(story):
    refused(story.perdure("worker", "work:app", PERDURE_STORE="mysql://x"), 2, "mysql://x")
    nothing_is_left(story)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_may_not_be_written_is_refused(story, missing, what):
    folder = story.folder / "locked"
    folder.mkdir()
    file = folder / "story.db"
    url = f"sqlite:///{file}"
    assert story.perdure("db", "upgrade", PERDURE_STORE=url).returncode == 0
    for entry in folder.iterdir():
        entry.chmod(0o444)
    if what == "folder":
        for entry in folder.iterdir():
            entry.unlink()
        folder.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_OVERRIDE, *CLI, "worker", "work:app"],
        cwd=story.folder,
        env=story.environment(PERDURE_STORE=url),
        timeout=60,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    folder.chmod(0o755)
    if done.returncode == 99:
        missing("the right to drop CAP_DAC_OVERRIDE")
    refused(done, done.returncode, "locked/story.db")
    assert done.returncode in (11, 14)
    nothing_is_left(story)


def test_a_child_that_can_no_longer_start_is_tried_again_with_growing_pauses(story):
    worker = story.worker("a", lease_s=2.0)
    [job] = story.enqueue("walk", [{"work": {}}])
    story.all_ended(within_s=30)
    module: Path = story.folder / "work.py"
    text = module.read_text()
    module.write_text("raise RuntimeError('mended soon')")
    os.kill(worker.child("main").pid, 9)
    until(
        "four children have failed to start",
        lambda: worker.log.read_text().count("RuntimeError at work.py:1: mended soon") >= 4,
        within_s=60,
    )
    starts = story.rows("SELECT started_at FROM perdure_workers ORDER BY no")
    last_two = [row[0] / 1e6 for row in starts][-2:]
    assert last_two[1] - last_two[0] > 0.5
    module.write_text(text)
    [second] = story.enqueue("walk", [{"work": {}}])
    until("the mended worker works", lambda: story.job(second)["state"] == "succeeded", within_s=60)
    assert story.job(job)["crashes"] == story.job(second)["crashes"] == 0
    story.assert_audit_is_clean()
