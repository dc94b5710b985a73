"""One SQL statement a file, read once, named like the file.

What both stores say in the same words stands once, in ``stores/sql``, with parameters written ``:name``; the rest stands in
the ``sql`` folder of each store. ``{name}`` in a statement is a piece that many of them have, above all a list of columns
(`columns.py`); ``{j.name}`` is the same with the name of a table before each column.

The names are declared here, so that a misspelt one is an error of types; a declared name without a file and a file
without a declared name are errors of the import.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import get_type_hints

from perdure.model.errors import BugError

_PIECE = re.compile(r"\{(\w+\.)?(\w+)\}")
_REMARK = re.compile(r"^[ \t]*(?:--.*\n)?", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")


class Statements:
    """The statements that both stores have, whether in the same words or each in its own."""

    access_logins_drop: str
    access_token_add: str
    access_token_by_id: str
    access_token_revoke: str
    access_tokens_list: str
    attempts_ended: str
    attempts_of: str
    beat: str
    begin: str
    bulk_add: str
    bulk_by_id: str
    bulk_change: str
    bulk_lock: str
    bulk_payloads_forget: str
    bulk_payloads_of: str
    bulk_step: str
    bulks_list: str
    bulks_running: str
    cancellable: str
    capture_by_id: str
    captures_of: str
    change_add: str
    change_mark: str
    change_marks_forget: str
    changes: str
    claim: str
    claims: str
    deaths_fold: str
    deeds_add: str
    deeds_of: str
    deeds_page: str
    depths_closed: str
    depths_home: str
    discard: str
    driven: str
    duty_seen: str
    duty_take: str
    enqueue: str
    enqueued_before: str
    expired: str
    failures: str
    fair_owners: str
    flows_fold: str
    failing_since: str
    gate: str
    gate_add: str
    gate_change: str
    gates_list: str
    held: str
    in_own_run: str
    items: str
    items_ended: str
    items_ended_redriven: str
    items_redriven: str
    job_by_id: str
    jobs_ended: str
    jobs_page: str
    lane_add: str
    lane_nos: str
    lanes_behind: str
    lanes_closed_by: str
    lanes_list: str
    lost: str
    mark_dead: str
    overdue: str
    overrun: str
    owner_rate: str
    owner_rate_take: str
    owner_rates_forget: str
    pause_add: str
    pause_drop: str
    pauses_list: str
    payloads_of: str
    promote: str
    prune_artifacts: str
    prune_attempts: str
    prune_captures: str
    prune_changes: str
    prune_checkpoints: str
    prune_jobs: str
    prune_look: str
    prune_payloads: str
    prune_redrives: str
    prune_runs: str
    prune_workers: str
    record: str
    record_done: str
    refusals_page: str
    revive: str
    rivals: str
    run_add: str
    run_by_id: str
    run_by_no: str
    run_change: str
    run_note_check: str
    run_fed: str
    run_found: str
    run_lanes: str
    run_left: str
    run_now: str
    run_seal: str
    runs_live: str
    runs_page: str
    runs_reopen: str
    samples_forget: str
    schedule_drop: str
    schedule_put: str
    schedule_tick: str
    schedules_list: str
    settle_workers: str
    settled_before: str
    slices_add: str
    slices_change: str
    subjects_of_run: str
    suspects: str
    worker_add: str
    worker_alive: str
    worker_end: str
    workers_list: str

    def __init__(
        self,
        package: str,
        pieces: Mapping[str, str],
        shared_text: Callable[[str], str] = str,
    ) -> None:
        """Read the statements of a store; ``shared_text`` says what it makes of those that both share."""
        shared, own = texts("perdure.stores", "sql"), texts(package, "sql")
        check_names(package, get_type_hints(type(self)), shared, own)
        spoken = {name: shared_text(text) for name, text in shared.items()}
        for name, text in (spoken | own).items():
            setattr(self, name, without_remarks(with_pieces(text, pieces)))


def check_names(
    package: str, declared: Mapping[str, object], shared: Mapping[str, str], own: Mapping[str, str]
) -> None:
    """Refuse to start unless each declared statement has exactly one file, and each file a declaration."""
    faults = {
        "no file": set(declared) - set(shared) - set(own),
        "a file and no declaration": (set(shared) | set(own)) - set(declared),
        "two files": set(shared) & set(own),
    }
    told = [f"{name} has {fault}" for fault, names in faults.items() for name in sorted(names)]
    if told:
        raise BugError(f"the SQL statements of {package} are in disorder: {'; '.join(told)}")


def with_pieces(text: str, pieces: Mapping[str, str]) -> str:
    """A statement with its pieces in place."""

    def piece(found: re.Match[str]) -> str:
        if found[2] not in pieces:
            raise BugError(f"a statement has an unknown piece {found[0]}: {text}")
        return pieces[found[2]].replace("@", found[1] or "")

    return _PIECE.sub(piece, text)


def without_remarks(text: str) -> str:
    """A statement without its lines of comment and its indentation.

    psycopg (3.3) remembers how it reads statements of up to 4,096 characters; longer ones it takes apart at each call.
    """
    return _REMARK.sub("", text)


def texts(package: str, folder: str) -> dict[str, str]:
    """The statements in a folder of a store's package, by name, in order of their names."""
    found = {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in (files(package) / folder).iterdir()
        if entry.name.endswith(".sql")
    }
    return dict(sorted(found.items()))


@lru_cache(maxsize=512)
def as_psycopg_reads(sql: str) -> str:
    """A statement whose parameters are written ``:name``, for psycopg."""
    return _PARAMETER.sub(r"%(\1)s", sql)
