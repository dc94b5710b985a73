"""The reference of the Python API: every public name has an example, and every example is run."""

import doctest
import os
from pathlib import Path

import pytest
from tools.pages import python as page
from tools.pages.text import Missing

import perdure
from perdure import PerdureError


def failures_in(name: str, text: str) -> str:
    """What does not come out as it is written, in the words of doctest."""
    told: list[str] = []
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    return "".join(told)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [one for one in os.environ if one.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.parametrize("section", page.SECTIONS)
def test_the_examples_of_a_section_come_out_as_they_are_written(section, empty_folder):
    text = (page.EXAMPLES / f"{section}.txt").read_text(encoding="utf-8")
    assert failures_in(section, text) == ""


def test_every_file_of_examples_is_a_section_of_the_page():
    assert {one.stem for one in page.EXAMPLES.iterdir()} == set(page.SECTIONS)


def test_every_exported_name_is_on_the_page():
    text = "\n".join(page.python_page())
    for name in perdure.__all__:
        thing = getattr(perdure, name)
        is_error = isinstance(thing, type) and issubclass(thing, PerdureError)
        shown = f"[{name}](errors.md#{name.lower()})" if is_error else f"\n### {name}\n"
        assert text.count(shown) == 1, name


def test_names_that_only_a_module_knows_are_told_by_what_they_stand_for():
    text = "\n".join(page.python_page())
    assert "payloads: Mapping[str, Any] | str | os.PathLike[str] | None = None," in text
    assert "| `otherwise` | `Rule` | `Rule(Action.FAIL)` |" in text
    assert "_MAX" not in text


# -- broken twins: what is missing or untrue is caught ----------------------------------------


def test_an_example_that_does_not_come_out_is_caught():
    assert failures_in("twin", "# T\n\n## A\n\n>>> 1 + 1\n2\n") == ""
    assert "Got:\n    2" in failures_in("twin", "# T\n\n## A\n\n>>> 1 + 1\n3\n")
    assert "ZeroDivisionError" in failures_in("twin", ">>> 1 / 0\n")


def test_a_public_name_without_an_example_stops_the_generator():
    names = [
        entry.name
        for section in page.SECTIONS
        for entry in page.parts((page.EXAMPLES / f"{section}.txt").read_text("utf-8"))[1]
    ]
    page.check_whole(names)
    for missing in ("App", "App.stage", "basic_gate"):
        with pytest.raises(Missing, match=f"^{missing} has no example"):
            page.check_whole([one for one in names if one != missing])
    with pytest.raises(Missing, match=r"App\.teleport is no public name"):
        page.check_whole([*names, "App.teleport"])
    with pytest.raises(Missing, match="App has two entries"):
        page.check_whole([*names, "App"])


def test_an_example_that_does_not_use_its_name_stops_the_generator():
    _, [entry] = page.parts("# T\n\n## App.stage\n\nSome prose.\n\n>>> 1\n1\n")
    assert entry == page.Entry("App.stage", "Some prose.", ">>> 1\n1")
    with pytest.raises(Missing, match=r"App\.stage does not use stage"):
        page.shown(entry, "stage")
