"""`make example-datasets`: a few samples on a real model, then 10,000 on a provider that misbehaves by plan.

Its workers are killed, the provider is down for a while, a folder cannot be written to, a key is withdrawn. What has died is looked at,
mended and driven again. It ends with 0 when everything is as it must be, and with 1 and a sentence when not.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # to be run from any folder

from examples.datasets.provider import FAULTS, PROMPT_CHARS_MAX, Provider
from tests.servers.folder import ProgramFailed
from tests.servers.model import ModelServer
from tests.servers.postgres import free_port
from tests.servers.programs import MissingPart

from perdure.demo import die_with_parent
from perdure.demo.crew import descendants

ROOT = Path(__file__).resolve().parents[2]
SCALE = 0.2  # a gate sees sooner than a sample dies that everything fails
TIMEOUT_S, REAL_TIMEOUT_S = 15.0, 180.0
PATIENCE_S = 900.0
PERDURE = ("perdure.surfaces.cli",)
THINGS = ("The soup at the inn", "The night train", "The annual report", "A goal in the last minute", "My old lamp")  # fmt: skip
ENDS = ("was late and cold again", "made the whole town talk", "cost more than it should have", "is what I will remember")  # fmt: skip
TWICE = ("SELECT count(*) FROM (SELECT 1 FROM perdure_dataset_stages_applied WHERE status = 'success'"
         " GROUP BY sample_id, stage_name, life HAVING count(*) > 1)")  # fmt: skip
KILLED = "SELECT count(*) FROM perdure_dataset_stages_applied WHERE error_kind = 'worker_lost'"
IN_WORK = "SELECT count(*) FROM perdure_dataset_samples WHERE status = 'processing'"
UNKEPT = "SELECT count(*) FROM perdure_dataset_stages_applied WHERE stage_name = 'keep' AND status <> 'success'"


def say(line: str) -> None:
    print(line, flush=True)


def text_of(number: int) -> str:
    return f"{THINGS[number % 5]} number {number} {ENDS[number % 4]}."


def write_source(path: Path, count: int) -> None:
    """Samples by rule: one in a hundred is too long for the model, some are too short to be wanted, and one line is broken."""
    lines = []
    for number in range(count):
        text = text_of(number)
        if number % 100 == 7:
            text = f"{text} " * (PROMPT_CHARS_MAX // len(text) + 1)
        if number % 500 == 11:
            text = "Too short."
        lines.append(json.dumps({"id": f"s{number:05}", "text": text}))
    lines[count // 2] = '{"id": "s'
    path.write_text("\n".join(lines) + "\n")


def too_long(count: int) -> set[str]:
    """The samples that die because they are too long for the model."""
    return {f"s{number:05}" for number in range(7, count, 100)}


def doomed(count: int) -> set[str]:
    """The samples that die because they meet more faults than they have attempts."""
    return {f"s{number:05}" for number in range(13, count, 1_000)}


def plan_faults(provider: Provider, name: str, count: int) -> None:
    """One in twenty meets a fault that passes; one in a thousand meets faults until it is dead, though a kill may hide one."""
    passing = [fault for fault in FAULTS.values() if fault.name != "no answer"]
    for number in range(3, count, 20):
        provider.plan(f"{name}/s{number:05}", passing[number // 20 % len(passing)])
    for id in doomed(count):
        provider.plan(f"{name}/{id}", *[FAULTS["500"]] * 6)
    for number in (1, 2):  # few: each takes the whole timeout
        provider.plan(f"{name}/s{number:05}", FAULTS["no answer"])


class System:
    """The processes of the application, in a folder of its own; none outlives us."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.database = folder, folder / "store.db"
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("PERDURE_")},
            "PYTHONPATH": str(ROOT),
            "PERDURE_STORE": f"sqlite:///{self.database}",
            "PERDURE_LEASE_TTL_S": "5",  # a killed worker is missed sooner
            "DATASETS_STORE": f"sqlite:///{self.database}",
            "DATASETS_FOLDER": str(folder),
            "DATASETS_SCALE": str(SCALE),
            "DATASETS_LLM_KEY": "key-1",
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def point(self, provider: Provider, model: str, timeout_s: float) -> None:
        """Whom workers ask from now on."""
        self.environment |= {
            "DATASETS_LLM_URL": provider.url,
            "DATASETS_LLM_MODEL": model,
            "DATASETS_TIMEOUT_S": str(timeout_s),
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`python -m …`, to its end."""
        return subprocess.run([sys.executable, "-m", *words], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)  # fmt: skip

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """`python -m …` in the background; its output goes to a file of its name."""
        command = [sys.executable, die_with_parent.__file__, str(os.getpid()), sys.executable, "-m", *words]  # fmt: skip
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)  # fmt: skip
        return self._running[name]

    def start_worker(self) -> None:
        """A worker of the samples."""
        self.start("worker", *PERDURE, "worker", "examples.datasets.app:app", "--poll", "0.25")

    def kill(self, name: str) -> None:
        """End a process and all that it has started, at once, as a power cut does."""
        process = self._running.pop(name)
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def stop(self, name: str) -> None:
        """End a process as a machine that shuts down does."""
        process = self._running.pop(name)
        process.terminate()
        process.wait(PATIENCE_S)

    @contextmanager
    def worker(self) -> Iterator[None]:
        """A worker for the time of the block."""
        self.start_worker()
        try:
            yield
        finally:
            self.stop("worker")

    def close(self) -> None:
        """Leave nothing behind."""
        for name in list(self._running):
            self.kill(name)

    def number(self, sql: str) -> int:
        """The answer to a question that one number answers."""
        with closing(sqlite3.connect(self.database)) as connection:
            return int(connection.execute(sql).fetchone()[0])

    def perdure(self, *words: str) -> str:
        """A command of Perdure about the store; what it says is part of the demonstration."""
        done = self.run(*PERDURE, *words)
        for line in (done.stdout + done.stderr).strip().splitlines():
            say(f"    {line}")
        return done.stdout


class Wrong(Exception):
    """Something is not as it must be, and nothing after it makes sense."""


def wait_for(what: str, question: Callable[[], object]) -> None:
    """Look again and again, until it is so."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not question():
        if time.monotonic() > give_up_at:
            raise Wrong(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.05)


class Demonstration:
    """One system, what happens to it, and what is wrong in the end."""

    def __init__(self, system: System, count: int) -> None:
        self.system, self.count, self.source = system, count, system.folder / "reviews.source"
        self.skipped = len(range(11, count, 500))
        self.struck: Counter[str] = Counter()
        self.wrong: list[str] = []

    def expect(self, what: str, found: object, expected: object) -> None:
        """Note what is not as it must be."""
        if found != expected:
            self.wrong.append(f"{what}: {found!r}, and not {expected!r}")

    def build(self, name: str, source: Path, *words: str) -> dict[str, str]:
        """Build a data set, and what was said of it in the end."""
        done = self.system.run("examples.datasets.build", name, str(source), *words)
        for line in done.stderr.splitlines() + done.stdout.splitlines()[:1]:
            say(f"    {line}")
        told = dict(word.split("=") for word in (done.stdout.splitlines() or [""])[0].split())
        return {**told, "exit": str(done.returncode)}

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What is in the JSON lines of a data set; the same must be in its Parquet file."""
        from pyarrow.parquet import read_table

        path = self.system.folder / "datasets" / name
        rows = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
        self.expect(f"both files of {name} have the same rows", read_table(path.with_suffix(".parquet")).to_pylist() == rows, True)  # fmt: skip
        return rows

    # -- what happens ------------------------------------------------------------------------

    def taste_real_model(self, model: ModelServer) -> None:
        """A few samples by the real model."""
        source = self.system.folder / "taste.source"
        source.write_text("".join(json.dumps({"id": f"s{n}", "text": text_of(n)}) + "\n" for n in range(6)))  # fmt: skip
        with Provider("key-1", model.url, model.key) as provider:
            provider.plan("taste/s2", FAULTS["503"])
            self.system.point(provider, "smollm2", REAL_TIMEOUT_S)
            with self.system.worker():
                told = self.build("taste", source)
            self.struck += provider.struck
        for row in self.rows("taste"):
            say(f"  {row['id']}  {row['topic']:<7} “{row['title']}”  {row['words']} words")
        self.expect("samples of the real model", told["succeeded"], "6")

    def build_many(self, provider: Provider) -> None:
        """10,000 samples; workers and the command are killed on the way, and the provider is down for a while."""
        write_source(self.source, self.count)
        plan_faults(provider, "reviews", self.count)
        shards = (self.system.folder / "artifacts" / f"{number:02x}" for number in range(256))
        self.shard = next(one for one in shards if not one.exists())
        self.shard.write_text("in the way")  # so that this one of 256 folders cannot be made
        words = ("examples.datasets.build", "reviews", str(self.source))
        self.system.start_worker()
        self.system.start("build", *words)
        wait_for("a third is done", lambda: len(provider.calls) > self.count // 3)
        self.system.kill("worker")
        while not self.system.number(IN_WORK):  # it rested, as after a 429, and lost nothing
            self.system.start_worker()
            wait_for("samples are in work", lambda: self.system.number(IN_WORK))
            self.system.kill("worker")
        self.system.kill("build")
        say(
            f"  after {len(provider.calls)} calls the worker and the command were killed with SIGKILL; both are started again"
        )
        self.system.start_worker()
        build = self.system.start("build", *words)
        wait_for(
            "two thirds are done", lambda: build.poll() or len(provider.calls) > self.count * 2 // 3
        )
        provider.down = True
        wait_for("calls meet the outage", lambda: provider.struck["outage"] >= 10)
        wait_for("the gate holds", lambda: self.system.number("SELECT count(*) FROM perdure_gates WHERE state <> 'flowing'") > 0)  # fmt: skip
        say(
            f"  the provider is down; after {provider.struck['outage']} calls its queue is held, and nothing is aborted"
        )
        provider.down = False
        say("  the provider is back")
        if build.wait(PATIENCE_S):
            raise Wrong((self.system.folder / "build.log").read_text())
        told = (self.system.folder / "build.log").read_text().splitlines()[-3]
        say(f"    {told}")
        rows = len(self.rows("reviews"))
        dead = self.count - self.skipped - rows
        self.expect("reviews", told, f"status=completed total={self.count} succeeded={rows} failed={dead} dlq={dead} skipped={self.skipped} pending=0")  # fmt: skip

    def check_plan(self, letters: list[dict[str, Any]], before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:  # fmt: skip
        """Exactly those have died that were to die by plan, so nobody of a kill or the outage; all others are in the files."""

        def key(row: dict[str, Any]) -> str:
            return f"reviews/{row['id']}"

        asked = {f"reviews/{id}" for id in too_long(self.count) | doomed(self.count)}
        blocked = {key(row) for row in after if row["artifact"].startswith(self.shard.name)} - asked
        planned = {"pick": {f"reviews:line-{self.count // 2 + 1}"}, "label": asked, "keep": blocked}
        for stage in sorted({*planned, *(one["stage"] for one in letters)}):
            found = {one["key"] for one in letters if one["stage"] == stage}
            self.expect(f"dead letters of {stage} that were not to be, or are missing", sorted(found ^ planned.get(stage, set())), [])  # fmt: skip
        rest = {key(row) for row in after} - {one["key"] for one in letters}
        self.expect("rows before mending that were not to be, or are missing", sorted({key(row) for row in before} ^ rest), [])  # fmt: skip
        say(f"  by plan have died: {len(asked)} of the model, 1 line, and {len(blocked)} of a folder that could not be written to")  # fmt: skip

    def mend(self, provider: Provider) -> None:
        """Look at the dead letters by cause, mend each cause, and drive them again."""
        self.system.perdure("dead", "groups", "--run", "reviews")
        before, letters, corrected = self.rows("reviews"), self.system.folder / "letters.jsonl", self.system.folder / "corrected.jsonl"  # fmt: skip
        self.system.run(*PERDURE, "dead", "export", "--run", "reviews", "-o", str(letters))
        dead = [json.loads(line) for line in letters.read_text().splitlines()]
        say(
            "  the folder can be written to again; those letters go on at their stage, in a run of their own"
        )
        self.shard.unlink()
        self.system.perdure("dead", "redrive", "--run", "reviews", "--stage", "keep", "--yes", "--reason", "the folder is back")  # fmt: skip
        say("  those that have met too many faults are tried again")
        provider.mend()
        self.system.perdure("dead", "redrive", "--run", "reviews", "--text", "Server error", "--yes")  # fmt: skip
        say("  what was too long for the model is shortened, and sent again in bulk")
        long = {f"reviews/{id}" for id in too_long(self.count)}
        found = [one for one in dead if one["key"] in long]
        shortened = ({"key": one["key"], "payload": {**one["item"], "text": one["item"]["text"][:400]}} for one in found)  # fmt: skip
        corrected.write_text("".join(json.dumps(one) + "\n" for one in shortened))
        self.system.perdure("jobs", "retry", "--app", "examples.datasets.app:app", "--pipeline", "samples", "--run", "reviews", "--payloads", str(corrected), "--yes")  # fmt: skip
        say("  the files are written anew")
        told = self.build("reviews", self.source)
        after = self.rows("reviews")
        self.check_plan(dead, before, after)
        rows = self.count - self.skipped - 1
        self.expect("rows after mending", len(after), rows)
        self.expect("reviews after mending", told, {"status": "completed", "total": str(self.count), "succeeded": str(rows), "failed": "1", "dlq": "1", "skipped": str(self.skipped), "pending": "0", "exit": "0"})  # fmt: skip
        say(
            f"  {len(before)} rows before, {told['succeeded']} now; {told['skipped']} were not wanted, 1 line cannot be read"
        )
        self.struck["unreadable line"] += 1

    def break_key(self, provider: Provider) -> None:
        """A key that is withdrawn fails everything: the run is given up early."""
        source = self.system.folder / "broken.source"
        write_source(source, 2_000)
        provider.key = "key-2"
        told = self.build("broken", source)
        provider.key = "key-1"
        self.expect("the exit of a run over its budget", told["exit"], "5")
        self.expect("its status", told["status"], "aborted")
        self.wrong += [] if int(told["pending"]) > 1_000 else [f"not aborted early: {told}"]
        self.system.perdure(
            "runs", "cancel", "broken", "--yes", "--reason", "the key was withdrawn"
        )

    def serve_tenants(self) -> None:
        """Two tenants over HTTP; neither sees the other's."""
        port = free_port()
        self.system.start("api", "uvicorn", "examples.datasets.api:api", "--port", str(port), "--log-level", "warning")  # fmt: skip
        acme, umbrella = (Tenant(self.system, port, name) for name in ("acme", "umbrella"))
        wait_for("the API answers", acme.is_served)
        dataset = acme.call("POST", "/v1/datasets", {"name": "notes"})["id"]
        notes = [{"id": f"n{n}", "text": text_of(n)} for n in range(20)] + [{"id": "n99", "text": 7}]  # fmt: skip
        acme.call("POST", "/v1/samples", {"dataset": dataset, "samples": notes})
        acme.call("POST", f"/v1/datasets/{dataset}/seal")
        wait_for("the tenant's data set ends", lambda: acme.call("GET", f"/v1/datasets/{dataset}")["status"] == "completed")  # fmt: skip
        dead = acme.call("GET", f"/v1/samples?dataset={dataset}&status=dlq")["samples"]
        say(f"  acme: {acme.call('GET', f'/v1/datasets/{dataset}')}")
        say(f"  its dead letter: {dead[0]['dlq_reason']}")
        fixed = {"dataset": dataset, "samples": [{"id": "n99", "text": text_of(99)}]}
        self.expect("samples corrected", acme.call("PUT", "/v1/samples", fixed).get("taken"), 1)
        wait_for("it is corrected", lambda: acme.call("GET", f"/v1/datasets/{dataset}")["succeeded"] == 21)  # fmt: skip
        food = acme.call("GET", f"/v1/datasets/{dataset}/slices?topic=food")["rows"]
        say(f"  corrected and done; {len(food)} rows in its slice about food")
        self.expect("rows about food", len(food), 4)
        self.expect("what another tenant is told", umbrella.call("GET", f"/v1/datasets/{dataset}")["code"], "not_found")  # fmt: skip
        self.system.stop("api")

    def close_books(self, provider: Provider) -> None:
        """The history as a report, the bill, the faults by kind, and the audit."""
        report = self.system.run("examples.datasets.report", "reviews", "--usage", f"{provider.url}/usage?dataset=reviews", "-o", "report.html")  # fmt: skip
        for line in (report.stdout + report.stderr).splitlines():
            say(f"    {line}")
        self.expect("the exit of the report", report.returncode, 0)
        self.expect("pictures in the report", (self.system.folder / "report.html").read_text().count("<svg"), 5)  # fmt: skip
        self.expect("finished stages that were done twice", self.system.number(TWICE), 0)
        self.struck += provider.struck
        self.struck["worker killed"] = self.system.number(KILLED)
        self.struck["folder not writable"] = self.system.number(UNKEPT)
        kinds = [*FAULTS, "prompt too long", "outage", "wrong key", "worker killed", "folder not writable", "unreadable line"]  # fmt: skip
        say("faults struck: " + ", ".join(f"{kind} {self.struck[kind]}" for kind in kinds))
        self.wrong += [f"the fault {kind!r} struck nobody" for kind in kinds if not self.struck[kind]]  # fmt: skip
        audit = self.system.run(*PERDURE, "audit")
        say(f"books: {(audit.stdout or audit.stderr).strip()}")
        self.expect("the exit of the audit", audit.returncode, 0)


class Tenant:
    """The API as a tenant speaks with it."""

    def __init__(self, system: System, port: int, name: str) -> None:
        scopes = [word for scope in ("submit", "read", "operate") for word in ("--scope", scope)]
        made = system.run(*PERDURE, "token", "create", "--name", name, "--owner", name, *scopes)
        self.url = f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {made.stdout.strip()}", "X-Tenant-Id": name}

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """What an endpoint answers."""
        sent = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.url}{path}", sent, self.headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as refused:
            told = json.load(refused)
        return dict(told)

    def is_served(self) -> bool:
        """Whether there is an answer at all."""
        with suppress(urllib.error.URLError):
            return "datasets" in self.call("GET", "/v1/datasets")
        return False


def play(folder: Path, count: int) -> int:
    """The demonstration, from the first server to the last sum."""
    begun = time.monotonic()
    with ExitStack() as stack:
        system = System(folder)
        stack.callback(system.close)
        shown = Demonstration(system, count)
        say(
            f"waits of the document × {SCALE:g}, for this demonstration only: 1 → {SCALE:g} s, 2 → {2 * SCALE:g} s, ± 25 %"
        )
        say("six samples by a real model (SmolLM2-135M)")
        with ModelServer() as model:
            shown.taste_real_model(model)
        provider = stack.enter_context(Provider("key-1"))
        system.point(provider, "scripted", TIMEOUT_S)
        say(
            f"{count} samples by a provider with faults: 1 % are too long for it, 5 % meet a fault that passes"
        )
        shown.build_many(provider)
        say("dead letters, by cause")
        shown.mend(provider)
        say("2000 samples with a key that was withdrawn")
        shown.break_key(provider)
        say("two tenants over HTTP")
        shown.serve_tenants()
        say("the history, and the bill")
        shown.close_books(provider)
        system.stop("worker")
    for one in shown.wrong:
        say(f"WRONG: {one}")
    if not shown.wrong:
        say(f"everything is as it must be, after {time.monotonic() - begun:.0f} s")
    return 1 if shown.wrong else 0


def main() -> int:
    """What the demonstration ends with; what cannot be started is told in a sentence."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--samples", type=int, default=10_000, help="how many (10000)")
    count = options.parse_args().samples
    if count < 2_000 or count % 1_000:
        options.error("--samples: thousands, and 2000 at least; else some faults find nobody to strike")  # fmt: skip
    try:
        with TemporaryDirectory(prefix="perdure-datasets-") as folder:
            return play(Path(folder), count)
    except (MissingPart, ProgramFailed) as missing:
        say(f"it cannot be played here: {missing}")
        return 2
    except Wrong as wrong:
        say(f"WRONG: {wrong}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
