"""Whether the kernel has killed for lack of memory, by its own counters.

A process that ends by SIGKILL does not say who sent it. The kernel counts the processes of a control
group that it has killed for lack of memory: ``oom_kill`` in ``memory.events`` (version 2) or in
``memory.oom_control`` (version 1, Linux 4.13 and newer; before that only ``memory.failcnt``, how often
the limit was met). A rise of that counter shortly before such an end is what we go by. Where nothing
can be read, nothing is said.
"""

from pathlib import Path

_RECENT_S = 5.0  # a large process takes a while from the kill to its end


def kills_in(text: str) -> int | None:
    """The number of kills in the text of a counter file; a file with one number is that number."""
    for line in text.splitlines():
        name, _, value = line.strip().rpartition(" ")
        if name in ("", "oom_kill") and value.isdecimal():
            return int(value)
    return None


def counter_files(cgroups: str) -> tuple[str, ...]:
    """Where the counters of a process may be, best first, from the text of its /proc/PID/cgroup."""
    files: list[str] = []
    for line in cgroups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inside = path.strip("/") + "/" if path.strip("/") else ""
        if number == "0" and not controllers:
            files += [
                f"sys/fs/cgroup/{inside}memory.events",
                f"sys/fs/cgroup/unified/{inside}memory.events",
            ]
        elif "memory" in controllers.split(","):
            # In a container the group is mounted as the root.
            for place in dict.fromkeys((inside, "")):
                files.append(f"sys/fs/cgroup/memory/{place}memory.oom_control")
            for place in dict.fromkeys((inside, "")):
                files.append(f"sys/fs/cgroup/memory/{place}memory.failcnt")
    return tuple(files)


class OomCounter:
    """The counter of this process's control group, and when it last rose."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._file = self._find()
        self._seen = self._kills()
        self._rose_at: float | None = None

    def look(self, now: float) -> None:
        """Notice a rise; call it now and then, so that an old one is not taken for a new one."""
        kills = self._kills()
        if kills is not None and self._seen is not None and kills > self._seen:
            self._rose_at = now
        self._seen = kills

    def rose(self, now: float) -> bool:
        """Whether it has risen just now."""
        self.look(now)
        return self._rose_at is not None and now - self._rose_at <= _RECENT_S

    def _find(self) -> Path | None:
        cgroups = _text(self._root / "proc/self/cgroup")
        for name in counter_files(cgroups or ""):
            text = _text(self._root / name)
            if text is not None and kills_in(text) is not None:
                return self._root / name
        return None

    def _kills(self) -> int | None:
        text = None if self._file is None else _text(self._file)
        return None if text is None else kills_in(text)


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
