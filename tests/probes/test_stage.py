"""`python -m stages.probe`: the sections it reads, the folder it writes, the errors it gives."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from pjepa.report.config import PROBES, CellsConfig
from pjepa.streams.provenance import Provenance
from pjepa.tools import paths
from pjepa.tools.params import ProbeSections
from pjepa.ui.console import InputError
from stages.probe import run
from tests.probes.kinds import KINDS
from tests.probes.world import world

PARAMS = """
threads: 1
probe:
  common: {bootstrap: 20, input_norm: standardize}
  linear: {l2: [0.1], paper: {epochs: 1}}
  foreground: {epochs: 2}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    inputs = world(tmp_path / "world")
    targets = (paths.LABELS, paths.TAKES_TABLE, paths.CLASSES)
    stream = paths.representation("raw") / paths.STREAM.name
    pairs = zip(
        (*inputs.streams, inputs.labels, inputs.takes, inputs.classes), (stream, *targets),
        strict=True,
    )  # fmt: skip
    for source, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    paths.PARAMS.write_text(PARAMS)
    return tmp_path


@pytest.mark.parametrize("probe", ["linear", "foreground"])
def test_a_cell_is_written_and_the_work_folder_goes(
    probe: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["probe", probe, "raw"])
    run()
    details = json.loads((paths.cell(probe, "raw") / "details.json").read_text())
    assert (details["probe"], details["representation"]) == (probe, "raw")
    assert Provenance(**details["provenance"]).lookahead_s == 2
    left = [path for path in (project / ".dvc/tmp/pjepa/probe").iterdir() if path.is_dir()]
    assert left == []


@pytest.mark.parametrize("arguments", [[], ["linear"], ["nothing", "raw"], ["a", "b", "c"]])
def test_usage_is_one_line(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["probe", *arguments])
    with pytest.raises(InputError, match=r"usage: .*attentive\|fact\|foreground"):
        run()


def test_an_unknown_representation_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["probe", "linear", "nothing"])
    with pytest.raises(InputError, match="representation nothing: no stream found"):
        run()


def test_every_probe_has_a_section_and_a_name_in_cells() -> None:
    sections = set(ProbeSections.model_fields) - {"common"}
    assert sections == set(PROBES) == {"linear", *KINDS}
    for name, kind in KINDS.items():
        assert isinstance(getattr(ProbeSections(), name), kind.config)
    assert CellsConfig().probes == ("linear",)
    assert CellsConfig(probes=PROBES).probes == PROBES
    for wrong in (("raw",), ("linear", "linear")):
        with pytest.raises(ValueError, match=r"unknown: raw; known|repeated: linear"):
            CellsConfig(probes=wrong)
