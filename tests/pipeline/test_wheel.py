"""The wheel, unpacked outside the clone: what it holds, and that its commands run from it alone."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pjepa import __version__
from pjepa.storage.writing import write_json
from tests.live.world import make_project, make_video

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
from pathlib import Path
import pjepa
from pjepa import ProcedureEncoder
from pjepa.tools.cli import app
from pjepa.tools.presets import preset_names

def run(*arguments):
    code = app([str(argument) for argument in arguments], standalone_mode=False)
    assert not code, (arguments, code)

if __name__ == "__main__":
    assert Path(pjepa.__file__).is_relative_to(sys.argv[1]), pjepa.__file__
    model = ["--model", "models", "--probe", "results/probe/linear-pjepa"]
    run("extract", "a.mp4", "--out", "features", "--model", "models")
    run("predict", "a.mp4", "--out", "steps", *model)
    run("stream", "a.mp4", "--jsonl", "a.jsonl", *model)
    run("preset", "demo")
    encoder = ProcedureEncoder.from_pretrained("models/pjepa")
    print(encoder.config.width, len(preset_names()))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"  # a copy: building writes into the folder it builds from
    names = ["pjepa", "presets", "stages", "pyproject.toml", "README.md", "LICENSE"]
    source.mkdir()
    subprocess.run(["cp", "-R", *(ROOT / name for name in names), source], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", out, source], check=True, capture_output=True)
    (found,) = out.glob("*.whl")
    return found


def test_it_holds_the_library_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    info = f"pjepa-{__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"pjepa", info}
    data = {"pjepa/report/assets/page.html", "pjepa/tools/compare/paper.csv"}
    assert {"pjepa/py.typed", "pjepa/__main__.py", *data} <= names
    presets = {f"pjepa/presets/{path.name}" for path in (ROOT / "presets").glob("*.yaml")}
    assert presets <= names


def test_its_commands_run_outside_the_clone(wheel: Path, tmp_path: Path) -> None:
    target, work = tmp_path / "installed", tmp_path / "work"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, wheel]
    subprocess.run(command, check=True, capture_output=True)
    make_project(work, segments="fixed")
    write_json(work / "models/pjepa/selection.json", {"selection_labels": "none"})
    make_video(work / "a.mp4", 3.0)
    (work / "script.py").write_text(SCRIPT)
    environment = dict(os.environ, PYTHONPATH=str(target), PJEPA_CACHE=str(tmp_path / "cache"))
    done = subprocess.run(
        [sys.executable, "script.py", str(target)],
        cwd=work, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"32 {len(list((ROOT / 'presets').glob('*.yaml')))}"
    assert (work / "features/a.npy").exists()
    assert (work / "steps/segments.csv").exists()
    assert (work / "a.jsonl").read_text()


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", pin.name).lower(): pin for pin in found}


def test_every_dependency_is_pinned_and_make_repro_installs_no_test_tools() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.sub(r"[-_.]+", "-", Requirement(text).name).lower() for text in asked}
    assert names - {"pjepa"} <= set(pins())
    for name in ("torch", "torchvision"):
        version = str(pins()[name].specifier).removeprefix("==")
        assert pins()[name].specifier.contains(f"{version}+cpu")
    plain = {Requirement(text).name for text in project["dependencies"]}
    assert not plain & {"ray", "moto", "playwright", "pytest", "mkdocs-material", "transformers"}
    assert {"torch", "timm", "dvc", "dvclive", "decord", "pyarrow", "pandas"} <= plain
