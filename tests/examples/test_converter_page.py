"""The converter's page in a real browser: with and without JavaScript, by keyboard, on a phone, in light and dark."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psycopg
import pytest
from examples.converter.samples import make_pdf
from lxml import etree
from playwright.sync_api import Browser, Locator, Page, expect

from tests.examples.chromium import DESK, FAR_MS, PHONE, is_too_wide, violations
from tests.examples.converter_kit import Trial, hold, pdf_of, until

pytestmark = pytest.mark.story
expect.set_options(timeout=FAR_MS)


@contextmanager
def page_of(chromium: Browser, trial: Trial, **options) -> Iterator[Page]:
    """The page in a browser of somebody's own; an error in its script fails the test."""
    window = chromium.new_context(**{**DESK, **options})
    window.set_default_timeout(FAR_MS)
    page, errors = window.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda said: errors.append(said.text) if "Content Security" in said.text else None,
    )
    page.goto(trial.site)
    try:
        yield page
        assert errors == []
    finally:
        window.close()


def files(folder: Path, *texts: str) -> list[Path]:
    """PDF files on the user's disk."""
    paths = [folder / f"{text}.pdf" for text in texts]
    for path in paths:
        path.write_bytes(pdf_of(path.stem))
    return paths


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_text(name, exact=True))


def state(page: Page, name: str) -> Locator:
    return row(page, name).locator(".state")


def upload(page: Page, *paths: Path) -> None:
    page.get_by_label("PDF files").set_input_files(paths)
    page.get_by_role("button", name="Upload", exact=True).click()


SLOW = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 4_000_000}
WATCH_PROGRESS = """() => { window.seen = []; new MutationObserver(() => {
    for (const bar of document.querySelectorAll("#uploads progress")) window.seen.push([bar.ariaLabel, bar.value]);
}).observe(document.getElementById("uploads"), {childList: true, subtree: true, characterData: true}); }"""


def test_a_user_uploads_watches_retries_cancels_and_downloads(chromium, converter, tmp_path):
    with page_of(chromium, converter) as page:
        assert violations(page) == []  # nothing is there yet
        good, bad, hanging = files(tmp_path, "good", "bad", "hanging")
        large = tmp_path / "large.pdf"
        large.write_bytes(make_pdf("large", ["x"], padding=4_000_000))
        page.evaluate(WATCH_PROGRESS)
        slow = page.context.new_cdp_session(page)
        slow.send("Network.emulateNetworkConditions", SLOW)
        upload(page, good, large)
        expect(page.get_by_role("status").get_by_text("2 files are in the queue.")).to_be_visible()
        seen = [share for name, share in page.evaluate("window.seen") if "large" in name]
        assert seen == sorted(seen)
        assert len({share for share in seen if 0 < share < 100}) >= 3
        assert seen[-1] == 100
        slow.detach()
        expect(state(page, "good.pdf")).to_have_text("Complete")
        expect(state(page, "large.pdf")).to_have_text("Complete")
        with page.expect_download() as downloading:
            page.get_by_role("link", name="Download the XML of good.pdf").click()
        assert downloading.value.suggested_filename == "good.xml"
        assert etree.parse(downloading.value.path()).getroot().findtext("page/line") == "good"
        upload(page, good)
        expect(page.get_by_text("good.pdf was converted before, and can be d")).to_be_visible()

        converter.order(status=400, code="X")
        upload(page, bad)
        expect(state(page, "bad.pdf")).to_have_text("Failed")
        expect(row(page, "bad.pdf")).to_contain_text(
            "The converter cannot make sense of this file. GW_4XX"
        )
        converter.order(hang=True)
        upload(page, hanging)
        expect(state(page, "hanging.pdf")).to_have_text("Converting")
        expect(page.locator("#counts")).to_have_text("1 in work, 4 in all")
        # By keyboard alone; the focus stays in the row whatever becomes of it.
        page.get_by_role("button", name="Cancel hanging.pdf").focus()
        page.keyboard.press("Enter")
        expect(state(page, "hanging.pdf")).to_have_text("Cancelled")
        assert (
            page.evaluate("document.activeElement.getAttribute('aria-label')")
            == "Remove hanging.pdf"
        )
        converter.order()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Retry bad.pdf"
        page.keyboard.press("Enter")
        expect(state(page, "bad.pdf")).to_have_text("Complete")
        page.get_by_role("button", name="Remove hanging.pdf").click()
        expect(row(page, "hanging.pdf")).to_have_count(0)


def test_every_state_is_shown_without_a_fault_of_accessibility_on_a_desk_and_a_phone_in_light_and_dark(
    chromium, converter
):
    ann = converter.user()

    def put(name: str, wanted: str, **faults) -> str:
        converter.order(**faults)
        job_id = ann.upload(
            pdf_of(name), f"{name} with quite a long name that has to be broken somewhere.pdf"
        )
        until(f"{name} is {wanted}", lambda: ann.status(job_id) == wanted)
        return job_id

    put("complete", "complete")
    put("failed", "failed", status=400, code="X")
    gone = put("gone", "failed", status=400, code="X")
    converter.converter.files.source(converter.job(gone).view().key).unlink()
    ann.delete(f"/api/jobs/{put('cancelled', 'processing', hang=True)}")
    put("processing", "processing", hang=True)
    hold(converter)
    try:
        ann.upload(pdf_of("queued"))
        light, dark = ({"color_scheme": one} for one in ("light", "dark"))
        looks = [light, dark, {**PHONE, **light}, {**PHONE, **dark}]
        for options in looks:
            with page_of(chromium, converter, **options) as page:
                page.context.add_cookies(
                    [
                        {"name": name, "value": value, "url": converter.site}
                        for name, value in ann.cookies.items()
                    ]
                )
                page.reload()
                expect(page.get_by_text("Your files will go on by themselves.")).to_be_visible()
                shown = set(page.locator("tbody .state").all_inner_texts())
                assert shown == {"Queued", "Converting", "Complete", "Failed", "Cancelled"}
                retry = page.get_by_role("button", name="Retry gone")
                assert retry.is_disabled()
                why = page.locator(f"#{retry.get_attribute('aria-describedby')}")
                expect(why).to_have_text("The PDF is no longer kept: upload it again")
                assert violations(page) == [], options
                assert not is_too_wide(page), options
    finally:
        hold(converter, release=True)
    with page_of(chromium, converter) as page:
        expect(page.get_by_text("The converter is busy.")).to_have_count(0)
        page.goto(f"{converter.site}/api/jobs/{gone}/download")  # somebody else's
        expect(page.get_by_role("heading")).to_have_text("This file is not yours, or is not there.")
        assert violations(page) == []


def test_without_javascript_everything_works_by_forms(chromium, converter, tmp_path):
    with page_of(chromium, converter, java_script_enabled=False) as page:
        good, bad, hanging = files(tmp_path, "good", "bad", "hanging")
        upload(page, good)
        expect(page.get_by_role("status").get_by_text("1 file is in the queue.")).to_be_visible()
        refresh_until(page, "good.pdf", "Complete")
        with page.expect_download() as downloading:
            page.get_by_role("link", name="Download the XML of good.pdf").click()
        assert downloading.value.suggested_filename == "good.xml"
        upload(page, good)
        expect(page.get_by_text("1 file was converted before, and can be d")).to_be_visible()
        expect(page.get_by_text("in the queue.")).to_have_count(0)
        converter.order(status=400, code="X")
        upload(page, bad)
        refresh_until(page, "bad.pdf", "Failed")
        converter.order()
        page.get_by_role("button", name="Retry bad.pdf").click()
        refresh_until(page, "bad.pdf", "Complete")
        converter.order(hang=True)
        upload(page, hanging)
        page.get_by_role("button", name="Cancel hanging.pdf").click()
        expect(state(page, "hanging.pdf")).to_have_text("Cancelled")
        page.get_by_role("button", name="Remove hanging.pdf").click()
        expect(row(page, "hanging.pdf")).to_have_count(0)
        text = tmp_path / "text.pdf"
        text.write_text("no PDF")
        upload(page, text)
        expect(page.get_by_text("This file is not a PDF.")).to_be_visible()
        large = tmp_path / "large.pdf"
        large.write_bytes(b"%PDF-1.4" + bytes(25_000_000))
        upload(page, large)
        expect(page.get_by_role("heading")).to_have_text(
            "large.pdf is larger than 20 MB. Nothing was uploaded."
        )


def test_without_javascript_a_form_takes_several_large_files_and_says_when_it_does_not(
    chromium, quiet, tmp_path
):
    with page_of(chromium, quiet, java_script_enabled=False) as page:
        three = [tmp_path / f"{name}.pdf" for name in ("first", "second", "third")]
        for path in three:
            path.write_bytes(make_pdf(path.stem, ["x"], padding=8_000_000))
        upload(page, *three)
        expect(page.get_by_text("3 files are in the queue.")).to_be_visible()
        expect(page.get_by_text("At once, 50 files and 200 MB at most")).to_be_visible()
        upload(page, *files(tmp_path, *(f"file {n}" for n in range(51))))
        expect(page.get_by_role("heading")).to_have_text(
            "50 files at once are the most. Nothing was uploaded."
        )


FOCUS_IS_SEEN = """() => {
    const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
    return one === document.body || (parseFloat(style.outlineWidth) >= 2 && style.outlineStyle === "solid"
        && box.width * box.height > 0 && box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight);
}"""
STOPS_MAX = 30  # of Tab, once around the page and over the body


class Typist:
    """Somebody without a pointer: Tab, Enter and Space on a page, whose forms are sent by its script or by the browser."""

    def __init__(self, page: Page, *, scripted: bool) -> None:
        self.page, self._scripted = page, scripted
        # Heard from the beginning: a browser may heed a key sooner than it learns that somebody listens for a chooser.
        page.on("filechooser", lambda _: None)

    def reach(self, wanted: Locator) -> None:
        """By Tab alone; wherever the focus stops on its way, one sees it."""
        for _ in range(STOPS_MAX):
            self.page.keyboard.press("Tab")
            assert self.page.evaluate(FOCUS_IS_SEEN), self.page.evaluate(
                "document.activeElement.outerHTML"
            )
            if wanted.evaluate("(one) => one === document.activeElement"):
                return
        raise AssertionError(f"Tab does not reach {wanted}")

    def press(self, wanted: Locator, key: str) -> None:
        """Reach a button or a link, and press it; without a script another page comes."""
        self.reach(wanted)
        with nullcontext() if self._scripted else self.page.expect_navigation():
            self.page.keyboard.press(key)

    def upload(self, path: Path, key: str) -> None:
        self.reach(self.page.get_by_label("PDF files"))
        with self.page.expect_file_chooser() as choosing:
            self.page.keyboard.press(key)
        choosing.value.set_files(path)  # the chooser is the browser's own, and not the page's
        self.press(self.button("Upload"), key)
        expect(row(self.page, path.name)).to_be_visible()

    def await_state(self, name: str, wanted: str) -> None:
        def look() -> bool:
            self.press(self.page.get_by_role("link", name="Refresh"), "Enter")
            return state(self.page, name).inner_text() == wanted

        if not self._scripted:
            until(f"{name} is {wanted}", look)
        expect(state(self.page, name)).to_have_text(wanted)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)


@pytest.mark.parametrize("scripted", [True, False], ids=["script", "forms"])
def test_a_user_without_a_pointer_does_everything_by_keyboard_and_always_sees_the_focus(
    chromium, converter, tmp_path, scripted
):
    with page_of(chromium, converter, java_script_enabled=scripted) as page:
        typist = Typist(page, scripted=scripted)
        good, bad, hanging = files(tmp_path, "good", "bad", "hanging")
        typist.upload(good, "Enter")
        typist.await_state("good.pdf", "Complete")
        typist.reach(page.get_by_role("link", name="Download the XML of good.pdf"))
        with page.expect_download() as downloading:
            page.keyboard.press("Enter")
        assert downloading.value.suggested_filename == "good.xml"

        converter.order(status=400, code="X")
        typist.upload(bad, "Space")
        typist.await_state("bad.pdf", "Failed")
        converter.order()
        typist.press(typist.button("Retry bad.pdf"), "Space")
        typist.await_state("bad.pdf", "Complete")

        converter.order(hang=True)
        typist.upload(hanging, "Enter")
        typist.press(typist.button("Cancel hanging.pdf"), "Enter")
        typist.await_state("hanging.pdf", "Cancelled")
        if scripted:  # nothing has moved, and the focus is where it was
            expect(typist.button("Remove hanging.pdf")).to_be_focused()
            assert page.evaluate(FOCUS_IS_SEEN)
        typist.press(typist.button("Remove hanging.pdf"), "Space")
        expect(row(page, "hanging.pdf")).to_have_count(0)

        page.reload()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to your files")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#files")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.locator("#files :focus")).to_have_count(1)


def refresh_until(page: Page, name: str, wanted: str) -> None:
    def look() -> bool:
        page.get_by_role("link", name="Refresh").click()
        return state(page, name).inner_text() == wanted

    until(f"{name} is {wanted}", look)


EXPIRE = "UPDATE perdure_jobs SET finished_at = (extract(epoch FROM now()) * 1e6)::bigint - 86400000000 WHERE state = 'succeeded'"


def test_an_open_page_takes_the_download_away_when_the_result_expires(
    chromium, converter, tmp_path
):
    with page_of(chromium, converter) as page:
        upload(page, *files(tmp_path, "old"))
        download = page.get_by_role("link", name="Download the XML of old.pdf")
        expect(download).to_be_visible()
        with psycopg.connect(converter.database_url) as cx:  # a day later; nobody has swept
            cx.execute(EXPIRE)
        expect(row(page, "old.pdf")).to_contain_text("No longer kept: upload it again")
        expect(download).to_have_count(0)


def test_an_open_page_shows_by_itself_that_the_queue_is_held_and_that_it_goes_on(
    chromium, converter
):
    with page_of(chromium, converter) as page:
        banner = page.get_by_text("The converter is busy.")
        expect(banner).to_have_count(0)
        hold(converter)
        try:
            expect(banner).to_be_visible()
        finally:
            hold(converter, release=True)
        expect(banner).to_have_count(0)


def test_the_page_says_what_is_refused_and_that_the_server_is_away(chromium, converter, tmp_path):
    with page_of(chromium, converter) as page:
        text = tmp_path / "text.pdf"
        text.write_text("no PDF")
        large = tmp_path / "large.pdf"
        large.write_bytes(bytes(20_000_001))
        upload(page, text, large)
        expect(page.locator("#uploads").get_by_text("This file is not a PDF.")).to_be_visible()
        expect(page.locator("#uploads").get_by_text("This file is too large.")).to_be_visible()
        assert violations(page) == []
        page.context.set_offline(True)
        expect(
            page.get_by_text("The server cannot be reached. Your files are safe")
        ).to_be_visible()
        page.context.set_offline(False)
        expect(page.get_by_text("Connected again.")).to_be_visible()
