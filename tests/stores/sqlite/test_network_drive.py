"""A file on a file system of the network is warned of, once; any other is not."""

import logging
from pathlib import Path

import pytest

from perdure.stores.sqlite import network_drive
from perdure.stores.sqlite.connection import MEMORY, SqliteConnection
from perdure.stores.sqlite.network_drive import NETWORK, file_system, warn_of_network
from perdure.testing import VirtualClock

# As Linux 6.1 writes it: optional fields, none, several; a space in a path; mounts on mounts.
MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 254:1 / /disk rw,relatime shared:5 - xfs /dev/vdb rw
31 27 0:40 / /disk/ann/far rw,relatime shared:9 master:2 - nfs4 10.0.0.1:/export rw,vers=4.2
32 27 0:41 / /mnt/two\040words rw - cifs //there/share rw
33 27 0:42 / /mnt/back\134slash rw - fuse.sshfs me@there:/ rw,user_id=0
34 27 0:43 / /srv rw - nfs there:/srv rw
35 34 254:2 / /srv/local rw - btrfs /dev/vdc rw
36 27 0:44 / /twice rw - nfs there:/old rw
37 27 254:3 / /twice rw - ext4 /dev/vdd rw
38 27 254:4 / /hidden rw - ext4 /dev/vde rw
39 27 0:45 / /hidden rw propagate_from:2 - ceph 10.0.0.2:/ rw
40 27 0:46 /part /bound rw - 9p host rw
"""

PLACES = {
    "/work.db": "ext4",
    "/proc": "proc",
    "/disk/ann/work.db": "xfs",
    "/disk/ann/far": "nfs4",
    "/disk/ann/far/deep/work.db": "nfs4",
    "/disk/ann/farther/work.db": "xfs",
    "/mnt/two words/work.db": "cifs",
    "/mnt/two/work.db": "ext4",
    "/mnt/back\\slash/work.db": "fuse.sshfs",
    "/srv/work.db": "nfs",
    "/srv/local/work.db": "btrfs",
    "/twice/work.db": "ext4",
    "/hidden/work.db": "ceph",
    "/bound/work.db": "9p",
}


@pytest.mark.parametrize(("path", "kind"), PLACES.items())
def test_a_path_lies_on_the_last_and_longest_mount_above_it(path, kind):
    assert file_system(MOUNTS, path) == kind


@pytest.mark.parametrize("text", ["", "\n\n", "no dash here", "1 2 - nfs", "- - - -"])
def test_what_cannot_be_read_says_nothing(text):
    assert file_system(text, "/work.db") is None


def test_the_file_systems_of_this_machine_are_read():
    assert file_system(network_drive.MOUNTS.read_text(), "/proc/self/status") == "proc"


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse.mergerfs"]
)
def test_a_local_file_system_is_none_of_the_network(kind):
    assert kind not in NETWORK


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """Pretend that the folder of the test lies on such a file system."""
    monkeypatch.setattr(network_drive, "_looked_at", set())

    def mount(kind: str) -> str:
        listed = tmp_path / "mountinfo"
        listed.write_text(
            f"27 1 254:0 / / rw - ext4 /dev/vda rw\n50 27 0:99 / {tmp_path} rw - {kind} there rw\n"
        )
        monkeypatch.setattr(network_drive, "MOUNTS", listed)
        return str(tmp_path / "work.db")

    return mount


def opened_and_closed(path: str, **options: bool) -> None:
    SqliteConnection(path, VirtualClock(), **options).close()


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph"])
def test_a_file_on_the_network_is_warned_of_once_when_it_is_opened(mounted, caplog, kind):
    path = mounted(kind)
    for _ in range(3):
        opened_and_closed(path)
    [warning] = caplog.records
    assert (warning.name, warning.levelno) == ("perdure", logging.WARNING)
    assert path in warning.getMessage()
    assert f"({kind})" in warning.getMessage()
    assert "use PostgreSQL" in warning.getMessage()


def test_a_second_file_there_is_warned_of_for_itself(mounted, caplog):
    path = mounted("nfs")
    opened_and_closed(path)
    opened_and_closed(f"{path}2")
    assert len(caplog.records) == 2


def test_a_file_that_a_link_leads_to_is_looked_at_where_it_is(mounted, caplog, tmp_path_factory):
    path = mounted("nfs")
    link = tmp_path_factory.mktemp("here") / "link.db"
    link.symlink_to(path)
    warn_of_network(str(link))
    assert len(caplog.records) == 1


def test_a_local_file_is_not_warned_of(mounted, caplog):
    opened_and_closed(mounted("ext4"))
    assert caplog.records == []


def test_memory_and_a_mere_look_are_not_warned_of(mounted, caplog):
    path = mounted("nfs")
    Path(path).touch()
    opened_and_closed(MEMORY)
    opened_and_closed(path, looking=True)
    assert caplog.records == []


def test_where_nothing_is_known_nothing_is_said(mounted, caplog, monkeypatch, tmp_path):
    path = mounted("nfs")
    monkeypatch.setattr(network_drive, "MOUNTS", tmp_path / "no such file")
    opened_and_closed(path)
    assert caplog.records == []
