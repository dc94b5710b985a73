"""docs/simulator.md holds what the simulator says; a small part is played again here."""

import re

import pytest
from tools import simulator

from perdure.simulate import SCENARIOS

TEXT = simulator.PAGE.read_text(encoding="utf-8")
STALE = "run `make docs-simulator`"


@pytest.fixture(scope="module")
def blip():
    """W1 once more: its measures, and its lines."""
    return simulator.section("W1")


def test_a_scenario_played_again_is_what_the_document_says(blip):
    row, lines = blip
    assert "\n".join(lines) in TEXT, STALE
    assert row.scenario.title in TEXT


def test_the_claims_played_again_in_one_scenario_are_what_the_tables_say(blip):
    row, _ = blip
    for line in (*simulator.jitter_lines({"W1": row}), *simulator.fixed_lines({"W1": row})):
        assert f"{line}\n" in TEXT, STALE


def cells(title: str) -> dict[str, list[str]]:
    """The rows of a table under that heading, by scenario."""
    _, _, rest = TEXT.partition(f"## {title}\n")
    lines = rest.partition("\n## ")[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| W")]
    return {name: [cell.strip() for cell in row] for name, *row in rows}


def test_before_and_after_says_of_now_what_the_table_of_all_scenes_says():
    now = {name: row[1::2] for name, row in cells("All scenes").items()}
    told = {name: row[1::2] for name, row in cells("Before and after").items()}
    assert len(told) > 20
    for name, (wasted, drain, lost) in told.items():
        assert now[name][:2] == [wasted, drain], name
        assert cells("All scenes")[name][6] == lost, name


def test_what_an_outage_costs_is_parted_into_failures_and_refusals(blip):
    row, _ = blip
    gate = row.of("gate")
    told = re.findall(r"^  \| (W.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)
    parts = {name: figures for names, *figures in told for name in names.split(", ")}
    assert parts["W1"][:2] == [f"{gate.waste - gate.limited:.3f}", f"{gate.limited:.3f}"]
    assert set(parts) == {"W1", "W2a", "W2b", "W12"}
    for name, (failed, refused, wasted, before) in parts.items():
        assert cells("Before and after")[name][:2] == [before, wasted]
        assert float(failed) + float(refused) == pytest.approx(float(wasted), abs=0.0011)


# -- the two claims that are corrected in words (R45) ------------------------------------------


def changes(title: str) -> dict[tuple[str, str], list[int]]:
    """The numbers of a generated table, by scenario and what is compared."""
    _, _, rest = TEXT.partition(f"## {title}\n")
    rows = [
        line.strip("| ").split(" | ") for line in rest.strip().split("\n\n")[0].splitlines()[2:]
    ]
    return {
        (name, what): [int(cell.strip("± %").replace("−", "-").replace("+", "")) for cell in cells]
        for name, what, *cells in rows
    }


def paragraph(begins: str) -> str:
    (found,) = [one for one in TEXT.split("\n\n") if one.startswith(f'**"{begins}')]
    return found.replace("\n", " ")


def fewer(*numbers: int) -> str:
    """As it is said: from the least to the most."""
    return f"{min(-one for one in numbers)} to {max(-one for one in numbers)} %"


def either_way(numbers: list[int]) -> str:
    low, high = (f"{one:+d} %".replace("-", "−") for one in (min(numbers), max(numbers)))
    return f"{low} to {high}"


def test_what_is_said_of_jitter_is_what_its_table_says():
    seen, said = changes("What jitter does"), paragraph("Jitter cuts 429s")
    limited = {name: seen[name, "429s"] for name in ("W1", "W2a", "W2b", "W4")}
    assert f"{fewer(*limited['W1'])} fewer after a blip" in said
    assert f"{fewer(*limited['W4'])} under a plain limit" in said
    assert f"{fewer(*limited['W2a'], *limited['W2b'])} after an outage" in said
    assert f"{either_way(seen['W2a', 'wasted calls'])} in an outage of a minute" in said
    assert f"{either_way(seen['W2b', 'wasted calls'])} in one of 45 minutes" in said
    peaks = (*seen["W2a", "peak"], *seen["W2b", "peak"])
    assert f"peak after an outage falls by {fewer(*peaks)}" in said


def test_what_is_said_of_exponential_delays_is_what_their_table_says():
    seen, said = changes("Exponential against fixed"), paragraph("Exponential backoff needs 30 %")
    plain = {name: seen[name, "fixed 5 s"] for name in ("W1", "W2a", "W2b", "W4")}
    assert f"{-plain['W2a'][0]} % fewer in an outage of a minute" in said
    assert f"{-plain['W2b'][0]} % fewer in one of 45 minutes" in said
    assert f"{plain['W4'][0]} % more under a plain limit" in said
    assert f"{plain['W1'][0]} % more after a blip" in said
    jittered = [one for cells in plain.values() for one in cells[1:]]
    assert f"With jitter it is {fewer(*jittered)} fewer" in said


def test_a_number_that_the_tables_do_not_have_would_be_noticed():
    assert f"{fewer(-61, -64)} fewer after a blip" not in paragraph("Jitter cuts 429s")


def test_the_line_about_fairness_is_what_the_document_says():
    assert simulator.fairness_line() in TEXT, STALE


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_in_the_document(name):
    assert f"### {name}: {SCENARIOS[name].title}" in TEXT, STALE


def test_every_picture_is_there_and_small():
    for name in simulator.DRAWN:
        path = simulator.PICTURES / f"{name}.svg"
        assert f"pictures/{name}.svg" in TEXT
        assert 1_000 < path.stat().st_size < 100_000


def test_another_seed_would_be_noticed():
    _, lines = simulator.section("W1", seeds=1)
    assert "\n".join(lines) not in TEXT
