"""Photograph the converter's page in a real browser, with files in every state.

``python tools/screenshots.py`` writes examples/converter/pictures; `make screenshots` calls it. It needs Debian's Chromium.
"""

import io
import tempfile
from pathlib import Path

from examples.converter.samples import make_pdf
from PIL import Image
from tests.examples.chromium import DESK, PHONE, PROGRAM, browsing
from tests.examples.converter_kit import Trial, User, trial, until
from tests.servers.postgres import Server

from perdure.app.surface import gate_control

PICTURES = Path(__file__).resolve().parent.parent / "examples" / "converter" / "pictures"
COLOURS = 96  # of a page with few of them; a quarter of the size
SHOTS = {
    "light": {**DESK, "color_scheme": "light"},
    "dark": {**DESK, "color_scheme": "dark"},
    "phone": {**PHONE, "color_scheme": "light"},
}


def main() -> None:
    """Play until there is something of everything, and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(in_memory=True) as server,
        trial(Path(folder), server.create_database()) as stage,
        stage.working(),
    ):
        photograph(stage, furnish(stage))
        stage.order()  # lets go of whoever hangs in the gateway, which would end with a trace


def furnish(stage: Trial) -> User:
    """Somebody's files, one in each state, and a gateway that is held."""
    ann = stage.user()

    def upload(name: str, state: str, **faults: object) -> str:
        stage.order(**faults)
        job_id = ann.upload(make_pdf(name, [name, "x"], padding=sum(map(ord, name)) * 97), name)
        until(f"{name} is {state}", lambda: ann.status(job_id) == state)
        return job_id

    upload("Annual report 2025.pdf", "complete")
    upload("Delivery note 4711.pdf", "complete")
    upload("Contract, scanned.pdf", "failed", status=400, code="X")
    gone = upload("Old price list.pdf", "failed", status=400, code="X")
    stage.converter.files.source(stage.job(gone).view().key).unlink()
    upload("Invoice 2026-114.pdf", "complete")
    ann.delete(f"/api/jobs/{upload('Wrong file.pdf', 'processing', hang=True)}")
    stage.order(status=502, code="X", count=1)
    late = stage.job(
        ann.upload(make_pdf("Minutes", ["x"], padding=40_000), "Minutes of the board.pdf")
    )
    until("it waits for its next try", lambda: late.attempts() and late.state == "queued")
    upload("Manual for the coffee machine, third edition.pdf", "processing", hang=True)
    gate_control.hold(
        stage.converter.app._session.opened,
        "gateway",
        by_whom="tool",
        reason="a picture",
        for_text=None,
    )
    ann.upload(make_pdf("Offer", ["x"], padding=120_000), "Offer.pdf")
    until("it is held", lambda: ann.get("/api/jobs").json()["gateway"] == "held")
    return ann


def photograph(stage: Trial, ann: User) -> None:
    """The page as it looks to a user on a desk and with a phone."""
    cookies = [
        {"name": name, "value": value, "url": stage.site} for name, value in ann.cookies.items()
    ]
    with browsing() as browser:
        for name, options in SHOTS.items():
            window = browser.new_context(**options)
            window.add_cookies(cookies)
            page = window.new_page()
            page.goto(stage.site, wait_until="load")
            shot = page.screenshot(full_page=name != "phone")
            picture = Image.open(io.BytesIO(shot)).quantize(COLOURS)
            picture.save(PICTURES / f"{name}.png", optimize=True)
            print(f"wrote {name}.png")


if __name__ == "__main__":
    if not PROGRAM.exists():
        raise SystemExit(
            "screenshots: no chromium; install it: sudo apt-get install --no-install-recommends chromium"
        )
    main()
