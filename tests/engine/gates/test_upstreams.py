"""Upstreams as they are declared: what is refused, what is assumed, how rates are read."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from perdure.engine.gates.upstreams import (
    CONCURRENCY_MAX,
    PROBE_MORE_S,
    DeclaredUpstream,
    Upstreams,
    rate_per_s,
    upstream_limits,
)
from perdure.model.errors import ConfigError
from perdure.model.nouns import replace
from perdure.rules.gate.gate import GateSettings, basic_gate
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.presets import preset
from tests.engine.gating import stage


@pytest.mark.parametrize(
    ("said", "per_s"),
    [
        ("500/min", 500 / 60), ("20/s", 20.0), ("1000/hour", 1_000 / 3_600), ("86400/day", 1.0),
        (" 1_000 / minute ", 1_000 / 60), ("2.5 per s", 2.5), (3, 3.0), (0.5, 0.5),
    ],
)  # fmt: skip
def test_rates_are_read_as_people_write_them(said, per_s):
    assert rate_per_s("rate", said) == pytest.approx(per_s)


@pytest.mark.parametrize(
    "said", ["", "500", "fast", "5/fortnight", "-3/s", "0/s", 0, -1, 1e10, True, "1e3/s", "1/s/s"]
)
def test_what_is_no_rate_is_refused_with_an_example(said):
    with pytest.raises(ConfigError, match=r"rate is"):
        rate_per_s("rate", said)


@given(st.text(max_size=20))
def test_no_text_breaks_the_reader_of_rates(said):
    with suppress(ConfigError):
        assert 0 < rate_per_s("rate", said) < 1e9


def test_no_rate_is_no_limit():
    limits = upstream_limits("vendor", rate=None, concurrency=None, tokens=None)
    assert limits == UpstreamLimits()
    assert not limits.any


@pytest.mark.parametrize("concurrency", [0, -1, CONCURRENCY_MAX + 1, "many", 1.5, True])
def test_a_concurrency_out_of_bounds_is_refused(concurrency):
    words = f"upstream 'vendor': concurrency is {concurrency!r}; it must be a whole number"
    with pytest.raises(ConfigError, match=words):
        upstream_limits("vendor", rate=None, concurrency=concurrency, tokens=None)


def test_an_upstream_is_declared_once():
    upstreams = Upstreams()
    upstreams.declare(DeclaredUpstream("vendor"))
    with pytest.raises(ConfigError, match="declared twice"):
        upstreams.declare(DeclaredUpstream("vendor"))


def test_a_credential_has_a_name_of_its_own():
    upstreams = Upstreams()
    upstreams.declare(DeclaredUpstream("vendor", credential="key-1"))
    with pytest.raises(ConfigError, match="name them apart"):
        upstreams.declare(DeclaredUpstream("key-1"))


@pytest.mark.parametrize("name", ["", " vendor", "x" * 1_000, "a\nb"])
def test_names_that_nobody_could_type_are_refused(name):
    with pytest.raises(ConfigError, match="name"):
        DeclaredUpstream(name)
    with pytest.raises(ConfigError, match="name"):
        DeclaredUpstream("vendor", credential=name)


def test_tokens_below_nothing_are_refused():
    with pytest.raises(ConfigError, match="tokens_per_call"):
        DeclaredUpstream("vendor", tokens_per_call=-1)


def test_one_that_nobody_declared_has_the_gate_of_its_policy():
    upstreams = Upstreams()
    assert upstreams.of(stage(upstream=None)) is None
    plain, basic = stage(), stage(upstream="pdf", policy=preset("converter"))
    assert upstreams.of(plain) == DeclaredUpstream("vendor", gate=GateSettings())
    assert upstreams.of(basic) == DeclaredUpstream("pdf", gate=basic_gate())


def test_a_probe_has_at_least_the_time_that_its_stage_has():
    slow = replace(stage("slow"), timeout_s=900.0)
    known = Upstreams().all([stage(), slow, stage("free", None)])
    assert list(known) == ["vendor"]
    assert known["vendor"].gate.lease_s == 900.0 + PROBE_MORE_S
    assert Upstreams().all([stage()])["vendor"].gate.lease_s == GateSettings().lease_s
