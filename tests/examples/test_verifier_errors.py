"""The verifier's errors: each variant is met for real, and becomes of it what its class says."""

import zipfile
from collections.abc import Iterator
from io import BytesIO

import pytest
from examples.verifier.app import policy_of
from examples.verifier.errors import Variant, VerifyError
from examples.verifier.replay import MAGIC, PROGRAM, read_claim, unpack
from examples.verifier.settings import read_settings

from tests.examples.converter_kit import until
from tests.examples.verifier_kit import VerifierTrial, verifier_trial

# The companion document's table of 22, and what was added to it later.
FINAL = """
    download.no_link download.security_violation download.forbidden download.missing
    game.bad_save game.bad_version game.old_version game.mod_mismatch game.script_injection
    api.not_found api.missing_field
"""
RETRYABLE = """
    download.service_error download.io
    game.download game.extraction game.install_dir game.spawn game.mod_info game.io
    api.network api.parse
"""
RATE_LIMITED = "download.rate_limited"
LATER = {"replay.timeout": "final", "replay.refused": "final", "replay.crashed": "retryable"}
TABLE = {
    **dict.fromkeys(FINAL.split(), "final"),
    **dict.fromkeys(RETRYABLE.split(), "retryable"),
    **dict.fromkeys(RATE_LIMITED.split(), "rate_limited"),
}
ALL = {**TABLE, **LATER}


def test_there_are_22_variants_and_three_later_ones_each_of_one_class():
    assert len(TABLE) == 22
    assert {one.code: one.error_class for one in Variant} == ALL
    assert len({one.code for one in Variant}) == len(Variant)


def test_the_class_of_a_variant_is_the_one_that_the_policy_has_for_its_kind(tmp_path):
    with verifier_trial(tmp_path, service="http://127.0.0.1:9"):
        policy = policy_of(read_settings()[0])
    assert {one.code: policy.vocabulary.code(one.kind) for one in Variant} == ALL


def strange(trial: VerifierTrial) -> dict[str, str]:
    """Submit a run for each variant, its id the variant's code, and see to it that it is met; those that were."""

    def file(code: str) -> str:
        return f"/files/{code}.save"

    def version(minor: int) -> dict[str, str]:
        return {"version": f"2.{minor}"}

    runs = {
        "download.no_link": {"link": None},
        "download.security_violation": {"link": "http://elsewhere.example/files/x.save"},
        "api.missing_field": {"player": None},
        "game.bad_version": {"header": {"version": "two"}},
        "game.old_version": {"header": {"version": "1.9"}},
        "game.mod_mismatch": {"header": {"mods": {"base": "1.0", "cheats": "6.6"}}},
        "game.download": {"header": version(3)},
        "game.extraction": {"header": version(4)},
        "game.install_dir": {"header": version(5)},
        "game.mod_info": {"header": version(6)},
        "game.io": {"header": version(7)},
        "game.bad_save": {"sort": "no save"},
        "game.script_injection": {"sort": "injected"},
        "replay.refused": {"sort": "desync"},
        "replay.crashed": {"sort": "crash"},
    }
    elsewhere = ("game.spawn", "replay.timeout")
    for code in ALL:
        if code not in elsewhere:
            trial.submit(code, **runs.get(code, {}))
    trial.order(
        {"path": file("download.forbidden"), "status": 403},
        {"path": file("download.missing"), "status": 404},
        {"path": file("download.service_error"), "status": 503},
        {"path": file("download.rate_limited"), "status": 429, "retry_after": "3600"},
        {"path": "/games/2.3.zip", "status": 502},
        {"path": "/games/2.4.zip", "body": "PK half of it"},
        {"path": "/games/2.6/mods", "status": 500},
        {"path": "/games/2.7/mods", "status": 500},
        {"path": "/api/runs/api.network", "status": 503},
        {"path": "/api/runs/api.parse", "body": "<html>down for a while</html>"},
        {"path": "/api/runs/api.not_found", "status": 404},
    )
    (trial.folder / "data" / "saves" / "download.io.save").mkdir(parents=True)
    (trial.folder / "data" / "games").mkdir()
    (trial.folder / "data" / "games" / "2.5").write_text("a file where a folder should be")
    return {code: ALL[code] for code in ALL if code not in elsewhere}


@pytest.fixture(scope="module")
def met(tmp_path_factory) -> Iterator[VerifierTrial]:
    """Every variant but two, met by one worker."""
    folder, slow = tmp_path_factory.mktemp("verifier"), {"initial_backoff": 3600}
    with verifier_trial(folder, concurrency=4, retry=slow) as trial:
        codes = strange(trial)
        with trial.working():
            trial.discover()
            for code in codes:
                trial.until_status(code, "error")
            # Its save goes while it waits for its next try, which then cannot read it.
            (trial.folder / "data" / "saves" / "game.io.save").unlink()
            trial.job("game.io").run_now()
            until("it is tried again", lambda: trial.row("game.io").retry_count == 2)
        yield trial


@pytest.mark.parametrize(
    "code", [one for one in ALL if one not in ("game.spawn", "replay.timeout")]
)
def test_a_variant_is_met_and_stored_with_its_class(met, code):
    row = met.row(code)
    assert row.error_message.startswith(f"{code}: ")
    assert row.error_class == ALL[code]
    assert (row.next_retry_at is None) == (ALL[code] == "final")
    assert met.job(code).view().failed_reason == ("fatal" if ALL[code] == "final" else None)


@pytest.mark.parametrize(
    "link",
    [
        "http://[oops/files/x.save",
        "{}/files/../x",
        "{}/files/%2e%2e/x",
        "{}/files/\x00",
        "/files/x",
    ],
)
def test_a_link_that_is_none_is_refused_for_good(met, link):
    with pytest.raises(VerifyError) as caught:
        met.verifier.submissions.save(link.format(met.service))
    assert caught.value.variant is Variant.SECURITY_VIOLATION


DEEP = "[" * 5_000


def encrypted_package() -> bytes:
    """A package whose program is marked as encrypted, in both of its headers."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(PROGRAM, "")
    content = bytearray(packed.getvalue())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def test_what_is_nested_without_end_or_packed_oddly_has_its_variant_too(met, tmp_path):
    def variant_of(deed, *given) -> Variant:
        with pytest.raises(VerifyError) as caught:
            deed(*given)
        return caught.value.variant

    save = tmp_path / "deep.save"
    save.write_text(f"{MAGIC}\n{DEEP}\n")
    met.order({"path": "/api/runs/deep", "body": DEEP}, {"path": "/games/2.0/mods", "body": DEEP})
    assert variant_of(read_claim, save) is Variant.BAD_SAVE
    assert variant_of(met.verifier.submissions.run, "deep") is Variant.API_PARSE
    assert variant_of(met.verifier.submissions.mods, "2.0") is Variant.MOD_INFO
    assert variant_of(unpack, encrypted_package(), tmp_path / "game") is Variant.EXTRACTION


HEADER = '{"version": "2.0", "category": "any%", "seed": 1, "ticks": 1, "mods": {}}'


@pytest.mark.parametrize("end", ["\n", "\r\n", "\u2028", "\x85", "\x0b"])
def test_a_command_is_found_in_whatever_the_game_takes_for_a_line(tmp_path, end):
    save = tmp_path / "run.save"
    save.write_bytes(end.join([MAGIC, HEADER, "RRD"]).encode())
    assert read_claim(save).seed == 1
    save.write_bytes(end.join([MAGIC, HEADER, "RRD", "/cheat"]).encode())
    with pytest.raises(VerifyError) as caught:
        read_claim(save)
    assert caught.value.variant is Variant.SCRIPT_INJECTION


@pytest.mark.parametrize("text", ["", MAGIC, f"{MAGIC}\n", f"other\n{HEADER}\n"])
def test_a_save_that_is_cut_off_or_of_another_kind_is_bad(tmp_path, text):
    save = tmp_path / "run.save"
    save.write_text(text)
    with pytest.raises(VerifyError) as caught:
        read_claim(save)
    assert caught.value.variant is Variant.BAD_SAVE


def test_a_game_that_cannot_be_started_is_tried_again(tmp_path):
    with verifier_trial(tmp_path, replay={"python": "/nowhere/python"}) as trial, trial.working():
        trial.submit("r1")
        trial.discover()
        row = trial.until_status("r1", "error")
    assert row.error_message == "game.spawn: python: No such file or directory"
    assert (row.error_class, row.next_retry_at is None) == ("retryable", False)


def test_a_replay_that_hangs_is_ended_for_good(tmp_path):
    with verifier_trial(tmp_path, replay={"timeout": 0.5}) as trial, trial.working():
        trial.submit("r1", "hang")
        trial.discover()
        row = trial.until_status("r1", "error")
    assert row.error_message == "replay.timeout: it is not over after 0.5 s"
    assert (row.error_class, row.next_retry_at) == ("final", None)


def test_a_replay_that_takes_more_memory_than_it_has_is_tried_again(tmp_path):
    with verifier_trial(tmp_path, replay={"memory_mb": 256}) as trial, trial.working():
        trial.submit("r1", "hungry")
        trial.discover()
        row = trial.until_status("r1", "error")
    assert row.error_message == "replay.crashed: it ended with status 1: MemoryError"
    assert (row.error_class, row.next_retry_at is None) == ("retryable", False)
