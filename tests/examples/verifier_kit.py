"""A verifier to be tried: its service on the loopback, a daemon.yaml and a store of its own, and workers."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
import yaml
from examples.verifier.app import Poll, Run, Verifier, make_verifier
from examples.verifier.errors import VerifyError
from examples.verifier.runs import RunRow, all_runs
from examples.verifier.samples import category_of, make_submission
from examples.verifier.service import make_service
from examples.verifier.settings import read_settings

from perdure import JobRef
from tests.examples.converter_kit import served, until

NOW = datetime.now(UTC)
SEED = 7


@dataclass
class VerifierTrial:
    """One verifier, and the service that it asks."""

    folder: Path
    service: str
    verifier: Verifier
    client: httpx2.Client
    submitted: dict[str, Run] = field(default_factory=dict)

    def submit(
        self,
        run_id: str,
        sort: str = "good",
        *,
        hours_ago: float = 1.0,
        header: Any = None,
        **run: Any,
    ) -> Run:
        """Somebody submits a run of that sort; what is None of it is left out, with its link the save as well."""
        told = Run(run_id, "burrow", category_of(sort), NOW - timedelta(hours=hours_ago))
        entry = make_submission(run_id, sort, SEED, told.submitted_date, **(header or {}))
        whole = {**entry["run"], **run}
        entry["run"] = {name: value for name, value in whole.items() if value is not None}
        if run.get("link", ...) is None:
            entry["save"] = None
        answer = self.client.post("/submit", json=[entry])
        assert answer.status_code == 202, answer.text
        self.submitted[run_id] = told
        return told

    def order(self, *orders: Mapping[str, Any]) -> None:
        """Tell the service what to do wrong; without any, to be well."""
        answer = self.client.post("/faults", json=list(orders))
        assert answer.status_code == 200, answer.text

    def calls(self, prefix: str) -> list[str]:
        """What was asked of the service, in that order, without the prefix."""
        told = self.client.get("/traffic").json()["calls"]
        return [one.removeprefix(prefix) for one in told if one.startswith(prefix)]

    def discover(self) -> int:
        """As polls do it, a page after the other; how many runs are new. The first error is raised when all are over."""
        found, wrong = 0, []
        for pair in self.verifier.runs:
            poll = Poll(*pair)
            try:
                while poll.page is not None:
                    poll = self.verifier.read(poll)
            except VerifyError as error:
                wrong.append(error)
            found += poll.discovered
        if wrong:
            raise wrong[0]
        return found

    def row(self, run_id: str) -> RunRow:
        return next(one for one in all_runs(self.verifier) if one.run_id == run_id)

    def job(self, run_id: str) -> JobRef:
        return self.verifier.app.job(self.row(run_id).job_id)

    def until_status(self, run_id: str, *statuses: str) -> RunRow:
        """Wait until a run is in one of these."""
        until(f"{run_id} is {statuses}", lambda: self.row(run_id).status in statuses)
        return self.row(run_id)

    @contextmanager
    def working(self, **options: Any) -> Iterator[None]:
        with self.verifier.app.working(poll_s=0.05, queues=["runs"], **options):
            yield


@contextmanager
def verifier_trial(
    folder: Path, service: str | None = None, **keys: Any
) -> Iterator[VerifierTrial]:
    """A verifier with these keys of daemon.yaml beside the defaults."""
    with ExitStack() as stack:
        url = service or stack.enter_context(served(make_service()))
        content = {
            "service": url,
            "database": f"sqlite:///{folder}/verifier.db",
            "data": str(folder / "data"),
            "games": {"burrow": ["any%", "all-gems"]},
            **keys,
        }
        (folder / "daemon.yaml").write_text(yaml.safe_dump(content))
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PERDURE_")}
        where = {**kept, "VERIFIER_CONFIG": str(folder / "daemon.yaml"), "PERDURE_CONFIG": ""}
        stack.enter_context(patch.dict(os.environ, where, clear=True))
        verifier = make_verifier(*read_settings())
        stack.callback(verifier.close)
        client = stack.enter_context(httpx2.Client(base_url=url, verify=False, timeout=60.0))
        yield VerifierTrial(folder, url, verifier, client)
