"""Commands and Python of README and docs, run as written on a small finished project.

What is not run says why: weights, a GPU, a camera or experiments that this project lacks. Those are
parsed in test_commands.py. The `dvc` commands run in test_repro.py and test_team.py.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.demo_tables import BEGIN
from benchmarks.demo_tables import main as demo_tables
from pjepa import read_stream
from pjepa.tools.cli import app
from tests.live.world import make_video
from tests.pipeline.in_process import SMALL, merged, project, run_stages
from tests.pipeline.test_commands import OURS, PAGES

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
DEMO = {
    "data": {"source": "demo", "demo": {"takes": 12, "min_s": 8.0, "max_s": 10.0}},
    "pooler": {"kind": "mean"},
    "pjepa": {"neighbours": [1]},  # the forecaster of docs/pretraining.md
}
LINES = sorted({line for _, line in OURS if line.startswith("pjepa ")})
NOT_RUN = {  # what a command asks for that a test does not have
    "weights of a large backbone": r"vit_large|hf:|^pjepa extract my_video.mp4 --out",
    "network": r"^pjepa fetch [a-z]",
    "a GPU": r"cuda",
    "a cluster": r"--shard",
    "a camera or a pipe": r"^pjepa stream -",
    "a second project": r"^pjepa study --on",  # tests/tools/test_studies.py has one
    "experiments of DVC": r"^pjepa compare",
    "a data set of the paper": r"^pjepa table",  # tests/tools/test_paper_table.py has one
}
PYTHON = [
    (page.name, text)
    for page in PAGES
    for text in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    if "push_to_hub" not in text  # tests/storage has a hub of its own
]
# These write params.yaml, so they run in a folder of their own.
SETTINGS = ("pjepa preset", "pjepa data init")


def reason(line: str) -> str | None:
    """Return why a command is not run; None if it is."""
    return next((why for why, pattern in NOT_RUN.items() if re.search(pattern, line)), None)


RUN = [line for line in LINES if reason(line) is None]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A demo project with results, committed, and some videos to use it on."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        project(folder, patch, merged(SMALL, DEMO))
        run_stages()
        (folder / "dvc.yaml").write_bytes((ROOT / "dvc.yaml").read_bytes())
        for name in ("a.mp4", "new.mp4", "new_videos/c.mp4", "more_videos/d.mp4"):
            make_video(folder / name, 4.0)
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        for words in (["init", "-q"], ["add", "results/metrics.json"], ["commit", "-qm", "x"]):
            subprocess.run(["git", *identity, *words], check=True)
        yield folder


def run(line: str) -> str:
    """Run one line in the working folder; returns what it printed."""
    words = ["take-0000" if word == "TAKE" else word for word in shlex.split(line)[1:]]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (line, done.output, done.exception)
    return done.output


def test_most_commands_are_run() -> None:
    assert len(RUN) > len(LINES) / 2
    assert all(any(re.search(p, line) for line in LINES) for p in NOT_RUN.values())


@pytest.mark.parametrize("line", [line for line in RUN if not line.startswith(SETTINGS)])
def test_a_documented_command_runs(
    line: str, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished)
    out = Path(line.split("--out ")[1].split()[0]) if "--out" in line else None
    if out:
        shutil.rmtree(out, ignore_errors=True)
    assert run(line).strip()
    if out:
        assert any(path.stat().st_size for path in out.rglob("*") if path.is_file())


@pytest.mark.parametrize("line", [line for line in RUN if line.startswith(SETTINGS)])
def test_a_command_that_writes_params_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    shutil.copytree(ROOT / "presets", "presets")
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    make_video(Path("my_videos/a.mp4"), 2.0)
    before = Path("params.yaml").read_text()
    run(line)
    assert Path("params.yaml").read_text() != before


@pytest.mark.parametrize(("page", "text"), PYTHON)
def test_documented_python_runs(
    page: str, text: str, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished)
    stream = read_stream("data/tokens/stream.parquet")
    take = stream.read(stream.takes[0])
    lengths = take.segment_lengths
    parts = np.split(take.features, np.cumsum(lengths)[:-1])
    exec(text, {"tokens": take.features, "segment_lengths": lengths, "segments": parts})


def test_the_tables_of_the_results_page_are_written(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished)
    Path("docs/images").mkdir(parents=True, exist_ok=True)
    page = Path(shutil.copy(ROOT / "docs/results.md", "docs/results.md"))
    monkeypatch.setenv("PATH", "")  # no browser, and so no picture of the page
    demo_tables(page, Path("docs/images"))
    assert "A linear probe names the right step" in page.read_text().partition(BEGIN)[2]
