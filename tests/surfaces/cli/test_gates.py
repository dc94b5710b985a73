"""perdure gates: what a person sees of gates, what they can say to them, and what is kept of it."""

import json
import logging
import os
import re
from datetime import timedelta

import msgspec
import pytest
from click.testing import CliRunner

from perdure.engine.clock import SystemClock
from perdure.engine.gates.changes import change_of, hold_by_person
from perdure.model.errors import CallerError
from perdure.model.events import Event, EventName
from perdure.model.gates import GateChange, GateState, Slices
from perdure.model.operations import Deed, LaneScope
from perdure.model.outcomes import Death
from perdure.observers.event_lines import JsonFormatter, TextFormatter
from perdure.observers.log import log_event
from perdure.rules.gate.gate import Gate, HoldCause, Step
from perdure.rules.gate.limit_slices import Slice
from perdure.surfaces.cli.root import cli, main
from tests.engine.gating import gate, line_of, put, stage
from tests.stores.kit import Place


class Desk:
    """A store with jobs behind two upstreams, and the command line beside it."""

    def __init__(self, path: str, ready: int = 3) -> None:
        self.url = f"sqlite:///{path}"
        self.place = Place(path, clock=SystemClock())
        line_of(self.place, stage("one", "other:gpt"), pipeline="o")
        line_of(self.place, stage("one", "vendor"), pipeline="v")
        put(self.place, ready)

    def __call__(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli, ["gates", *words, "--store", self.url])
        if code == 0:
            assert done.exception is None, done.output
        assert done.exit_code == code, done.output
        return done.output

    def json(self, *words: str):
        return json.loads(self(*words, "--json"))


@pytest.fixture
def desk(tmp_path):
    desk = Desk(str(tmp_path / "work.db"))
    yield desk
    desk.place.close()


def test_gates_that_nothing_has_happened_to_are_listed_as_flowing(desk):
    first, second = desk("list").splitlines()
    assert first.split() == ["other:gpt", "flowing", "0", "waiting", "calls", "pass"]
    assert second.split() == ["vendor", "flowing", "3", "waiting", "calls", "pass"]


def test_a_store_without_upstreams_has_no_gates(tmp_path):
    path = str(tmp_path / "empty.db")
    Place(path, clock=SystemClock()).close()
    done = CliRunner().invoke(cli, ["gates", "list", "--store", f"sqlite:///{path}"])
    assert done.output == "no gates: no stage names an upstream yet\n"


def test_the_list_in_json_has_all_there_is(desk):
    desk("hold", "vendor", "--for", "30m", "--reason", "maintenance", "--by", "ann")
    other, vendor = desk.json("list")
    assert (other["name"], other["state"], other["waiting"]) == ("other:gpt", "flowing", 0)
    assert (vendor["name"], vendor["state"], vendor["waiting"]) == ("vendor", "held", 3)
    assert (vendor["cause"], vendor["reason"], vendor["changed_by"]) == (
        "person",
        "maintenance",
        "ann",
    )
    assert vendor["says"] == "for 30 min more; maintenance"
    assert (vendor["until_person"], vendor["kind"]) == (False, "upstream")


def test_holding_for_a_time_says_so_and_marks_the_list(desk):
    said = desk("hold", "vendor", "--for", "90s", "--reason", "maintenance")
    assert re.fullmatch(r"vendor: held by a person for (90|89\.\d+) s \(maintenance\)\n", said)
    line = desk("list").splitlines()[1]
    assert line.startswith("! vendor")
    assert "held" in line
    assert "more; maintenance" in line


def test_holding_without_a_time_lasts_until_a_person_releases_it(desk):
    desk("hold", "vendor", "--reason", "the contract is over")
    assert "until a person releases it; the contract is over" in desk("list")
    assert gate(desk.place).state is GateState.HELD
    said = desk("release", "vendor", "--reason", "a new one", "--by", "bob")
    assert said == "vendor: released by a person (a new one)\n  3 jobs are ready\n"
    assert gate(desk.place).state is GateState.FLOWING


def test_what_changes_nothing_says_so(desk):
    assert desk("release", "vendor", "--reason", "x") == "vendor: it flows already\n"
    said = desk("probe", "vendor", "--reason", "x")
    assert said == "vendor: it is not held, so there is nothing to find out\n"
    assert desk.place.reader.deeds() == []


def test_a_probe_is_due_at_once_when_a_person_asks(desk):
    desk("hold", "vendor", "--reason", "x")
    said = desk("probe", "vendor", "--reason", "is it back?", "--by", "ann")
    first, second = said.splitlines()
    assert first == "vendor: a probe is due: a person asked for it (is it back?)"
    assert second == "  3 jobs are ready"
    says = desk.json("show", "vendor")["says"]
    assert says == "a probe is due; no job has gone out yet; x"
    probed, held = desk.json("show", "vendor")["changes"]
    assert (probed["verb"], probed["by_whom"], held["verb"]) == ("probe gate", "ann", "hold gate")
    row = gate(desk.place)
    assert (row.state, row.probe_first) == (GateState.HELD, True)
    assert row.held_until is not None


def test_showing_one_tells_its_last_changes_and_what_to_type(desk):
    desk("hold", "vendor", "--for", "30m", "--reason", "maintenance", "--by", "ann")
    lines = desk("show", "vendor").splitlines()
    assert lines[0] == "upstream vendor: held, for 30 min more; maintenance"
    assert lines[1] == "  3 waiting behind it; generation 1"
    assert "perdure gates release vendor --reason … --store " in lines[2]
    assert "perdure gates probe vendor --reason … --store " in lines[3]
    assert lines[4].split()[2:] == ["hold", "gate", "ann", "maintenance"]
    (change,) = desk.json("show", "vendor")["changes"]
    assert (change["verb"], change["by_whom"], change["reason"]) == (
        "hold gate",
        "ann",
        "maintenance",
    )


def test_a_credential_shows_what_is_behind_it(desk):
    control, reader = desk.place.control, desk.place.reader
    control.change_gate(GateChange("vendor", 0, GateState.FLOWING, "key-1"), Deed("worker 1"))
    hold_by_person(reader, control, "key-1", Deed("ann", "unpaid"))
    shown = desk("show", "key-1").splitlines()
    assert shown[0] == "credential key-1: held, until a person releases it; unpaid"
    assert shown[1] == "  in front of vendor"
    assert "3 waiting" in shown[2]
    shown = desk("show", "vendor").splitlines()
    assert shown[0] == "upstream vendor: flowing, waits for key-1"
    assert shown[1] == "  behind credential key-1"
    desk("release", "key-1", "--reason", "paid")
    assert "upstream vendor: flowing, calls pass" in desk("show", "vendor")


def told(desk, worker: int, **more) -> None:
    """A worker tells its pace, as it stands 14 s after a rate limit."""
    now = desk.place.reader.now()
    pace = {
        "rate_per_s": 5.0,
        "calls_max": 1_000,
        "was_per_s": 7.5,
        "reason": "a rate limit was met",
        "changed_at": (now - timedelta(seconds=14)).isoformat(),
        "rises_at": (now + timedelta(seconds=30)).isoformat(),
        "rise_per_s": 0.01,
    } | more
    said = {"samples": [], "pace": pace, "limits": {"concurrency": 10, "calls_per_s": 20.0}}
    desk.place.store.look_at_gates(["vendor"], worker=worker, samples={"vendor": json.dumps(said)})


def parted(desk, **parts: tuple[int, int, float]) -> None:
    """Workers have slices: calls at once, how many each could use, and a share of the rates."""
    until = desk.place.reader.now() + timedelta(seconds=12)
    slices = {
        no: Slice(until, share, wanted, share, calls)
        for no, (calls, wanted, share) in parts.items()
    }
    slices["0"] = Slice(until)
    text = msgspec.json.encode(slices).decode()
    assert desk.place.store.change_slices(Slices("vendor", 0, text))


def test_a_gate_that_is_paced_says_at_which_rate_its_calls_pass(desk):
    first, second = desk.place.hire(), desk.place.hire()
    told(desk, first)
    line = desk("list").splitlines()[1]
    assert line.split()[:2] == ["vendor", "flowing"]
    since = r"since \d\d:\d\d UTC, climbs from \d\d:\d\d UTC on"
    assert re.search(rf"3 waiting  paced: 5\.0 calls a second \(was 7\.5\) {since}$", line)
    told(desk, second, rate_per_s=None, was_per_s=None, calls_max=4, reason="it begins")
    says = desk.json("list")[1]["says"]
    assert says.startswith("paced: 5.0 calls a second (was 7.5) in 1 of 2 workers since ")
    told(desk, second, rate_per_s=4.5)
    shown = desk("show", "vendor")
    assert re.match(
        rf"upstream vendor: flowing, paced: 9\.5 calls a second \(was 15\.0\) {since}\n", shown
    )


def test_a_release_of_a_gate_that_is_only_paced_says_what_lifts_the_pace(desk):
    told(desk, desk.place.hire(), rises_at=desk.place.reader.now().isoformat())
    said = desk("release", "vendor", "--reason", "x")
    assert re.match(
        r"vendor: it flows already, paced: 5\.0 calls a second \(was 7\.5\) since .+, climbing; ",
        said,
    )
    store = f"--reason … --store {desk.url}"
    assert said.endswith(
        "the pace rises by itself while calls go well; to forget it and start slowly anew: "
        f"perdure gates hold vendor {store} and then perdure gates release vendor {store}\n"
    )


def test_showing_one_tells_the_pace_of_each_worker_and_why_it_is_so(desk):
    first, second = desk.place.hire(), desk.place.hire()
    told(desk, first)
    told(
        desk,
        second,
        rate_per_s=None,
        was_per_s=None,
        calls_max=4,
        reason="it begins",
        rises_at=None,
    )
    lines = desk("show", "vendor").splitlines()
    assert lines[2].startswith("  paced: 5.0 calls a second (was 7.5) in 1 of 2 workers since ")
    assert lines[2].endswith(" UTC on, all workers together")
    assert re.fullmatch(
        rf"  pace of worker {first} \(host:1\): 5\.0 calls a second \(was 7\.5, 1\d s ago: a rate limit "
        r"was met\); rises by 1 % a second from \d+ s from now on",
        lines[3],
    )
    assert re.fullmatch(
        rf"  pace of worker {second} \(host:1\): no rate is set, up to 4 in flight and one more with each success; "
        r"half of them begin at once \(1\d s ago: it begins\)",
        lines[4],
    )
    assert lines[5] == "  limits: 10 calls at once, 20.0 calls a second"
    shown = desk.json("show", "vendor")
    assert shown["rate_per_s"] == 5.0
    pace = shown["paces"][0]
    assert (pace["worker"], pace["pace"]["was_per_s"]) == (first, 7.5)
    assert (pace["pace"]["reason"], pace["pace"]["rise_per_s"]) == ("a rate limit was met", 0.01)


def test_showing_one_tells_what_the_window_counts_and_what_it_leaves_out(desk):
    """The calls of all workers together, those that say nothing about the upstream by their kinds."""
    now = desk.place.reader.now()
    ends = [("bad", "timeout"), ("good", None), ("good", "invalid_output"), ("neither", "internal")]
    for part in (ends * 2, [*ends, ("neither", "rate_limited"), (None, None)]):
        worker = desk.place.hire()
        samples = [
            {
                "generation": 1,
                "sent_at": (now - timedelta(seconds=20 - n)).isoformat(),
                "name": f"{worker}.{n}",
                "sign": sign,
                "kind": kind,
                "took_s": 1.0,
            }
            for n, (sign, kind) in enumerate(part)
        ]
        said = json.dumps({"samples": samples})
        desk.place.store.look_at_gates(["vendor"], worker=worker, samples={"vendor": said})
    lines = desk("show", "vendor").splitlines()
    wanted = "  window: 3 of the last 10 calls that count failed (4 left out: 3 internal, 1 rate_limited)"
    assert wanted in lines
    window = desk.json("show", "vendor")["window"]
    assert (window["known"], window["failed"]) == (10, 3)


def test_a_rate_that_is_rising_says_so(desk):
    told(desk, desk.place.hire(), rises_at=None)
    assert "rises" not in desk("show", "vendor")
    told(desk, desk.place.hire(), rises_at=desk.place.reader.now().isoformat(), rise_per_s=0.025)
    assert desk("show", "vendor").splitlines()[4].endswith("; rises by 2.5 % a second")


def test_what_a_dead_worker_has_told_is_not_shown_any_more(desk):
    worker = desk.place.hire()
    told(desk, worker)
    desk.place.store.end_worker(worker, Death("exited"))
    assert "upstream vendor: flowing, calls pass" in desk("show", "vendor")
    assert desk.json("show", "vendor")["paces"] == []


def test_showing_one_tells_who_has_which_slice_and_who_waits_for_more(desk):
    first, second, dead = (desk.place.hire() for _ in range(3))
    parted(desk, **{str(first): (8, 8, 1.0), str(second): (0, 6, 0.0), str(dead): (2, 2, 0.0)})
    desk.place.store.end_worker(dead, Death("exited"))
    told(desk, first)
    lines = desk("show", "vendor").splitlines()
    slices = [line.strip() for line in lines if "slice" in line]
    assert [re.sub(r"for 1\d s", "for 12 s", line) for line in slices] == [
        f"slice of worker {first} (host:1): 8 of 10 calls at once, 100 % of the rates, for 12 s more",
        (
            f"slice of worker {second} (host:1): 0 of 10 calls at once, 0 % of the rates, for 12 s more; "
            "could use 6 calls: the rest is in other slices"
        ),
        (
            f"slice of worker {dead} (host:1): 2 of 10 calls at once, 0 % of the rates; the worker is dead: "
            "this is free"
        ),
    ]
    shown = desk.json("show", "vendor")
    assert shown["limits"]["concurrency"] == 10
    assert [(one["worker"], one["alive"], one["calls"]) for one in shown["slices"]] == [
        (first, True, 8),
        (second, True, 0),
        (dead, False, 2),
    ]


def test_slices_of_limits_that_no_worker_has_told_are_shown_all_the_same(desk):
    worker = desk.place.hire()
    parted(desk, **{str(worker): (2, 2, 0.5)})
    shown = desk("show", "vendor")
    assert f"slice of worker {worker} (host:1): 2 calls at once, 50 % of the rates, for 1" in shown
    assert "limits:" not in shown


@pytest.mark.parametrize("verb", ["show", "hold", "probe", "release"])
def test_a_name_that_is_not_there_is_told_with_those_that_are(desk, verb, monkeypatch, capsys):
    more = [] if verb == "show" else ["--reason", "x"]
    monkeypatch.setattr(
        "sys.argv", ["perdure", "gates", verb, "vendro", *more, "--store", desk.url]
    )
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert err == "perdure: no gate 'vendro' in this store; there are: other:gpt, vendor\n"
    assert desk.place.reader.gates() == []


@pytest.mark.parametrize("text", ["soon", "", "-5m", "10000d"])
def test_a_duration_that_is_none_is_refused_and_changes_nothing(desk, text, monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv",
        [
            "perdure",
            "gates",
            "hold",
            "vendor",
            f"--for={text}",
            "--reason",
            "x",
            "--store",
            desk.url,
        ],
    )
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert err == f"perdure: {text!r} is no duration; write it as 90s, 30m or 1h30m\n"
    assert gate(desk.place).state is GateState.FLOWING


@pytest.mark.parametrize("verb", ["hold", "probe", "release"])
def test_nobody_changes_a_gate_without_saying_why(desk, verb):
    assert "Missing option '--reason'" in desk(verb, "vendor", code=2)


def refusal(desk: Desk, *words: str) -> str:
    done = CliRunner().invoke(cli, ["gates", *words, "--store", desk.url])
    assert isinstance(done.exception, CallerError), done.output
    assert desk.place.reader.deeds() == []
    return str(done.exception)


@pytest.mark.parametrize("verb", ["hold", "probe", "release"])
@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_reason_or_a_name_that_is_blank_is_none(desk, verb, blank):
    assert "the reason is blank" in refusal(desk, verb, "vendor", "--reason", blank)
    said = refusal(desk, verb, "vendor", "--reason", "x", "--by", blank)
    assert "the name of who says so is blank" in said


def test_a_reason_of_several_lines_is_kept_as_one(desk):
    desk("hold", "vendor", "--reason", "the page\n  says so\n", "--by", "ann\nand bob")
    (deed,) = desk.place.reader.deeds()
    assert (deed.by_whom, deed.reason) == ("ann and bob", "the page says so")


def test_a_hold_for_no_time_is_refused(desk):
    said = refusal(desk, "hold", "vendor", "--for", "0s", "--reason", "x")
    assert said == "'0s' is no time at all; a hold must be for more than nothing"


@pytest.mark.parametrize("error", [KeyError, OSError, ImportError])
def test_who_has_no_name_on_this_machine_is_called_by_number(desk, monkeypatch, error):
    def nobody() -> str:
        raise error("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    desk("hold", "vendor", "--reason", "x")
    (deed,) = desk.place.reader.deeds()
    assert deed.by_whom == f"uid {os.getuid()}"


def test_changes_are_found_beneath_a_thousand_lines_of_others(desk):
    desk("hold", "vendor", "--reason", "long ago")
    for n in range(600):
        desk.place.control.pause(LaneScope.QUEUE, f"q{n}", Deed("ann"))
        desk.place.control.resume(LaneScope.QUEUE, f"q{n}", Deed("ann"))
    (change,) = desk.json("show", "vendor")["changes"]
    assert change["reason"] == "long ago"


def test_no_more_than_the_last_twenty_changes_are_shown_and_only_the_gates(desk):
    desk.place.control.pause(LaneScope.QUEUE, "vendor", Deed("ann", "a queue of that name"))
    for n in range(25):
        desk("hold", "vendor", "--reason", f"no. {n}")
    reasons = [one["reason"] for one in desk.json("show", "vendor")["changes"]]
    assert reasons == [f"no. {n}" for n in range(24, 4, -1)]


@pytest.mark.parametrize(
    ("proof", "says"),
    [
        (True, "a probe is due; no job has gone out yet; 503"),
        (False, "it flows again as soon as a worker looks; 503"),
    ],
)
def test_a_hold_whose_time_is_over_says_what_it_waits_for(desk, proof, says):
    over = desk.place.reader.now() - timedelta(seconds=5)
    held = Gate(
        "vendor",
        GateState.HELD,
        1,
        cause=HoldCause.TRIP,
        reason="503",
        held_until=over,
        probe_first=proof,
    )
    desk.place.control.change_gate(change_of(Step(held), None, over), Deed("worker 1"))
    assert desk.json("show", "vendor")["says"] == says


def test_a_probe_that_is_out_is_not_asked_for_again(desk):
    out = Gate("vendor", GateState.PROBING, 1, reason="503", probe_first=True)
    now = desk.place.reader.now()
    desk.place.control.change_gate(change_of(Step(out), None, now), Deed("worker 1"))
    assert desk("probe", "vendor", "--reason", "x") == "vendor: a probe is out already\n"


def test_who_asks_behind_a_held_credential_is_told_its_name(desk):
    control, reader = desk.place.control, desk.place.reader
    control.change_gate(GateChange("vendor", 0, GateState.FLOWING, "key-1"), Deed("worker 1"))
    hold_by_person(reader, control, "key-1", Deed("ann", "unpaid"))
    but = "; but its credential key-1 lets nothing pass: perdure gates {} 'key-1' --reason …"
    but += f" --store {desk.url}\n"
    said = desk("probe", "vendor", "--reason", "x")
    nothing = "vendor: it is not held, so there is nothing to find out"
    assert said == nothing + but.format("probe")
    said = desk("release", "vendor", "--reason", "x")
    assert said == "vendor: it flows already" + but.format("release")
    desk("hold", "vendor", "--reason", "x")
    assert but.format("release") in desk("release", "vendor", "--reason", "x")


@pytest.mark.parametrize(
    ("ready", "said"),
    [
        (0, r"  0 jobs are ready, 2 have due times of their own, the next in \d+\.\d s"),
        (1, "  1 job is ready, 2 have due times of their own"),
    ],
)
def test_jobs_that_were_told_to_wait_themselves_are_counted_apart(tmp_path, ready, said):
    desk = Desk(str(tmp_path / "own.db"), ready)
    try:
        for wait_s in (60, 3_600):
            desk.place.put(run_at=desk.place.reader.now() + timedelta(seconds=wait_s))
        desk("hold", "vendor", "--reason", "x")
        words = "to run them now, where no upstream has asked them to wait: perdure jobs run-now "
        typed = f"  {words}--pipeline v --stage one --store {desk.url}"
        _, line, *more = desk("probe", "vendor", "--reason", "x").splitlines()
        if not ready:
            assert line.endswith("their own; the probe goes out when one is due")
        assert more == ([] if ready else [typed])
        _, line, last = desk("release", "vendor", "--reason", "x").splitlines()
        assert re.fullmatch(said, line)
        assert last == typed
    finally:
        desk.place.close()


def test_a_gate_with_nothing_behind_it_says_nothing_about_jobs(desk):
    desk("hold", "other:gpt", "--reason", "x")
    said = desk("release", "other:gpt", "--reason", "x")
    assert said == "other:gpt: released by a person (x)\n"


# -- log lines ---------------------------------------------------------------------------


def record(name: EventName, caplog, **fields: object) -> logging.LogRecord:
    with caplog.at_level(logging.INFO, logger="perdure"):
        log_event(Event(name, fields))
    (one,) = caplog.records
    return one


def test_a_change_is_a_line_at_warning_with_its_reason(caplog):
    held = record(
        EventName.GATE_CHANGED,
        caplog,
        gate="vendor",
        gate_state="held",
        move="trip",
        reason="held: 10 of the last 20 calls failed",
        generation=3,
    )
    assert held.levelname == "WARNING"
    line = TextFormatter().format(held)
    assert "gate_changed gate=vendor gate_state=held move=trip reason=held: 10 of the last" in line
    assert json.loads(JsonFormatter().format(held))["gate"] == "vendor"


def test_an_alert_is_an_error_and_a_probe_is_not(caplog):
    assert record(EventName.GATE_ALERT, caplog, gate="key-1", reason="billing").levelname == "ERROR"
    caplog.clear()
    probed = record(EventName.GATE_PROBED, caplog, gate="vendor", move="lease")
    assert probed.levelname == "INFO"
