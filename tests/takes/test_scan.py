"""The list of a source's files: byte-stable, complete, and refused when the disk disagrees."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pjepa.takes.config import DataConfig
from pjepa.takes.sources.scan import SAMPLE, check_scan, named_config, scan, stale_list, write_scan
from pjepa.tools.cli import app
from pjepa.tools.params import Params
from pjepa.tools.paths import source_list
from pjepa.tools.presets import params_text
from pjepa.ui.console import InputError
from tests.worlds.bundles import write_bundle

CONFIG = DataConfig.model_validate({"source": "mstcn", "mstcn": {"dataset": "gtea"}})
ROOT = Path(__file__).parents[2]
FIRST = "gtea/features/S1_Cheese_C1.npy"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_bundle(tmp_path / "gtea")
    write_scan(CONFIG, tmp_path, source_list("mstcn"))
    return tmp_path


def test_the_list_is_the_same_on_another_machine(root: Path, tmp_path: Path) -> None:
    text = source_list("mstcn").read_text()
    other = tmp_path / "elsewhere"
    shutil.copytree(root / "gtea", other / "gtea")
    (other / "gtea/notes.md").write_text("no file that the source reads")
    assert json.dumps(scan(CONFIG, other)) == json.dumps(scan(CONFIG, root))
    assert str(root) not in text
    names = [entry["path"] for entry in json.loads(text)["files"]]
    assert names == sorted(names)
    assert len(names) == 8 + 8 + 4 + 1
    check_scan(CONFIG, root, source_list("mstcn"))


def test_the_sample_sees_start_middle_and_end(root: Path) -> None:
    file = root / FIRST
    data = np.zeros(5 * SAMPLE, np.uint8)

    for place in (0, len(data) // 2, len(data) - 1):
        file.write_bytes(data.tobytes())
        write_scan(CONFIG, root, source_list("mstcn"))
        data[place] = 1
        file.write_bytes(data.tobytes())
        with pytest.raises(InputError, match=rf"{FIRST} has changed"):
            check_scan(CONFIG, root, source_list("mstcn"))


def append(root: Path, name: str, more: bytes) -> None:
    path = root / "gtea" / name
    path.write_bytes(path.read_bytes() + more)


def relabel(root: Path) -> None:
    """The size stays; so do the first, middle and last bytes of a long file."""
    file = root / "gtea/groundTruth/S1_Cheese_C1.txt"
    lines = ["take"] * 100_000
    file.write_text("\n".join(lines))
    write_scan(CONFIG, root, source_list("mstcn"))
    lines[30_000] = "open"
    file.write_text("\n".join(lines))


CHANGES: list[tuple[Callable[[Path], object], str]] = [
    (relabel, r"mstcn.json: gtea/groundTruth/S1_Cheese_C1.txt has changed; run `pjepa data scan"),
    (
        lambda root: append(root, "mapping.txt", b"\n4 more"),
        r"gtea/mapping.txt has \d+ bytes, expected \d+; run `pjepa data scan mstcn`",
    ),
    (
        lambda root: shutil.copy(root / FIRST, root / "gtea/features/new.npy"),
        r"gtea/features/new.npy is new",
    ),
    (lambda root: (root / FIRST).unlink(), rf"{FIRST} is missing"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_disk_that_disagrees_is_refused(
    root: Path, change: Callable[[Path], object], message: str
) -> None:
    change(root)
    with pytest.raises(InputError, match=message):
        check_scan(CONFIG, root, source_list("mstcn"))


def test_stale_data_is_said_where_results_are_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dvc repro` would find nothing to do; a machine without the data has nothing to say."""
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(root))
    Path("params.yaml").write_text(params_text(Params(data=CONFIG)))
    run = CliRunner().invoke
    assert run(app, ["data", "scan", "--check"]).exit_code == 0
    assert "warning" not in run(app, ["table"]).stderr
    append(root, "mapping.txt", b"\n4 more")
    for command in (["table"], ["verify"], ["export", "--layout", "npy"]):
        assert "results are older than the data: data/sources/mstcn.json" in (
            run(app, command).stderr
        )
    found = run(app, ["data", "scan", "--check"])
    assert found.exit_code == 1
    assert "run `pjepa data scan mstcn`" in found.stderr
    assert run(app, ["data", "scan"]).exit_code == 0
    assert run(app, ["data", "scan", "--check"]).exit_code == 0
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(root / "not here"))
    assert stale_list(CONFIG, root / "not here", source_list("mstcn")) is None


def test_missing_lists_folders_and_sources(root: Path) -> None:
    source_list("mstcn").unlink()
    (root / "empty").mkdir()
    for call, message in (
        (lambda: check_scan(CONFIG, root, source_list("mstcn")), "run `pjepa data scan mstcn`"),
        (lambda: scan(CONFIG, root / "nowhere"), "nowhere: no such folder; set data.mstcn.path, a"),
        (lambda: scan(CONFIG, root / "empty"), r"neither gtea nor data/gtea in it; set data\.mst"),
        (lambda: named_config(CONFIG, "mstnc"), "expected one of demo, egoexo4d"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_the_demo_needs_no_files() -> None:
    listed = json.loads((ROOT / "data/sources/demo.json").read_text())
    assert listed == {"files": [], "source": "demo"} == scan(DataConfig(), Path("nowhere"))
