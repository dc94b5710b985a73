"""The history in SQL and as pictures, and a provider's bill against it."""

import json
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest
from examples.datasets.provider import FAULTS, Call, Provider

from perdure import RunStatus
from perdure.testing import Request
from tests.examples.converter_kit import until

WAIT_S = 60.0


@pytest.fixture(scope="module")
def told(datasets):
    """A run in which one sample is fine, two are retried, one of these after an answer that was lost, and two die."""
    datasets.plan("told", "s1", FAULTS["429"])
    datasets.plan("told", "s2", FAULTS["cut off"], FAULTS["503"])
    datasets.plan("told", "s3", *[FAULTS["500"]] * 3)
    lines = [{"id": f"s{n}", "text": f"The soup was good, number {n}."} for n in range(4)]
    run = datasets.feed("told", [*lines, '{"broken'])
    assert run.wait(wait_s=WAIT_S).status is RunStatus.PARTIAL_SUCCESS
    return run


def test_it_says_how_many_retries_samples_needed(datasets, told):
    rows = datasets.report.ask("retries", run=told.no)
    assert {one["retries"]: one["samples"] for one in rows} == {0: 2, 1: 1, 2: 2}


def test_it_says_which_errors_there_were_and_which_of_them_were_the_last(datasets, told):
    rows = datasets.report.ask("errors", run=told.no)
    found = {one["kind"]: (one["attempts"], one["final"]) for one in rows}
    assert found.pop("upstream_error") == (3, 1)
    assert found.pop("rate_limited") == (1, 0)
    assert found.pop("input_invalid") == (1, 1)
    assert sum(attempts for attempts, _ in found.values()) == 2  # what was cut off, and the 503


def test_it_says_which_stage_is_unreliable(datasets, told):
    rows = {one["stage"]: one for one in datasets.report.ask("stages", run=told.no)}
    assert list(rows) == ["pick", "label", "measure", "keep"]
    label = rows["label"]
    assert (label["attempts"], label["succeeded"], label["retried"], label["failed"]) == (9, 3, 5, 1)  # fmt: skip
    assert rows["pick"]["retry_rate"] == 0


def test_it_says_what_happened_to_a_sample_try_by_try(datasets, told):
    (job,) = datasets.app.jobs.list(run=told.no, key="told/s1")
    rows = datasets.report.ask("sample", sample=job.no)
    tries = [(one["stage_name"], one["attempt"], one["status"]) for one in rows]
    assert tries == [("pick", 1, "success"), ("label", 1, "retrying"), ("label", 2, "success"), ("measure", 1, "success"), ("keep", 1, "success")]  # fmt: skip
    assert rows[1]["error_message"]
    assert len({one["stage_config_hash"] for one in rows[1:3]}) == 1


def test_the_bill_is_explained_to_the_answer_that_was_lost(datasets, told):
    lines = datasets.report.reconcile(
        datasets.report.ask("billing", run=told.no), datasets.provider.usage("told")
    )
    by_call = {one["call"]: one for one in lines}
    assert [by_call[n]["calls"] for n in ("1", "2", "3", "all")] == [4, 3, 2, 9]
    assert [by_call[n]["their calls"] for n in ("1", "2", "3", "all")] == [4, 3, 2, 9]
    assert (by_call["all"]["charged"], by_call["all"]["they charged"]) == (3, 4)
    assert by_call["1"]["unheard"] == 1
    assert by_call["2"]["usd"] == by_call["2"]["their usd"] > 0
    assert by_call["1"]["their usd"] > by_call["1"]["usd"]
    assert datasets.report.disputes(lines) == []


def test_a_call_that_was_broken_off_may_have_been_charged(datasets):
    """The run is cancelled while the model is silent: nobody has heard what the call came to."""
    datasets.plan("broken-off", "s1", FAULTS["no answer"])
    run = datasets.feed("broken-off", [{"id": "s1", "text": "The soup was good, once more."}])
    until("the model is asked", lambda: datasets.provider.usage("broken-off"))
    run.cancel(reason="test")
    run.wait(wait_s=WAIT_S)
    (first, *_) = lines = datasets.report.reconcile(
        datasets.report.ask("billing", run=run.no), datasets.provider.usage("broken-off")
    )
    assert (first["calls"], first["unheard"], first["charged"]) == (1, 1, 0)
    assert datasets.report.disputes(lines) == []
    charged = {"1": {"calls": 1, "charged": 1, "cost_usd": 0.0}}
    ours = datasets.report.ask("billing", run=run.no)
    assert datasets.report.disputes(datasets.report.reconcile(ours, charged)) == []


def test_the_books_of_a_data_set_have_its_lines_without_an_id_and_no_other_s():
    with Provider("") as books:
        pass
    books.calls = [
        (one, Call(1)) for one in ("films/s1", "films:line-7", "films2/s1", "my/films/s1")
    ]
    told = books.next_answer(Request("GET", "/usage?dataset=films", {}, b"")).body
    assert {number: one["calls"] for number, one in told.items()} == {"1": 2}


def wrong_bills(theirs):
    """Bills that do not add up: a call more, one charged more, a dollar more or less for the same calls, and nothing at all."""
    first = theirs["1"]
    for name, more in (("calls", 1), ("charged", 1), ("cost_usd", 1), ("cost_usd", -1)):
        yield {**theirs, "1": {**first, name: first[name] + more}}
    yield {}


def test_a_bill_that_history_cannot_explain_is_disputed(datasets, told):
    ours, theirs = datasets.report.ask("billing", run=told.no), datasets.provider.usage("told")
    for bill in wrong_bills(theirs):
        assert len(datasets.report.disputes(datasets.report.reconcile(ours, bill))) >= 1, bill


def test_a_lost_answer_explains_no_more_than_the_dearest_that_was_heard(datasets):
    our = {"number": 1, "calls": 4, "charged": 2, "unheard": 2, "cost_usd": 0.25, "dearest_usd": 0.15}  # fmt: skip
    disputes, reconcile = datasets.report.disputes, datasets.report.reconcile
    for charged, usd, most in (
        (3, 0.4, ""),
        (4, 0.55, ""),
        (3, 0.41, "0.15"),
        (4, 700.0, "0.3"),
    ):
        found = disputes(reconcile([our], {"1": {"calls": 4, "charged": charged, "cost_usd": usd}}))
        said = f"our calls cost 0.25 USD, they charged {usd} USD; lost answers explain at most {most} USD"
        assert found == ([said] if most else [])


def test_where_every_answer_was_heard_the_dollars_are_the_same(datasets):
    ours = [{"number": 1, "calls": 2, "charged": 2, "unheard": 0, "cost_usd": 0.25, "dearest_usd": 0.2}]  # fmt: skip
    theirs = {"1": {"calls": 2, "charged": 2, "cost_usd": 0.25}}
    disputes, reconcile = datasets.report.disputes, datasets.report.reconcile
    assert disputes(reconcile(ours, theirs)) == []
    for usd in (0.26, 0.24):
        dearer = {"1": {**theirs["1"], "cost_usd": usd}}
        said = [f"our calls cost 0.25 USD, they charged {usd:g} USD; lost answers explain at most 0.0 USD"]  # fmt: skip
        assert disputes(reconcile(ours, dearer)) == said


def test_the_report_has_five_pictures_that_are_well_formed_and_says_what_the_bill_comes_to(
    datasets, told
):
    page = written(datasets, told, datasets.provider.usage("told"))
    pictures = page.split("<svg")[1:]
    shown = []
    for one in pictures:
        root = ET.fromstring("<svg" + one.partition("</svg>")[0] + "</svg>")
        title, *texts = (text.text for text in root.findall("{*}text"))
        assert len(root.findall("{*}rect")) == len(texts) / 2 >= 3
        shown.append((title, dict(zip(texts[::2], texts[1::2], strict=True))))
    retries, errors, stages, (_, calls), (_, usd) = shown
    assert retries == ("samples by retries needed", {"0 retries": "2", "1 retries": "1", "2 retries": "2"})  # fmt: skip
    assert (errors[1]["upstream_error"], list(stages[1])) == ("3", ["pick", "label", "measure", "keep"])  # fmt: skip
    assert calls == {
        f"call {n}, {whose}": str(made)
        for n, made in ((1, 4), (2, 3), (3, 2))
        for whose in ("ours", "theirs")
    }
    assert usd["call 2, ours"] == usd["call 2, theirs"] != "0"
    assert float(usd["call 1, theirs"]) > float(usd["call 1, ours"])
    assert "The bill is explained." in page
    assert "The bill is explained." not in written(datasets, told, {}, checked=False)


def test_the_report_says_that_a_bill_does_not_add_up_and_ends_with_1(
    datasets, told, tmp_path, monkeypatch, capsys
):
    for number, bill in enumerate(wrong_bills(datasets.provider.usage("told"))):
        page = written(datasets, told, bill)
        assert "The bill is explained." not in page
        usage, report = tmp_path / f"{number}.json", tmp_path / f"{number}.html"
        usage.write_text(json.dumps(bill))
        monkeypatch.setattr(sys, "argv", ["report", "told", "--usage", str(usage), "-o", str(report)])  # fmt: skip
        assert datasets.report.main() == 1
        dispute = capsys.readouterr().out.splitlines()[-1]
        assert report.read_text() == page
        assert f"<p>{dispute}</p>" in page


def test_a_count_without_dollars_is_refused_by_name(datasets, told, tmp_path, monkeypatch, capsys):
    usage = tmp_path / "usage.json"
    usage.write_text(json.dumps({"1": {"calls": 1, "charged": 1}}))
    monkeypatch.setattr(sys, "argv", ["report", "told", "--usage", str(usage), "-o", str(tmp_path / "r.html")])  # fmt: skip
    assert datasets.report.main() == 2
    assert capsys.readouterr().err == f"report: {usage} is no count of calls: 'cost_usd'\n"


@pytest.mark.parametrize("given", ["[]", "null", '{"1": 5}', '{"1": {"calls": null, "charged": 1, "cost_usd": 1}}'])  # fmt: skip
@pytest.mark.usefixtures("told")
def test_a_count_of_another_form_is_refused_with_the_form(
    datasets, tmp_path, monkeypatch, capsys, given
):
    usage = tmp_path / "usage.json"
    usage.write_text(given)
    monkeypatch.setattr(sys, "argv", ["report", "told", "--usage", str(usage), "-o", str(tmp_path / "r.html")])  # fmt: skip
    assert datasets.report.main() == 2
    assert capsys.readouterr().err.startswith(f"report: {usage} is no count of calls: Expected `")


def written(datasets, run, usage, *, checked: bool = True) -> str:
    """The report of a run with a provider's count."""
    report = datasets.report
    bill = report.reconcile(report.ask("billing", run=run.no), usage)
    return report.page(run, bill, checked=checked)


def test_the_questions_can_be_asked_of_postgresql_too(datasets, postgres, template, monkeypatch):
    url = postgres.create_database(template=template)
    monkeypatch.setattr(datasets.report, "app", SimpleNamespace(url=url))
    for question in ("retries", "errors", "stages", "billing"):
        assert datasets.report.ask(question, run=1) == []
    assert datasets.report.ask("sample", sample=1) == []
    postgres.drop_database(url)
