"""How much memory of the host may be taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def host_memory() -> int:
    """Return the available bytes, at most the limit of a container or Slurm job; 0 if unknown."""
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
    except OSError:
        return 0
    available = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    return min([*available, *cgroup_limits()]) if available else 0


def cgroup_limits() -> Iterator[int]:
    """Yield the limits of the groups that this process is in, of version 2 or 1."""
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, place = line.split(":", 2)
        root, name = CGROUPS, "memory.max"
        if kinds:
            root, name = CGROUPS / "memory", "memory.limit_in_bytes"
        if not kinds or "memory" in kinds.split(","):
            group = root / place.lstrip("/")
            for folder in (group, *group.parents):  # a limit of a parent holds too
                if folder.is_relative_to(root):
                    yield from _limit(folder / name)


def _limit(path: Path) -> Iterator[int]:
    """Yield the number in a file, if there is one: it may also say `max`."""
    text = path.read_text().strip() if path.is_file() else ""
    if text.isdigit():
        yield int(text)
