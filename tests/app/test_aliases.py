"""An application's own names for settings: in its file and in the environment, in its units, and none that leads nowhere."""

import os

import pytest

from perdure import Alias, App, Backoff, ConfigError, Policy, Setting, UnknownName, load_settings

ATTEMPTS = Setting(
    "retry_attempts_max", int, 3, "attempts", "Attempts, the first one included.", least=1, most=50
)
BASE = Setting("retry_base_s", float, 5.0, "seconds", "The first delay.", least=0.0)
CAP = Setting("retry_cap_s", float, 60.0, "seconds", "The longest delay.", least=0.0)
FACTOR = Setting("retry_factor", float, 2.0, "", "What each delay is of the one before.", least=1.0)
KEY = Setting("gateway_key", str, "", "", "What the gateway knows us by.", secret=True)

# As the environment of the converter and the file of the verifier have them.
CONVERTER = (
    Alias("store", variable="DATABASE_URL"),
    Alias("concurrency", variable="WORKER_CONCURRENCY"),
    Alias("lease_ttl_s", variable="WORKER_LEASE_TTL_SEC", unit="s"),
    Alias(ATTEMPTS, variable="RETRY_MAX_ATTEMPTS"),
    Alias(BASE, variable="RETRY_BASE_DELAY_MS", unit="ms"),
    Alias(KEY, variable="GATEWAY_KEY"),
)
VERIFIER = (
    Alias("poll_s", key="polling_s"),
    Alias(ATTEMPTS, key="retry.max_attempts"),
    Alias(BASE, variable="INITIAL_BACKOFF_MIN", key="retry.backoff.initial", unit="min"),
    Alias(CAP, key="retry.backoff.max", unit="min"),
    Alias(FACTOR, key="retry.backoff.multiplier"),
)
DAEMON = {
    "polling_s": 0.5,
    "bot": {"token": "anything"},
    "retry": {"max_attempts": 8, "backoff": {"initial": 1, "max": 60, "multiplier": 2}},
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    for name in [one for one in os.environ if one.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_of_the_environment_are_those_settings_in_their_units(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "sqlite:///old.db")
    monkeypatch.setenv("WORKER_CONCURRENCY", "4")
    monkeypatch.setenv("WORKER_LEASE_TTL_SEC", "300")
    monkeypatch.setenv("RETRY_MAX_ATTEMPTS", "5")
    monkeypatch.setenv("RETRY_BASE_DELAY_MS", "1100")
    settings = load_settings(CONVERTER)
    assert (settings[ATTEMPTS], settings[BASE], settings[KEY]) == (5, 1.1, "")
    assert settings["lease_ttl_s"] == 300.0
    assert settings.origin("lease_ttl_s") == "variable WORKER_LEASE_TTL_SEC"
    assert settings.origin(BASE) == "variable RETRY_BASE_DELAY_MS, in ms"
    assert settings.origin(KEY) == "default"
    app = App(settings=settings)
    assert app.url.endswith("/old.db")
    config = app.working()._config
    assert (config.concurrency, config.lease_ttl_s) == (4, 300.0)


def test_keys_of_a_file_are_those_settings_and_what_else_stands_in_it_is_left_alone():
    settings = load_settings(VERIFIER, file_name="daemon.yaml", file_content=DAEMON)
    assert (settings[ATTEMPTS], settings[BASE], settings[FACTOR]) == (8, 60.0, 2.0)
    assert settings["poll_s"] == 0.5
    assert settings.origin(ATTEMPTS) == "retry.max_attempts in daemon.yaml"
    assert settings.origin(BASE) == "retry.backoff.initial in daemon.yaml, in min"


def test_the_four_keys_of_the_verifiers_file_make_its_policy():
    """R113."""
    settings = load_settings(VERIFIER, file_name="daemon.yaml", file_content=DAEMON)
    backoff = Backoff(base_s=settings[BASE], factor=settings[FACTOR], cap_s=settings[CAP])
    published = Policy.based_on("verifier", name="published")
    made = Policy.based_on(
        "verifier", name="made", attempts_max=settings[ATTEMPTS], backoff=backoff
    )
    assert (made.attempts_max, made.backoff) == (published.attempts_max, published.backoff)
    other = {**DAEMON, "retry": {"max_attempts": 2, "backoff": {"max": 1}}}
    less = load_settings(VERIFIER, file_name="daemon.yaml", file_content=other)
    assert (less[ATTEMPTS], less[CAP], less[BASE]) == (2, 60.0, 5.0)


def test_without_any_of_them_the_defaults_are_in_force():
    settings = load_settings(VERIFIER, file_content={})
    assert (settings[ATTEMPTS], settings[BASE], settings["poll_s"]) == (3, 5.0, 1.0)


def test_our_own_name_beats_the_alias_on_its_level_and_the_environment_any_file(here, monkeypatch):
    """Both names of both levels, from the weakest to the strongest."""
    aliases = [Alias("concurrency", variable="WORKER_CONCURRENCY", key="workers")]

    def seen(**given) -> tuple[object, str]:
        settings = load_settings(aliases, file_name="daemon.yaml", file_content={"workers": 2})
        settings = settings.with_given(given)
        return settings["concurrency"], settings.origin("concurrency")

    assert seen() == (2, "workers in daemon.yaml")
    (here / "perdure.toml").write_text("concurrency = 3\n")
    assert seen() == (3, "concurrency in perdure.toml")
    monkeypatch.setenv("WORKER_CONCURRENCY", "4")
    assert seen() == (4, "variable WORKER_CONCURRENCY")
    monkeypatch.setenv("PERDURE_CONCURRENCY", "5")
    assert seen() == (5, "variable PERDURE_CONCURRENCY")
    assert seen(concurrency=6) == (6, "argument concurrency")


def test_what_is_wrong_under_a_name_of_the_application_is_told_with_that_name_and_unit(monkeypatch):
    monkeypatch.setenv("WORKER_LEASE_TTL_SEC", "0.1")
    monkeypatch.setenv("RETRY_MAX_ATTEMPTS", "51")
    monkeypatch.setenv("RETRY_BASE_DELAY_MS", "-1")
    monkeypatch.setenv("WORKER_CONCURRENCY", "many")
    with pytest.raises(ConfigError) as caught:
        load_settings(CONVERTER)
    assert str(caught.value).splitlines() == [
        "4 settings are wrong:",
        "  - WORKER_CONCURRENCY is 'many'; it must be a whole number",
        "  - WORKER_LEASE_TTL_SEC is '0.1'; it must be at least 0.3",
        "  - RETRY_MAX_ATTEMPTS is '51'; it must be at most 50",
        "  - RETRY_BASE_DELAY_MS is '-1'; it must be at least 0 ms",
    ]


@pytest.mark.parametrize("text", ["inf", "nan", "1e400", "", "5 s"])
def test_what_is_no_number_in_another_unit_is_refused(text, monkeypatch):
    monkeypatch.setenv("RETRY_BASE_DELAY_MS", text)
    with pytest.raises(ConfigError, match="RETRY_BASE_DELAY_MS is "):
        load_settings(CONVERTER)


def test_a_misspelt_key_beside_aliased_ones_stops_with_the_nearest_name():
    wrong = {"retry": {"max_atempts": 8, "backoff": {"initial": 1, "multiplyer": 2}}, "polling": 3}
    with pytest.raises(ConfigError) as caught:
        load_settings(VERIFIER, file_name="daemon.yaml", file_content=wrong)
    assert str(caught.value).splitlines()[1:] == [
        "  - 'retry.max_atempts' in daemon.yaml is no setting; did you mean 'retry.max_attempts'?",
        "  - 'retry.backoff.multiplyer' in daemon.yaml is no setting; did you mean 'retry.backoff.multiplier'?",
    ]


def test_a_table_that_is_none_is_refused():
    with pytest.raises(
        ConfigError, match=r"retry in daemon.yaml is 'never'; it must be a table wi"
    ):
        load_settings(VERIFIER, file_name="daemon.yaml", file_content={"retry": "never"})
    with pytest.raises(
        ConfigError, match=r"the application's file is '8'; .* a whole number, without qu"
    ):
        load_settings(VERIFIER, file_content={"retry": {"max_attempts": "8"}})


LEADS_NOWHERE = [
    (Alias("concurency", variable="A"), "'concurency' leads nowhere.*did you mean 'concurrency'"),
    (Alias("concurrency"), "leads from nowhere; give it a variable, a key or both"),
    (Alias("concurrency", variable=""), "has the variable ''"),
    (Alias("concurrency", variable="A B"), "has the variable 'A B'"),
    (Alias("concurrency", variable="PERDURE_JOBS"), "begin with PERDURE_ are Perdure's own"),
    (Alias("concurrency", key="a..b"), "has the key 'a..b'"),
    (Alias("concurrency", key="jobs"), "'jobs', and there is no file that could have it"),
    (Alias("grace_s", variable="A", unit="sec"), "has the unit 'sec'; one of: ms, s, min, h, d"),
    (Alias("concurrency", variable="A", unit="ms"), "is no float in seconds"),
    (Alias(FACTOR, variable="A", unit="ms"), "is no float in seconds"),
    (Alias(Setting("grace_s", float, 1.0, "", ""), variable="A"), "that Perdure has itself"),
    (Alias(Setting("Grace", float, 1.0, "", ""), variable="A"), "whose name is none"),
    (Alias(Setting("own", list, [], "", ""), variable="A"), "of type <class 'list'>; one of"),
    (Alias(Setting("own", int, 0, "", "", least=1), variable="A"), "its default is 0; it must be"),
]  # fmt: skip


@pytest.mark.parametrize(("alias", "words"), LEADS_NOWHERE, ids=lambda one: str(one)[:40])
def test_an_alias_that_leads_nowhere_is_an_error(alias, words):
    with pytest.raises(ConfigError, match=words):
        load_settings([alias])


@pytest.mark.parametrize(
    ("aliases", "words"),
    [
        ([Alias("grace_s", "A"), Alias("poll_s", "A")], "two aliases have the variable 'A'"),
        ([Alias("grace_s", "A"), Alias("grace_s", "B")], "two aliases have the setting 'grace_s'"),
        ([Alias("grace_s", key="a"), Alias("poll_s", key="a")], "two aliases have the key 'a'"),
        (["grace_s"], "an alias is 'grace_s'; it must be a Alias"),
    ],
)
def test_two_that_are_in_each_others_way_are_an_error(aliases, words):
    with pytest.raises(ConfigError, match=words):
        load_settings(aliases, file_content={})


def test_a_setting_that_nobody_declared_is_unknown():
    settings = load_settings(CONVERTER)
    with pytest.raises(UnknownName, match="no setting 'concurency'; did you mean 'concurrency'"):
        settings["concurency"]
    with pytest.raises(UnknownName, match="no setting 'retry_factor'"):
        settings[FACTOR]


def test_an_app_takes_settings_and_nothing_else():
    with pytest.raises(ConfigError, match=r"settings of an App is \{\}; it must be a Settings"):
        App(settings={})


NEEDED = (
    Alias("store", variable="DATABASE_URL", needed=True, begins=("postgresql://", "sqlite:")),
    Alias(KEY, variable="GATEWAY_KEY", key="gateway.key", needed=True),
    Alias(ATTEMPTS, variable="RETRY_MAX_ATTEMPTS"),
)


def needed(content=None):
    return load_settings(NEEDED, file_name="daemon.yaml", file_content=content or {})


def test_what_is_needed_and_not_there_or_empty_is_named_all_of_it_at_once(monkeypatch):
    monkeypatch.setenv("GATEWAY_KEY", "")
    with pytest.raises(ConfigError) as refused:
        needed()
    assert [line.partition(";")[0] for line in str(refused.value).splitlines()] == [
        "DATABASE_URL is not set",
        "GATEWAY_KEY or gateway.key in daemon.yaml is not set",
    ]
    assert "it is needed: What the gateway knows us by." in str(refused.value)


def test_what_is_needed_may_be_set_under_any_of_its_names(monkeypatch):
    monkeypatch.setenv("PERDURE_STORE", "sqlite:///here.db")
    settings = needed({"gateway": {"key": "abc"}})
    assert (settings["store"], settings[KEY], settings[ATTEMPTS]) == ("sqlite:///here.db", "abc", 3)


def test_a_value_that_begins_otherwise_is_named_and_not_shown(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "mysql://ann:canary@db/x")
    with pytest.raises(ConfigError) as refused:
        needed({"gateway": {"key": "abc"}})
    assert str(refused.value) == "variable DATABASE_URL must begin with postgresql:// or sqlite:"


@pytest.mark.parametrize(
    "address",
    [
        "http://",
        "http:///v1",
        "https://[ann:canary@x",
        "http://canary:65536",
        "http://x\n",
        "http://x ",
        "http://a b",
        "http://a..b",
        "http://1.2.3.999",
    ],
)
def test_an_http_address_that_leads_nowhere_is_named_and_not_shown(monkeypatch, address):
    monkeypatch.setenv("GATEWAY_URL", address)
    url = Setting("gateway_url", str, "", "URL", "Where the gateway is.")
    alias = Alias(url, variable="GATEWAY_URL", begins=("http://", "https://"))
    with pytest.raises(ConfigError) as refused:
        load_settings([alias])
    told = "variable GATEWAY_URL must be an address, as in http://127.0.0.1:9000/v1"
    assert str(refused.value) == told
    for good in ("", "http://x", "https://ann:secret@[::1]:9000/v1/"):
        monkeypatch.setenv("GATEWAY_URL", good)
        assert load_settings([alias])[url] == good
