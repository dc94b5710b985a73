"""The gateway on a bad day: every part is started, users ask, and a provider fails in each way that it knows.

``make example-gateway`` runs it. Two providers answer: a small real language model, and a scripted one that fails by order of the
prompt. In the end each request must have come to what the document says of its code, every fault must have struck, the provider must have counted no
call that is no attempt, and the books must balance; otherwise it ends with status 1.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from examples.converter.demo import Parts
from tests.servers.model import ModelServer
from tests.servers.postgres import free_port

from perdure import App

from .scripted import KEY

PACKAGE = __package__
PATIENCE_S = 300.0
SCHEMA = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}
TEXT = "text"
STORM, REFUSALS = 20, 8
FAULTS = ("429", "302", "401", "422", "500", "503", "hang", "nonsense", "drift", "cut", "loud", "worker killed", "no key")  # fmt: skip


@dataclass
class Wish:
    """A request, and what must become of it: a text, or one of these codes."""

    prompt: str
    provider: str
    ends: tuple[str, ...] = (TEXT,)
    later: bool = False
    joins: int = 0  # tries that come to a call which is under way
    more: dict[str, Any] = field(default_factory=dict)
    status: int = 0
    job: str = ""
    end: str = ""
    tries: int = 0


def wishes() -> list[Wish]:
    """What users ask for, but for the storm and the call in which the worker is killed."""
    form = {"schema": SCHEMA, "maxTokens": 48}
    return [
        Wish("Write one short sentence about rain.", "local"),
        Wish("Write one short sentence about snow.", "local", later=True),
        Wish(
            "A line about wind, as JSON.",
            "local",
            more=form,
            ends=(TEXT, "INVALID_UPSTREAM_RESPONSE"),
        ),
        Wish("script: 503, ok | down for a moment", "cloud"),
        Wish("script: 500, 500, ok | down for longer", "cloud"),
        Wish("script: nonsense, ok | no completion", "cloud"),
        Wish("script: drift, cut, ok | another form", "cloud", more=form),
        Wish("script: hang, ok | slow", "hasty"),
        Wish("script: 429 after=1, ok | a rate limit", "cloud"),
        Wish("script: 429 date=2, ok | until a date", "cloud", later=True),
        Wish("script: loud | an error that breaks the schema", "cloud", ("INTERNAL_ERROR",)),
        Wish("script: loud, ok | the same, in the worker", "cloud", later=True),
        Wish("script: 302 | a status without a name", "cloud", ("UNKNOWN",)),
        Wish("script: 401 | a wrong key", "cloud", ("CONFIG_MISSING",)),
        Wish("script: 422 | refused", "cloud", ("INVALID_REQUEST",), later=True),
        Wish(
            "script: 500 | down for good, and costly",
            "spare",
            ("UPSTREAM_ERROR",),
            later=True,
            more={"costly": True},
        ),
        Wish("script: ok | no key", "unset", ("CONFIG_MISSING",)),
    ]


class BadDay:
    """The services, and what users meet."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._ports = {name: free_port() for name in ("scripted", "gateway", "api")}
        self._store = f"sqlite:///{folder / 'perdure.db'}"
        self.complaints: list[str] = []
        self.faults: Counter[str] = Counter()

    def live(self) -> list[Wish]:
        """From the start of the first part to the end of the last."""
        with ExitStack() as stack:
            self._say("starting the model, a scripted provider, the gateway, the API and a worker")
            model = stack.enter_context(ModelServer())
            environment = self._environment(model)
            parts = stack.enter_context(Parts(environment, self._folder))
            for name, factory in (
                ("scripted", "scripted:make_provider"),
                ("gateway", "gateway:make_gateway"),
                ("api", "api:make_api"),
            ):
                quiet = ("--log-level", "warning", "--port", str(self._ports[name]))
                parts.start(name, "uvicorn", "--factory", f"{PACKAGE}.{factory}", *quiet)
            worker = ("perdure.surfaces.cli", "worker", f"{PACKAGE}.worker:app")
            parts.start("worker", *worker, "--poll", "0.2", "--log-format", "json")
            self._api = stack.enter_context(
                httpx2.Client(base_url=self._address("api"), timeout=PATIENCE_S)
            )
            self._wait("the services answer", self._answer)
            self._app = App(self._store)
            stack.callback(self._app.close)
            asked = self._suffer(parts)
            self._take_stock(asked)
            self.complaints += told_keys(self._folder, environment)
            return asked

    def _suffer(self, parts: Parts) -> list[Wish]:
        asked = wishes()
        self._say(f"{len(asked)} requests, to a real model and to one that fails by script")
        self._ask(asked)
        # The storm refuses whoever calls: a retry of these would take a refusal away from it.
        self._wait("all have ended", lambda: all(self._look(one) for one in asked))
        self._say(f"a storm: {STORM} requests at once, {REFUSALS} of them are refused with a 429")
        storm = {"refusals": REFUSALS, "after": "1"}
        httpx2.post(f"{self._address('scripted')}/storm", json=storm)
        crowd = [Wish(f"storm {n}", "busy", (TEXT, "RATE_LIMITED")) for n in range(STORM)]
        self._ask(crowd)
        asked += crowd
        self._wait("all have ended", lambda: all(self._look(one) for one in asked))
        self._say(
            "a worker is killed with SIGKILL while it waits for a call; the next one joins it"
        )
        victim, hits = [Wish("script: hold | killed", "cloud", later=True, joins=1)], self._hits()
        self._ask(victim)
        self._wait("the call is made", lambda: self._calls().get(victim[0].prompt, 0) == 1)
        kill_working_process(parts.pids("worker"))
        self._wait("the next one waits for it, too", lambda: self._hits() > hits)
        httpx2.post(f"{self._address('scripted')}/release")
        asked += victim
        self._wait("all have ended", lambda: all(self._look(one) for one in asked))
        self._say(f"asked again, {asked[0].prompt!r} is answered from the cache")
        again = self._post(asked[0])
        if again.status_code != 200 or not again.json().get("cached"):
            self.complaints.append(f"the same request again: {again.text[:200]}")
        return asked

    def _ask(self, some: list[Wish]) -> None:
        def ask(one: Wish) -> None:
            answer = self._post(one)
            one.status, told = answer.status_code, answer.json()
            if one.status == 202:
                one.job = told["job"]
            else:
                one.end = TEXT if one.status == 200 else told["error"]["code"]

        with ThreadPoolExecutor(len(some)) as users:
            list(users.map(ask, some))

    def _post(self, one: Wish) -> httpx2.Response:
        body = {"prompt": one.prompt, "provider": one.provider, **one.more}
        headers = {"prefer": "respond-async"} if one.later else {}
        return self._api.post("/v1/ai/generate-text", json=body, headers=headers)

    def _look(self, one: Wish) -> bool:
        if not one.end:
            answer = self._api.get(f"/v1/ai/jobs/{one.job}")
            if answer.status_code != 202:
                told = answer.json()
                one.end = TEXT if answer.status_code == 200 else told["error"]["code"]
        return bool(one.end)

    # -- what it all came to -------------------------------------------------------------

    def _take_stock(self, asked: list[Wish]) -> None:
        attempts = {
            json.loads(job.payload_json)["prompt"]: self._app.job(job.id).attempts()
            for job in self._app.jobs.list(limit=1_000)
        }
        calls = self._calls()
        for one in asked:
            one.tries = len(attempts[one.prompt])
            if one.end not in one.ends:
                self.complaints.append(f"{one.prompt!r} ended with {one.end}, not {one.ends}")
            met = 0 if one.provider == "unset" else one.tries - one.joins
            if one.provider != "local" and calls.get(one.prompt, 0) != met:
                said = f"{calls.get(one.prompt, 0)} calls for {one.tries} tries of {one.prompt!r}"
                self.complaints.append(said)
        self.faults.update(httpx2.get(f"{self._address('scripted')}/faults").json())
        statuses = [one.status for tried in attempts.values() for one in tried]
        self.faults["worker killed"] = statuses.count("interrupted")
        self.faults["no key"] = sum(one.end == "CONFIG_MISSING" and one.provider == "unset" for one in asked)  # fmt: skip
        self.complaints += [f"no fault: {one}" for one in FAULTS if not self.faults[one]]
        storm = sum(count for prompt, count in calls.items() if prompt.startswith("storm"))
        texts = sum(one.end == TEXT for one in asked if one.provider == "busy")
        self._say(f"the storm cost {storm} calls: {REFUSALS} refusals and {texts} texts")
        if storm != REFUSALS + texts:
            self.complaints.append(f"{storm} calls in a storm of {REFUSALS} refusals")
        self.complaints += self._books(asked)

    def _books(self, asked: list[Wish]) -> list[str]:
        ended = Counter("succeeded" if one.end == TEXT else "failed" for one in asked)
        found = Counter(job.state.value for job in self._app.jobs.list(limit=1_000))
        found["succeeded"] -= 1  # the one that was asked twice
        self._say(f"books: accepted {len(asked)} = {ended['succeeded']} texts + {ended['failed']} failed")  # fmt: skip
        audit = subprocess.run(
            [sys.executable, "-m", "perdure.surfaces.cli", "audit", "--store", self._store],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = (audit.stdout + audit.stderr).strip().splitlines() or ["nothing"]
        self._say(f"the audit says: {lines[-1]}")
        wrong = [] if found == ended else [f"the store has {dict(found)}, users {dict(ended)}"]
        return wrong if audit.returncode == 0 else [*wrong, *lines]

    # -- parts ---------------------------------------------------------------------------

    def _environment(self, model: ModelServer) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PERDURE_")}
        scripted = {"URL": f"{self._address('scripted')}/v1", "KEY": KEY, "MODEL": "scripted"}
        local = {"URL": model.url, "KEY": model.key, "MODEL": "smollm2", "TIMEOUT_MS": "240000"}
        providers = {
            "LOCAL": local,
            "CLOUD": scripted | {"TIMEOUT_MS": "120000"},
            "BUSY": scripted,
            "SPARE": scripted,
            "HASTY": scripted | {"TIMEOUT_MS": "1500"},
            "UNSET": scripted | {"KEY": ""},
        }
        told = {f"AI_{name}_{one}": text for name, all_ in providers.items() for one, text in all_.items()}  # fmt: skip
        return {
            **kept,
            **told,
            "AI_PROVIDERS": ",".join(providers).lower(),
            "AI_GATEWAY_URL": self._address("gateway"),
            "AI_GATEWAY_TIMEOUT_MS": "250000",
            "AI_WAIT_MS": "20000",
            "PERDURE_STORE": self._store,
            "PERDURE_LEASE_TTL_S": "3",
        }

    def _address(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def _answer(self) -> bool:
        with suppress(httpx2.TransportError):
            paths = (f"{self._address('scripted')}/calls", f"{self._address('gateway')}/healthz")
            addresses = (*paths, f"{self._address('api')}/healthz")
            return all(httpx2.get(one).status_code == 200 for one in addresses)
        return False

    def _calls(self) -> dict[str, int]:
        found: dict[str, int] = httpx2.get(f"{self._address('scripted')}/calls").json()
        return found

    def _hits(self) -> int:
        told = httpx2.get(f"{self._address('gateway')}/v1/ai/status", timeout=PATIENCE_S).json()
        return int(told["cache"]["hits"])

    def _wait(self, what: str, question: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not question():
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}")
            time.sleep(0.1)


def told_keys(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Where a log has a key in it that some process was given."""
    keys = {text: name for name, text in environment.items() if re.fullmatch("AI_.+_KEY", name)}
    logs = [(one.name, one.read_text()) for one in folder.glob("*.log")]
    return [f"{log} has {keys[key]} in it" for log, text in logs for key in keys if key and key in text]  # fmt: skip


def kill_working_process(pids: list[int]) -> None:
    """Kill the process that works, as the kernel does when memory runs out; its supervisor starts another."""
    for pid in pids:
        if b"worker-child" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise ProcessLookupError("no process of the worker works")


def main() -> int:
    """Live through a bad day and tell what became of each request."""
    begun_s = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun_s:6.1f} s  {line}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        day = BadDay(Path(folder), say)
        asked = day.live()
    print()
    for one in asked:
        where = "worker" if one.later else "API"
        tries = f"{one.tries} {'try' if one.tries == 1 else 'tries'}"
        print(f"  {where:6} {one.status}  {one.end:26} {tries:8} {one.provider:6} {one.prompt}")
    print(f"\nfaults that struck: {', '.join(f'{one} {day.faults[one]}' for one in FAULTS)}")
    for complaint in day.complaints:
        print(f"NOT AS PROMISED: {complaint}")
    if not day.complaints:
        print("everything is as promised")
    return 1 if day.complaints else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
