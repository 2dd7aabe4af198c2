"""How much host memory may be taken, where a container or a Slurm job has a limit."""

from pathlib import Path

import pytest

from pjepa.ui import device as memory


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable: 500 kB\n")
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "groups")
    return tmp_path


def limit(path: Path, value: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value + "\n")


def test_without_a_limit_it_is_what_is_available(root: Path) -> None:
    assert memory.host_memory() == 500 * 1024
    (root / "self/cgroup").write_text("0::/\n")
    limit(root / "groups/memory.max", "max")
    assert memory.host_memory() == 500 * 1024
    (root / "meminfo").unlink()
    assert memory.host_memory() == 0


def test_a_limit_of_a_parent_holds_too(root: Path) -> None:
    (root / "self/cgroup").write_text("0::/slurm/job_1/step_0\n")
    limit(root / "groups/slurm/job_1/memory.max", "70000")
    limit(root / "groups/slurm/job_1/step_0/memory.max", "max")
    limit(root / "memory.max", "1")  # above the tree of groups
    assert memory.host_memory() == 70000


def test_version_1_has_a_tree_per_kind(root: Path) -> None:
    (root / "self/cgroup").write_text("4:cpu,cpuacct:/a\n3:memory:/job_2\n0::/\n")
    limit(root / "groups/memory/job_2/memory.limit_in_bytes", "60000")
    assert memory.host_memory() == 60000
