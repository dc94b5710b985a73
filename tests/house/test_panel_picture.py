"""The picture of the README has the words of today's panel, asks no server for anything, and names no folder of ours."""

import html
import re
from datetime import UTC, datetime

from tools import panel as picture

from perdure.app.batch.snapshot import BudgetLeft, Held, RunPace, RunSnapshot
from perdure.engine.batch.feeding import Fed
from perdure.model.runs import RunCounts, RunStatus, RunView

NOW = datetime(2026, 11, 16, tzinfo=UTC)
RUN = RunView(
    1,
    "id",
    "",
    "answers",
    "questions.jsonl",
    RunStatus.RUNNING,
    None,
    "{}",
    NOW,
    NOW,
    None,
    RunCounts(total=3_000, succeeded=700, failed=9, cost_nusd=10**9),
    kinds={"invalid_request": 9},
)
HELD = Held("upstream model is held", "for 3 s more", 2_291, ("perdure gates release model",))


def moment(
    *, held: tuple[Held, ...] = (), stopping: bool = False, retrying: int = 7
) -> RunSnapshot:
    return RunSnapshot(
        RUN,
        15.0,
        False,
        Fed(),
        retrying,
        held,
        RunPace(50.0, 4_000.0, 9_000.0),
        BudgetLeft(9, 709, 0.1),
        stopping=stopping,
    )


def words_in(svg: str) -> list[str]:
    """What is written in a picture, numbers and lines left out."""
    shown = html.unescape(" ".join(re.findall(r">([^<]*)</text>", svg)))
    return re.findall(r"[a-z]{3,}", shown)


def test_the_picture_has_the_words_of_the_panel():
    made = picture.PICTURE.read_text(encoding="utf-8")
    missing = set(words_in(picture.drawing(moment(held=(HELD,))))) - set(words_in(made))
    assert not missing, f"run `make docs-panel`; the picture has no {missing}"
    assert "held" in words_in(made)


def test_the_picture_asks_no_server_for_a_font():
    made = picture.PICTURE.read_text(encoding="utf-8")
    assert "url(http" not in made
    assert "@font-face" not in made
    assert made.count("http") == 2  # the namespace, and who has drawn it


def test_of_all_moments_the_last_one_before_the_end_at_which_something_was_held_is_drawn():
    before, held = moment(), moment(held=(HELD,))
    after = moment(held=(HELD,), stopping=True)
    assert picture.chosen([before, before, held, after]) is held
    assert picture.chosen([before, after, after]) is after
