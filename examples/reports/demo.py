"""`make example-reports`: start every part, upload the transcripts, say what became of each, and close the books.

With --faults the lines to the model and to S3 misbehave by plan, the database is restarted and a worker killed.
It ends with 0 when everything is as it must be, and with 1 and a sentence when not.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # to be run from any folder

from examples.reports.faults import FAULTS, Fault
from examples.reports.parts import MissingPart, NotStarted, ProgramFailed, System, running

TRANSCRIPTS = Path(__file__).with_name("transcripts")
SCALE = 0.02
TIMEOUT_S = 180.0  # the document's
TIMEOUT_FAULTS_S = 60.0  # one that a demonstration can wait for
DOCUMENT_S = (30, 120, 480)
PATIENCE_S = 1_200.0
ENDED = ("succeeded", "failed")
VALID_SHARE_MIN = 0.8

# Which file meets what. The last two at the model are fatal, as the document says; everything else is tried again.
AT_THE_MODEL = {
    "standup.en.txt": "429 with a hint",
    "support-call.en.txt": "429 without a hint",
    "interview.en.txt": "500",
    "planung.de.txt": "503",
    "reunion.es.txt": "connection reset",
    "huiyi.zh.txt": "slow answer",  # the first to be uploaded, since it takes longest
    "lecture.en.txt": "worker killed",
    "kundengespraech.de.txt": "cut-off JSON",
    "riunione.it.txt": "wrong schema",
}
AT_S3 = {
    "intervyu.ru.txt": "S3 SlowDown at a read",
    "visite.fr.txt": "S3 SlowDown at a write",
    "soveshchanie.ru.txt": "database restart",
}
FATAL = {"cut-off JSON": "llm_output_invalid_json", "wrong schema": "schema_validation_failed"}


def main() -> int:
    """What the demonstration ends with; what cannot be started is told in a sentence."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--faults", action="store_true", help="let everything misbehave by plan")
    with_faults = options.parse_args().faults
    sys.stdout.reconfigure(errors="replace")  # titles are in seven languages
    try:
        return play(with_faults=with_faults)
    except (MissingPart, ProgramFailed, NotStarted) as missing:
        say(f"it cannot be played here: {missing}")
        return 2
    except KeyboardInterrupt:
        return 130


def play(*, with_faults: bool) -> int:
    """The demonstration, from the first server to the last sum."""
    begun = time.monotonic()
    say("starting PostgreSQL, S3 (SeaweedFS), a model (SmolLM2-135M), the API and a worker")
    timeout_s = TIMEOUT_FAULTS_S if with_faults else TIMEOUT_S
    with running(timeout_s=timeout_s, scale=SCALE) as system:
        say(f"all of it answers after {time.monotonic() - begun:.0f} s")
        waits = " / ".join(f"{one:g} → {one * SCALE:g} s" for one in DOCUMENT_S)
        say(f"waits of the document × {SCALE:g}, for this demonstration only: {waits}, ± 20 %")
        if with_faults:
            plan_faults(system)
        owner = Client(system.url, system.token("ann", "submit", "read", owner="ann"))
        ended = follow(owner, upload_all(owner))
        wrong = [*complaints(system, ended, with_faults=with_faults), *close_books(system)]
    for one in wrong:
        say(f"WRONG: {one}")
    if not wrong:
        say(f"everything is as it must be, after {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


def say(line: str) -> None:
    print(line, flush=True)


class Client:
    """The API as its users speak with it."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def call(self, path: str, body: bytes | None = None, **headers: str) -> Any:
        """What an endpoint answers. One that says 503 is asked again: the database may be on its way up."""
        said = {"Authorization": f"Bearer {self.token}", **headers}
        give_up_at = time.monotonic() + 60.0
        while True:
            try:
                asked = urllib.request.Request(f"{self.url}{path}", body, said)
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as refused:
                if refused.code != 503 or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.5)


def plan_faults(system: System) -> None:
    """Hand the plan to the two lines. A fatal fault strikes each attempt: the first may be lost with the worker."""
    reset, restart = FAULTS["connection reset"].answer, lambda: system.postgres.restart("immediate")
    killed = Fault("worker killed", reset, system.kill_working_process)
    faults = {
        **FAULTS,
        killed.name: killed,
        "database restart": Fault("database restart", act=restart),
    }
    for file, name in AT_THE_MODEL.items():
        system.model_line.plan("POST", file, *[faults[name]] * (4 if name in FATAL else 1))
    for file, name in AT_S3.items():
        request = ("GET", file) if name.endswith("read") else ("PUT", f"{file}.json")
        system.s3_line.plan(*request, faults[name])


def upload_all(owner: Client) -> dict[str, str]:
    """Upload every transcript; the names by id."""
    names: dict[str, str] = {}
    for one in sorted(TRANSCRIPTS.glob("*.txt")):
        path = f"/api/files/upload?name={quote(one.name)}"
        file = owner.call(path, one.read_bytes(), **{"X-Request-Id": one.name})
        names[file["id"]] = one.name
    say(f"uploaded {len(names)} transcripts")
    return names


def follow(owner: Client, names: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Wait until something has become of every file, and say what; the files by name."""
    ended: dict[str, dict[str, Any]] = {}
    give_up_at = time.monotonic() + PATIENCE_S
    while len(ended) < len(names) and time.monotonic() < give_up_at:
        for file in owner.call("/api/files?limit=200")["files"]:
            if file["status"] in ENDED and file["name"] not in ended:
                ended[file["name"]] = owner.call(f"/api/files/{file['id']}")
                say(line_about(owner, ended[file["name"]]))
        time.sleep(0.3)
    return ended


def line_about(owner: Client, file: dict[str, Any]) -> str:
    work = file["processing"]
    tries = f"{work['attempts']} of {work['max_attempts']}"
    told = file["error_code"]
    if file["status"] == "succeeded":
        report = owner.call(f"/api/files/{file['id']}/report")["report"]
        told = f"“{report['title']}”, {report['sentiment']}"
    return f"  {file['name']:<24} {file['status']:<10} attempt {tries}  {told}"


def complaints(
    system: System, ended: dict[str, dict[str, Any]], *, with_faults: bool
) -> Iterator[str]:
    """What became of the files and should not have."""
    plan = {**AT_THE_MODEL, **AT_S3} if with_faults else {}
    for name in (one.name for one in TRANSCRIPTS.glob("*.txt")):
        expected = FATAL.get(plan.get(name, ""))
        file = ended.get(name, {"status": "not ended", "error_code": None})
        as_planned = ("failed" if expected else "succeeded", expected)
        if (file["status"], file["error_code"]) != as_planned:
            yield f"{name} is {file['status']} ({file['error_code']})"
    succeeded = sum(one["status"] == "succeeded" for one in ended.values())
    say(f"{succeeded} of {len(ended)} gave a valid report")
    if not with_faults and succeeded < VALID_SHARE_MIN * len(ended):
        yield f"less than {VALID_SHARE_MIN:.0%} gave a valid report"
    struck: Counter[str] = system.model_line.struck + system.s3_line.struck
    if with_faults:
        say("faults struck: " + ", ".join(f"{name} {count}" for name, count in struck.items()))
        missed = set(plan.values()) - set(struck)
        yield from (f"the fault {name!r} struck nobody" for name in missed)


def close_books(system: System) -> Iterator[str]:
    """Say the numbers to be watched, look for orphans, and prove that every job is accounted for."""
    operator = Client(system.url, system.token("operator", "read_all"))
    for name, number in operator.call("/api/monitoring").items():
        say(f"  {name:<26} {number}")
    orphans = system.run("examples.reports.orphans", "--age-s", "0")
    say("orphans: " + (orphans.stdout.strip().replace("\n", "; ") or "none"))
    if orphans.returncode:
        yield f"there are orphans, or they could not be looked for: {orphans.stderr.strip()}"
    audit = system.perdure("audit")
    say(f"books: {audit.stdout.strip() or audit.stderr.strip()}")
    if audit.returncode:
        yield "the books do not balance"


if __name__ == "__main__":
    sys.exit(main())
