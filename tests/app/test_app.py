"""The App as a caller uses it: declared, enqueued to, waited for; and what it refuses."""

import asyncio
import functools
import inspect
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure import (
    App,
    CallerError,
    ConfigError,
    DeadLetters,
    Item,
    JobFailed,
    JobRef,
    JobUnfinished,
    PayloadRefused,
    Pipeline,
    Policy,
    Redrive,
    Run,
    StoreUnavailable,
)
from perdure.app.jobs import Jobs
from perdure.model.states import State
from perdure.rules import policy as policy_module


def declared(tmp_path) -> tuple[App, object]:
    app = App(f"sqlite:///{tmp_path / 'work.db'}")

    @app.stage
    def one(item):
        return item

    return app, app.pipeline("p", one)


@pytest.fixture
def app_and_pipe(tmp_path):
    app, pipe = declared(tmp_path)
    yield app, pipe
    app.close()


def test_async_callers_enqueue_and_wait_like_sync_ones(app_and_pipe):
    _, pipe = app_and_pipe

    async def calls():
        one = await pipe.enqueue_async({"n": 1}, key="k")
        again = await pipe.enqueue_async({"n": 1}, key="k")
        many = await pipe.enqueue_many_async([{"n": n} for n in range(3)], priority=2)
        with pytest.raises(JobUnfinished, match="queued after a wait of 0"):
            await one.result_async(wait_s=0)
        return one, again, many

    one, again, many = asyncio.run(calls())
    assert (one.id, one.created, again.created) == (again.id, True, False)
    assert [ref.view().priority for ref in many] == [2, 2, 2]


def test_bulk_keeps_the_order(app_and_pipe):
    app, pipe = app_and_pipe
    refs = pipe.enqueue_many(range(25))
    numbers = [ref.view().no for ref in refs]
    assert numbers == sorted(numbers)
    assert app._session.opened.reader.books().queued == 25


def test_each_of_many_may_have_options_of_its_own(app, told):
    pipe = app.pipeline("p", app.stage(item_of))
    soon, then = (datetime.now(UTC) + timedelta(hours=n) for n in (1, -1))
    refs = pipe.enqueue_many(
        [
            Item(1, key="a", run_at=soon, deadline_s=60, priority=3, owner="ann", request_id="r-1"),
            2,
            Item({"n": 3}, ordered_at=then),
            Item(4, key="a", owner="ann"),
        ],
        owner="bob",
        priority=1,
    )
    jobs = [ref.view() for ref in refs]
    assert [job.payload_json for job in jobs] == ["1", "2", '{"n":3}', "1"]
    assert [ref.created for ref in refs] == [True, True, True, False]
    assert [(job.owner, job.key, job.priority) for job in jobs[:3]] == [
        ("ann", "a", 3),
        ("bob", None, 1),
        ("bob", None, 1),
    ]
    assert (jobs[0].due_at, jobs[0].deadline_at) == (soon, soon + timedelta(seconds=60))
    assert jobs[0].request_id == "r-1"
    assert jobs[2].ordered_at == then
    (event,) = told
    assert (event.fields["count"], event.fields["request_id"]) == (3, "r-1")


WRONG_ITEMS = [
    (Item(1, priority="high"), CallerError, "item 2: priority is 'high', of type str; pass int"),
    (Item(1, key="k", run_at=datetime(2026, 1, 1)), CallerError, r"item 2 \(key 'k'\): run_at .* has no time zone"),  # noqa: DTZ001
    (Item(1, owner=" ann"), ConfigError, "item 2: owner name ' ann'"),
    (Item({1, 2}), PayloadRefused, "item 2: the item"),
    ({1, 2}, PayloadRefused, "item 2: the item"),
]  # fmt: skip


@pytest.mark.parametrize(("item", "kind", "words"), WRONG_ITEMS)
def test_the_wrong_one_of_many_is_named_by_its_place(app_and_pipe, item, kind, words):
    app, pipe = app_and_pipe
    with pytest.raises(kind, match=words):
        pipe.enqueue_many([1, item, 3])
    assert app._session.opened.reader.books().accepted == 0


@pytest.mark.parametrize("act", ["enqueue", "call"])
def test_an_item_with_options_of_its_own_is_for_many_only(app_and_pipe, act):
    _, pipe = app_and_pipe
    item = Item(1, key="a")
    with pytest.raises(CallerError, match="an Item goes into enqueue_many or run; here, pass its"):
        getattr(pipe, act)(item)


def test_a_cancelled_job_says_so(app_and_pipe):
    _, pipe = app_and_pipe
    ref = pipe.enqueue(1)
    ref.cancel(reason="no longer wanted")
    assert ref.view().state is State.CANCELLED
    with pytest.raises(JobFailed, match="no longer wanted"):
        ref.result(wait_s=0)


WRONG = [
    {"priority": 1.5}, {"owner": None}, {"key": 5}, {"deadline_s": "a"}, {"run_at": "x"},
    {"priority": "a"}, {"run_at": datetime(2026, 1, 1)}, {"deadline_s": 0},  # noqa: DTZ001 - naive
    {"request_id": "a b"}, {"request_id": 5}, {"ordered_at": "2026-01-01"},
    {"ordered_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - naive
]  # fmt: skip


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_a_wrong_argument_is_named(app_and_pipe, options):
    _, pipe = app_and_pipe
    with pytest.raises(CallerError) as caught:
        pipe.enqueue(1, **options)
    assert next(iter(options)) in str(caught.value)


def generator(item):
    yield item


def three(a, b, c):
    return a, b, c


def item_of(item):
    return item


def three_of(item):
    return [item] * 3


BAD_STAGES = [
    (lambda app: app.stage(policy=3)(item_of), "policy"),
    (lambda app: app.stage(policy="gateway-sync")(item_of), "background"),
    (lambda app: app.stage(timeout_s="a")(item_of), "timeout_s"),
    (lambda app: app.stage(timeout_s=0)(item_of), "timeout_s"),
    (lambda app: app.stage(functools.partial(item_of)), "cannot be a stage"),
    (lambda app: app.stage(5), "cannot be a stage"),
    (lambda app: app.stage(generator), "generator"),
    (lambda app: app.stage(three), "stage 'three' has the required parameter 'b'"),
    (lambda app: app.stage(name=" ")(item_of), "stage name"),
    (lambda app: app.stage(process=True, name="x")(lambda item: item), "a lambda has no name"),
    (lambda app: app.stage(name="u", upstream=3)(lambda item: item), "upstream name 3 is no text"),
    (lambda app: app.pipeline("q", item_of), "not a stage"),
    (lambda app: app.pipeline("q", [item_of]), "one after the other"),
    (lambda app: app.pipeline("p", app.stage(item_of)), "declared twice"),
    (lambda app: app.pipeline("q"), "0 stages"),
]


@pytest.mark.parametrize(("declare", "words"), BAD_STAGES)
def test_a_wrong_declaration_is_refused_where_it_is_made(app_and_pipe, declare, words):
    app, _ = app_and_pipe
    with pytest.raises(ConfigError, match=words):
        declare(app)


def test_a_name_makes_any_callable_a_stage(app_and_pipe):
    app, _ = app_and_pipe
    part = app.stage(name="part", policy=Policy("own"))(functools.partial(item_of))
    assert app.pipeline("parts", part).name == "parts"


PUBLIC = [
    "close", "dead", "every", "follow", "following", "gate", "gate_async", "get_pipeline", "get_run", "job", "job_async", "jobs", "pipeline", "pipelines",
    "queue", "read_capture", "ready", "runs", "settings", "stage", "stats", "upstream", "url", "working",
]  # fmt: skip


def test_an_app_shows_what_its_users_use_and_nothing_else(app_and_pipe):
    app, _ = app_and_pipe
    assert [name for name in dir(app) if not name.startswith("_")] == PUBLIC


def test_no_name_but_an_async_one_is_awaited():
    users_hold = (App, Pipeline, JobRef, Run, Redrive, DeadLetters, Jobs)
    awaited = {
        name
        for kind in users_hold
        for name, value in vars(kind).items()
        if inspect.iscoroutinefunction(value) and not name.startswith("_")
    }
    assert awaited
    assert {name for name in awaited if not name.endswith("_async")} == set()
    plain = {name for kind in users_hold for name in vars(kind)}
    assert {name.removesuffix("_async") for name in awaited} <= plain


# -- policies in files -------------------------------------------------------------------

MINE = 'name = "mine"\nbased_on = "standard"\nattempts_max = 2\n'


def test_a_stage_uses_the_policy_in_a_file(app_and_pipe, tmp_path, monkeypatch):
    app, _ = app_and_pipe
    (tmp_path / "mine.toml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    declared = [
        app.stage(name="by name", policy="mine.toml")(item_of),
        app.stage(name="loaded", policy=Policy.load(tmp_path / "mine.toml"))(three_of),
        app.stage(name="by path", policy=tmp_path / "mine.toml")(lambda item: item),
    ]
    wanted = Policy.based_on("standard", name="mine", attempts_max=2)
    assert [app._stages[one].policy for one in declared] == [wanted] * 3


def test_a_call_uses_the_policy_at_a_path(app_and_pipe, tmp_path):
    _, pipe = app_and_pipe
    (tmp_path / "quick.toml").write_text('name = "quick"\nbased_on = "gateway-sync"\n')
    assert pipe.call(1, policy=tmp_path / "quick.toml").value == 1


WRONG_FILES = [
    ("mine.toml", MINE.replace("2", "0"), ConfigError, r"policy file 'mine\.toml': attempts_max is 0; it must be"),
    ("mine.toml", 'name = "mine\n', ConfigError, r"policy file 'mine\.toml' is not valid TOML: .* \(at line 1, column 13\)"),
    ("mine.json", '{"name"', ConfigError, r"policy file 'mine\.json' is not valid JSON: .* line 1 column 8"),
    ("mine.json", "[]", ConfigError, "does not hold a table"),
    ("other.toml", MINE, CallerError, r"cannot read the policy file 'mine\.toml' in the folder .*: No such file"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "text", "kind", "words"), WRONG_FILES)
def test_a_policy_file_that_is_wrong_or_missing_is_named(
    app_and_pipe, tmp_path, monkeypatch, file, text, kind, words
):
    app, _ = app_and_pipe
    (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    wanted = file.replace("other", "mine")
    for policy in (wanted, Path(wanted)):
        with pytest.raises(ConfigError, match=words):
            app.stage(policy=policy)
    with pytest.raises(kind, match=words):
        Policy.load(wanted)


def test_without_whoever_reads_files_a_policy_file_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(policy_module, "LOADERS", [])
    with pytest.raises(ConfigError, match=r"'mine\.toml': nobody here reads files; import perdure"):
        Policy.load("mine.toml")


def test_a_policy_that_is_neither_a_preset_nor_a_file_is_refused(app_and_pipe):
    app, _ = app_and_pipe
    with pytest.raises(ConfigError, match=r"no policy 'standart'; did you mean 'standard'\?"):
        app.stage(policy="standart")


# -- two apps ----------------------------------------------------------------------------


def test_two_apps_in_one_process_keep_to_themselves(tmp_path):
    apps = []
    for name in ("left", "right"):
        told = []
        app = App(f"sqlite:///{tmp_path / name}.db", observers=[told.append])

        @app.stage(name="one")
        def one(item, name=name):
            return [name, item]

        apps.append((app, app.pipeline("p", one), told))
    (left, left_pipe, left_told), (right, right_pipe, right_told) = apps
    one, two = left_pipe.enqueue(1, key="k"), right_pipe.enqueue(2, key="k")
    assert one.id != two.id
    assert (one.created, two.created) == (True, True)
    assert (left._session.opened.reader.job(two.id), right._session.opened.reader.job(one.id)) == (
        None,
        None,
    )
    assert [len(left_told), len(right_told)] == [1, 1]
    assert left_told[0].fields["job_id"] == one.id
    assert left.get_pipeline("p") is not right.get_pipeline("p")
    called = [pipe.call(5).value for pipe in (left_pipe, right_pipe)]
    assert called == [["left", 5], ["right", 5]]
    left.close()
    assert right_pipe.enqueue(3).view().payload_json == "3"
    right.close()


def test_two_apps_may_share_a_store_and_a_function(tmp_path):
    url = f"sqlite:///{tmp_path / 'both.db'}"
    apps = [App(url), App(url)]
    pipes = [
        app.pipeline(f"p{number}", app.stage(timeout_s=number + 1.0)(item_of))
        for number, app in enumerate(apps)
    ]
    refs = [pipe.enqueue(number) for number, pipe in enumerate(pipes)]
    assert [ref.view().pipeline for ref in refs] == ["p0", "p1"]
    assert apps[0]._session.opened.reader.books().queued == 2
    assert [app.pipelines for app in apps] == [("p0",), ("p1",)]
    with pytest.raises(CallerError, match="has no pipeline 'p1'"):
        apps[0].get_pipeline("p1")
    for app in apps:
        app.close()


def test_an_app_that_was_closed_connects_again_when_it_is_asked_for_something(app_and_pipe):
    app, pipe = app_and_pipe
    first = pipe.enqueue(1)
    app.close()
    assert pipe.enqueue(2).created
    assert first.view().state is State.QUEUED
    app.close()
    app.close()  # once more does no harm


def test_a_store_that_cannot_be_opened_is_told_at_the_start_by_an_app_without_pipelines(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'missing' / 'work.db'}")
    with pytest.raises(StoreUnavailable, match="check that its folder exists"):
        app.ready()


# -- types -------------------------------------------------------------------------------


@dataclass
class Order:
    id: int
    lines: list[str]


def first(order: Order) -> Order:
    return order


def test_an_item_is_checked_against_the_type_of_the_first_stage(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    pipe = app.pipeline("orders", app.stage(first))
    assert pipe.enqueue(Order(1, ["a"])).view().payload_json == '{"id":1,"lines":["a"]}'
    assert pipe.enqueue({"id": 1, "lines": []}).created
    with pytest.raises(PayloadRefused) as caught:
        pipe.enqueue({"id": 1, "lines": ["a", None]})
    assert "$.lines[1]" in str(caught.value)
    assert "Expected `str`, got `null`" in str(caught.value)
    with pytest.raises(PayloadRefused):
        pipe.enqueue_many([Order(1, []), {"id": "x"}])
    assert app._session.opened.reader.books().accepted == 2
    app.close()
