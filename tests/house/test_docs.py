"""Documents fail the build when they lie: nothing is left out, nothing is stale, no link is dead."""

import functools
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from tools import reference
from tools.pages.judgement import reason_of
from tools.pages.model import drawn_tree, error_tree, limit_reasons, unit_of
from tools.pages.python import things
from tools.pages.surface import commands, option_range
from tools.pages.text import Missing, sentences

from perdure.config import SETTINGS
from perdure.model import limits
from perdure.model.errors import PerdureError
from perdure.model.events import EventName
from perdure.model.kinds import Kind
from perdure.model.metrics import METRICS
from perdure.model.states import TRANSITIONS, FailedReason, State
from perdure.rules.policy import Policy
from perdure.rules.presets import PRESETS
from perdure.rules.presets.preset import Preset
from perdure.surfaces.cli.root import cli
from tests.house.markdown import anchors, fences, headings, links, plain
from tests.house.tree import ROOT, told

REFERENCE = ROOT / "docs" / "reference"

NAMED: dict[str, list[str]] = {
    "cli.md": [path for path, _ in commands(cli)],
    "errors.md": [one.__name__ for one, _ in error_tree(PerdureError)],
    "events.md": list(EventName),
    "kinds.md": list(Kind),
    "metrics.md": [one.name for one in METRICS],
    "presets.md": list(PRESETS),
    "python.md": list(things()),
    "settings.md": [one.name for one in SETTINGS],
    "states.md": list(State),
}


def documents(root: Path) -> dict[str, str]:
    """Every Markdown file below a folder, by path; hidden folders and build results aside."""
    found: dict[str, str] = {}
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(one for one in inner if one[0] != "." and one not in {"build", "dist"})
        for name in sorted(names):
            if name.endswith(".md"):
                path = Path(folder, name)
                found[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return found


def without_heading(text: str, names: Iterable[str]) -> list[str]:
    present = headings(text)
    return [name for name in names if present.count(name) != 1]


def without_help(root: click.Command) -> list[str]:
    """Commands that do not say what they do, and options that do not say what they mean."""
    silent = []
    for path, command in commands(root):
        if not (command.help or "").strip():
            silent.append(path)
        options = (one for one in command.params if isinstance(one, click.Option))
        silent += [
            f"{path} {one.opts[0]}"
            for one in options
            if not (one.hidden or (one.help or "").strip())
        ]
    return silent


def dead_links(root: Path, texts: Mapping[str, str]) -> list[str]:
    """Links to a file that is not there, that lies outside, or to an anchor that it does not have."""
    dead = []
    for name, text in texts.items():
        for link in links(text):
            if "://" in link.target or link.target.startswith("mailto:"):
                continue
            file, _, anchor = unquote(link.target).partition("#")
            path = Path(os.path.normpath(Path(name).parent / file)) if file else Path(name)
            where = f"{name}:{link.line} {link.target}"
            if path.is_absolute() or ".." in path.parts or not (root / path).exists():
                dead.append(f"{where}: there is no such file")
            elif anchor and anchor not in anchors(texts.get(path.as_posix(), "")):
                dead.append(f"{where}: there is no such heading")
    return dead


def unlisted(index: str, texts: Mapping[str, str]) -> list[str]:
    """Documents that the index does not link to, neither itself nor by the index of their folder."""
    linked = linked_from(index, texts)
    for inner in sorted(linked):
        if inner.endswith("/README.md"):
            linked |= linked_from(inner, texts)
    return [name for name in texts if name != index and name not in linked]


def linked_from(name: str, texts: Mapping[str, str]) -> set[str]:
    folder = Path(name).parent
    targets = (link.target.partition("#")[0] for link in links(texts[name]))
    return {os.path.normpath(folder / target) for target in targets if "://" not in target}


def missing_files(root: Path, texts: Mapping[str, str]) -> list[str]:
    """Files and folders of ours that a document names in code, as in `engine/run.py` or `rows.py`, and nobody has."""
    tops = [one for one in (root, root / "src" / "perdure") if one.is_dir()]
    known = {path.name for top in tops for path in top.iterdir() if path.is_dir()}
    modules = {
        path.name
        for one in ("src", "tests", "tools", "benchmarks")
        for path in (root / one).rglob("*.py")
    }
    named, bare = re.compile(r"`(\w+)/([\w./-]*)`"), re.compile(r"`(\w+\.py)`")
    found = [
        f"{name}:{number} {folder}/{rest}"
        for name, text in texts.items()
        for number, line in plain(text)
        for folder, rest in named.findall(line)
        if folder in known and not any((top / folder / rest).exists() for top in tops)
    ]
    return found + [
        f"{name}:{number} {file}"
        for name, text in texts.items()
        for number, line in plain(text)
        for file in bare.findall(line)
        if file not in modules
    ]


def overpromised(texts: Mapping[str, str]) -> list[str]:
    """Lines that promise something of which only the commit half is true."""
    words = re.compile(r"exactly[- ]once", re.IGNORECASE)
    return [
        f"{name}:{number} {line.strip()}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if words.search(line) and "commit" not in line.lower()
    ]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return documents(ROOT)


@pytest.mark.parametrize(("page", "names"), NAMED.items(), ids=list(NAMED))
def test_everything_that_has_a_name_has_its_heading(page, names, texts):
    assert names
    assert without_heading(texts[f"docs/reference/{page}"], names) == []


def test_the_reference_says_what_the_code_says():
    stale = reference.differing(reference.pages(), REFERENCE)
    assert not stale, f"run `make docs`; stale: {stale}"


def test_every_page_of_the_reference_says_that_it_is_generated(texts):
    assert {name.rpartition("/")[2] for name in texts if "/reference/" in name} == set(
        reference.PAGES
    )
    for name in reference.PAGES:
        assert texts[f"docs/reference/{name}"].startswith("<!-- Generated by `make docs` from ")


def test_the_diagram_has_every_arrow_of_the_transition_table(texts):
    (drawing,) = [one for one in fences(texts["docs/reference/states.md"]) if one.language]
    arrows = {
        (source, move.strip(), result)
        for line in drawing.lines
        if "-->" in line
        for ends, _, moves in [line.strip().partition(": ")]
        for source, _, result in [ends.partition(" --> ")]
        for move in moves.split(",")
    }
    assert arrows == {(source or "[*]", move, result) for source, move, result in TRANSITIONS}


def test_every_command_and_option_has_a_help_text():
    assert without_help(cli) == []


def test_a_number_without_an_end_to_speak_of_is_shown_as_one(texts):
    assert option_range(click.IntRange(0)) == "0 or more."
    assert option_range(click.IntRange(1, 2**63 - 1)) == "1 or more."
    assert option_range(click.IntRange(1, 500)) == "From 1 to 500."
    assert "None." not in texts["docs/reference/cli.md"]


def test_no_help_of_an_option_sends_its_reader_elsewhere_on_the_page(texts):
    assert "see below" not in texts["docs/reference/cli.md"]


def test_every_link_inside_the_repository_leads_somewhere(texts):
    dead = dead_links(ROOT, texts)
    assert not dead, told(dead)


def test_every_file_that_a_document_names_is_there(texts):
    missing = missing_files(ROOT, texts)
    assert not missing, told(missing)


def test_the_index_lists_every_document(texts):
    assert unlisted("docs/README.md", texts) == []


def test_no_document_promises_exactly_once_without_saying_commit(texts):
    assert overpromised(texts) == []


# -- broken twins: each checker catches what it is there for ---------------------------------


def test_a_missing_or_doubled_heading_is_caught():
    assert without_heading("# A\n## b\n```\n## c\n```\n", ["b", "c"]) == ["c"]
    assert without_heading("## b\n## b\n", ["b"]) == ["b"]


def test_a_command_or_an_option_without_help_is_caught():
    root = click.Group("root", help="Yes.")
    root.add_command(click.Command("loud", help="Yes.", params=[click.Option(["--x"])]))
    root.add_command(click.Command("mute", params=[click.Option(["--y"], help="Yes.")]))
    root.add_command(click.Command("secret", hidden=True))
    assert without_help(root) == ["perdure loud --x", "perdure mute"]


def test_a_stale_a_missing_and_a_stray_page_are_caught(tmp_path, capsys):
    (tmp_path / "stale.md").write_text("old\n")
    (tmp_path / "stray.md").write_text("?\n")
    (tmp_path / "fresh.md").write_text("new\n")
    wanted = {"stale.md": "new\n", "gone.md": "new\n", "fresh.md": "new\n"}
    assert reference.differing(wanted, tmp_path) == ["gone.md", "stale.md", "stray.md"]


def test_the_generator_mends_a_page_and_its_check_only_tells(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reference, "pages", functools.cache(reference.pages))  # it takes a second
    assert reference.main([], tmp_path) == 0
    assert reference.main(["--check"], tmp_path) == 0
    page = tmp_path / "kinds.md"
    page.write_text(page.read_text().replace("## timeout", "## time-out"))
    capsys.readouterr()
    assert reference.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().out.count("make docs") == 1
    assert "time-out" in page.read_text()
    (tmp_path / "stray.md").write_text("?\n")
    assert reference.main([], tmp_path) == 0
    assert reference.differing(reference.pages(), tmp_path) == []


LINKS = [
    ("[x](b.md)", []),
    ("[x](b.md#the-end-1)", []),
    ("[x](#here)\n# Here\n", []),
    ('[x](#r1)\n\n<a id="r1"></a>R1\n', []),
    ('[x](#r1)\n\n`<a id="r1"></a>`\n', ["docs/a.md:1 #r1: there is no such heading"]),
    ("[x](https://example.com/none.md) `[x](none.md)`", []),
    ("```\n[x](none.md)\n```\n", []),
    ("[x](none.md)", ["docs/a.md:1 none.md: there is no such file"]),
    ("\n[x]: none.md\n", ["docs/a.md:2 none.md: there is no such file"]),
    ("![x](none.png)", ["docs/a.md:1 none.png: there is no such file"]),
    ("[x](../../b.md)", ["docs/a.md:1 ../../b.md: there is no such file"]),
    ("[x](/etc/hosts)", ["docs/a.md:1 /etc/hosts: there is no such file"]),
    ("[x](b.md#the-end-2)", ["docs/a.md:1 b.md#the-end-2: there is no such heading"]),
    ("[x](#there)\n# Here\n", ["docs/a.md:1 #there: there is no such heading"]),
]


@pytest.mark.parametrize(("text", "dead"), LINKS)
def test_a_dead_link_is_caught_and_a_live_one_passes(text, dead, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(text)
    (tmp_path / "docs" / "b.md").write_text("# The end\n## The `end`!\n")
    assert dead_links(tmp_path, documents(tmp_path)) == dead


def test_a_file_that_is_not_there_is_caught(tmp_path):
    (tmp_path / "src" / "perdure" / "engine").mkdir(parents=True)
    (tmp_path / "src" / "perdure" / "engine" / "run.py").touch()
    line = "`engine/run.py` `engine/` `src/perdure/engine/run.py` `engine/gone.py` `other/x.py` `run.py` `went.py`\n"
    text = f"{line}```\n`engine/old.py`\n```\n"
    assert missing_files(tmp_path, {"a.md": text}) == ["a.md:1 engine/gone.py", "a.md:1 went.py"]


def test_a_document_that_no_index_lists_is_caught():
    texts = {
        "docs/README.md": "[a](a.md) [b](../b.md#x) [inner](inner/README.md) [w](https://w.org/c.md)",
        "docs/inner/README.md": "[d](d.md)",
        "docs/inner/d.md": "",
        "docs/inner/e.md": "",
        "docs/a.md": "[c](../c.md)",
        "b.md": "",
        "c.md": "",
    }
    assert unlisted("docs/README.md", texts) == ["docs/inner/e.md", "c.md"]


def test_a_promise_of_exactly_once_is_caught():
    texts = {"a.md": "Runs exactly-once.\nCommitted exactly once per claim.\nat least once"}
    assert overpromised(texts) == ["a.md:1 Runs exactly-once."]


def test_a_name_without_a_sentence_and_a_sentence_without_a_name_stop_the_generator():
    one = {"failed_reason": {"fatal": "x", "exhausted": "x", "crashed": "x"}}
    with pytest.raises(Missing, match="expired"):
        sentences("failed_reason", FailedReason, one)
    one["failed_reason"] |= {"expired": "x", "bored": "x"}
    with pytest.raises(Missing, match="differ: bored"):
        sentences("failed_reason", FailedReason, one)


def test_a_limit_without_a_reason_or_a_unit_stops_the_generator():
    with pytest.raises(Missing, match=r"limits\.py:2"):
        limit_reasons("A_S_MAX = 1  # why\nB_S_MAX = 2\n")
    with pytest.raises(Missing, match="FOO_MAX"):
        unit_of("FOO_MAX")
    assert limit_reasons(Path(limits.__file__).read_text()).keys() == {
        name for name in vars(limits) if name.isupper()
    }


def test_a_preset_without_a_reason_stops_the_generator():
    assert reason_of(Preset(Policy("a"), "It waits.")) == "It waits."
    with pytest.raises(Missing, match="preset a gives no reason"):
        reason_of(Preset(Policy("a"), ""))


def test_the_tree_of_errors_is_read_as_it_is_drawn():
    essay = """Errors.

    A
    ├── B      the first
    │   └── C  inside ``it``
    └── D

Not: E
"""
    assert drawn_tree(essay) == [
        ("A", 0, ""),
        ("B", 1, "the first"),
        ("C", 2, "inside `it`"),
        ("D", 1, ""),
    ]


def test_a_block_that_nothing_closes_is_caught():
    with pytest.raises(ValueError, match="line 2 opens"):
        fences("a\n```\nb\n")
