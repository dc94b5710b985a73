"""The kernel's counters of kills for lack of memory: read where there are any, silent elsewhere."""

from pathlib import Path

import pytest

from perdure.engine.supervise.oom import OomCounter, counter_files, kills_in

V2_EVENTS = """\
low 0
high 14
max 29
oom 2
oom_kill 3
oom_group_kill 0
"""
V1_CONTROL = """\
oom_kill_disable 0
under_oom 0
oom_kill 5
"""
V1_CONTROL_OLD = """\
oom_kill_disable 0
under_oom 0
"""


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        (V2_EVENTS, 3), (V1_CONTROL, 5), (V1_CONTROL_OLD, None), ("17\n", 17), ("", None),
        ("oom_kill\n", None), ("oom_kill -1\n", None), ("oom_kill x\n", None), ("oom 4\n", None),
        ("max\n", None),
    ],
)  # fmt: skip
def test_the_number_of_kills_is_found_in_every_form(text, kills):
    assert kills_in(text) == kills


V2 = "0::/system.slice/work.service\n"
V2_CONTAINER = "0::/\n"
V1 = "12:pids:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/docker/abc\n"
HYBRID = "4:cpu,memory:/\n0::/\n"


@pytest.mark.parametrize(
    ("cgroups", "files"),
    [
        (V2, ["system.slice/work.service/memory.events"]),
        (V2_CONTAINER, ["memory.events", "unified/memory.events"]),
        (V1, [
            "memory/docker/abc/memory.oom_control", "memory/memory.oom_control",
            "memory/docker/abc/memory.failcnt", "memory/memory.failcnt",
        ]),
        (HYBRID, ["memory/memory.oom_control", "memory/memory.failcnt", "memory.events"]),
        ("", []),
        ("nonsense\n:::\n", []),
    ],
)  # fmt: skip
def test_the_counters_of_a_group_are_looked_for_where_they_may_be(cgroups, files):
    found = [one.removeprefix("sys/fs/cgroup/") for one in counter_files(cgroups)]
    assert [one for one in found if one in files] == files
    assert len(found) >= len(files)
    if not files:
        assert found == []


def machine(root: Path, cgroups: str | None, **files: str) -> OomCounter:
    """A counter on a file system of its own; ``__`` in a name is a slash, ``_dot_`` a dot."""
    if cgroups is not None:
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(cgroups)
    for name, text in files.items():
        write(root, name, text)
    return OomCounter(root)


def write(root: Path, name: str, text: str) -> None:
    path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("cgroups", "name"),
    [
        (V2, "system.slice__work.service__memory_dot_events"),
        (V2_CONTAINER, "memory_dot_events"),
        (V1, "memory__docker__abc__memory_dot_oom_control"),
        (V1, "memory__memory_dot_oom_control"),
        (HYBRID, "memory__memory_dot_oom_control"),
    ],
)
def test_a_rise_is_noticed_and_forgotten_after_a_while(tmp_path, cgroups, name):
    counter = machine(tmp_path, cgroups, **{name: "oom_kill 4\n"})
    assert not counter.rose(100.0)
    write(tmp_path, name, "oom_kill 5\n")
    assert counter.rose(101.0)
    assert counter.rose(105.0)  # a large process takes a while to end
    assert not counter.rose(107.0)
    write(tmp_path, name, "oom_kill 6\n")
    counter.look(200.0)
    assert not counter.rose(260.0)  # it was another's end


def test_an_old_kernel_counts_only_how_often_the_limit_was_met(tmp_path):
    files = {
        "memory__docker__abc__memory_dot_oom_control": V1_CONTROL_OLD,
        "memory__docker__abc__memory_dot_failcnt": "7\n",
    }
    counter = machine(tmp_path, V1, **files)
    write(tmp_path, "memory__docker__abc__memory_dot_failcnt", "9\n")
    assert counter.rose(1.0)


def test_where_nothing_can_be_read_nothing_is_said(tmp_path):
    assert not machine(tmp_path / "none", None).rose(1.0)
    assert not machine(tmp_path / "empty", V2).rose(1.0)
    counter = machine(tmp_path / "gone", V2_CONTAINER, memory_dot_events="oom_kill 1\n")
    (tmp_path / "gone/sys/fs/cgroup/memory.events").unlink()
    assert not counter.rose(1.0)
    write(tmp_path / "gone", "memory_dot_events", "oom_kill 9\n")
    assert not counter.rose(2.0)  # what happened in between nobody saw


def test_this_machine_s_own_counters_do_no_harm():
    counter = OomCounter()
    counter.look(0.0)
    counter.look(1.0)
