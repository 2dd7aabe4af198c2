"""The commands for people: what they print, and how they end."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner, Result

from pjepa import __version__
from pjepa.tools.cli import app
from pjepa.tools.cli.app import ORDER
from pjepa.tools.params import check_params
from pjepa.tools.summary import metric_changes
from pjepa.ui.console import QUIET, VERBOSE, say

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def write_metrics(acc: float, **more: float) -> None:
    path = Path("results/metrics.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"linear": {"raw": {"acc": acc, **more}}}))


def commit_all() -> None:
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-f", "."], [*author, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], check=True)


def test_help_lists_the_commands() -> None:
    found = run("--help")
    assert found.exit_code == 0
    shown = re.findall(r"^│ ([a-z]+) ", found.output, re.MULTILINE)
    assert shown == list(ORDER)
    assert run("-h").output == found.output
    asked = {"_PJEPA_COMPLETE": "complete_bash", "COMP_WORDS": "pjepa su", "COMP_CWORD": "1"}
    completed = CliRunner().invoke(app, [], prog_name="pjepa", env=asked)
    assert completed.output == "summary\n"


def test_every_command_and_option_says_what_it_does() -> None:
    root = typer.main.get_command(app)
    groups = [root, root.commands["data"]]
    commands = {c.name: c for group in groups for c in (group, *group.commands.values())}
    for name, command in commands.items():
        assert command.help, name
        rest = command.help.partition("\n\n")[2]  # typer joins the lines of the first paragraph
        assert all(len(line) < 79 for line in rest.splitlines()), name
        for option in command.params:
            assert option.help, (name, option.name)


@pytest.mark.slow
def test_the_command_line_and_params_load_without_torch() -> None:
    look = "import sys, pjepa.tools.cli, pjepa.tools.params; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.slow
def test_version_and_module_and_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "pjepa", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == run("--version").output == f"pjepa {__version__}\n"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pjepa.tools.cli.setup.preset_text", interrupted)
    found = run("preset", "demo")
    assert found.exit_code == 130
    assert found.stderr == "interrupted; run the same command again to resume\n"


@pytest.mark.slow
def test_an_interrupt_during_imports_is_one_line(tmp_path: Path) -> None:
    """A module that is imported first raises what Ctrl-C raises."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    environment = dict(os.environ, PYTHONPATH=f"{tmp_path}:{ROOT}")
    command = [sys.executable, "-m", "pjepa", "doctor"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (130, 1), done.stderr


def test_quiet_and_verbose(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (QUIET, VERBOSE):
        monkeypatch.setenv(name, "")  # restored after the test
    assert "Traceback" in run("-v", "preset", "nope").stderr
    run("-q", "preset", "nope")
    say("a note")
    assert "a note" not in capsys.readouterr().err


def test_summary_shows_numbers_and_what_comes_next(clone: Path) -> None:
    (clone / "results").mkdir()
    shutil.copy(ROOT / "results/metrics.json", clone / "results")
    found = run("summary")
    assert found.exit_code == 0, found.output
    assert "pjepa: the trained encoder" in found.stdout
    assert "dvc exp run -S" in found.stdout
    assert "there: linear" in run("summary", "--probe", "nope").stderr


def test_preset_writes_and_shows_the_difference(clone: Path) -> None:
    dry = run("preset", "demo", "--dry-run")
    assert dry.exit_code == 0
    assert "+pjepa:" in dry.output
    assert not Path("params.yaml").exists()
    assert run("preset", "demo").output == dry.output
    assert "nothing to change" in run("preset", "demo").output
    Path("params.yaml").write_text("report:\n  timelines: 7\npjepa:\n  depth: 9\n")
    assert run("preset", "demo", "--keep", "report").exit_code == 0
    text = Path("params.yaml").read_text()
    assert "timelines: 7" in text
    assert "depth: 9" not in text
    Path("params.yaml").write_bytes(b"\xf5\xff")  # what is no text is replaced
    assert run("preset", "demo").exit_code == 0
    assert check_params().data.source == "demo"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("preset nope", "preset 'nope': no such preset in presets/; known: "),
        ("data scan", "params.yaml: pjepa.mask_ratio = 1.4: "),
        ("verify", "results/metrics.json: no committed version"),
    ],
)
def test_errors_are_one_line(clone: Path, words: str, error: str) -> None:
    Path("params.yaml").write_text("pjepa:\n  mask_ratio: 1.4\n")
    commit_all()
    write_metrics(50.0)
    done = run(*words.split())
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {error}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_verify_accepts_small_changes_and_refuses_large_ones(clone: Path) -> None:
    write_metrics(50.0)
    commit_all()
    write_metrics(51.5)
    close = run("verify")
    assert close.exit_code == 0
    for text in ("linear.raw.acc", "+1.50", "0 of 1 numbers differ"):
        assert text in close.output
    assert run("verify", "--tolerance", "1").exit_code == 1
    write_metrics(50.0, edit=1.0)
    added = run("verify")
    assert (added.exit_code, "missing" in added.output) == (1, True)


# Numbers of the demo on two CPU models: training amplifies rounding, controls hardly move.
DEMO = {"demo": {"gap_closed": 70.97}, "linear": {"pjepa": {"acc": 80.63, "f1_50": 68.24}}}
OTHER = {"demo": {"gap_closed": 75.54}, "linear": {"pjepa": {"acc": 82.98, "f1_50": 71.84}}}
WORSE = {"demo": {"gap_closed": 60.0}, "linear": {"pjepa": {"acc": 74.0, "f1_50": 62.0}}}


@pytest.mark.parametrize(
    ("committed", "present", "within"),
    [
        (DEMO, OTHER, [True, True, True]),
        (DEMO, WORSE, [False, False, False]),
        ({"linear": {"history": {"acc": 68.67}}}, {"linear": {"history": {"acc": 71.0}}}, [False]),
        ({"a": {"b": 1.0, "c": 2.0}}, {"a": {"b": 1.5}, "d": 3.0}, [True, False, False]),
    ],
)
def test_verify_allows_what_another_cpu_makes_of_the_trained_encoder(
    committed: dict[str, object], present: dict[str, object], within: list[bool]
) -> None:
    changes = metric_changes(committed, present, 2.0)
    assert [change.within for change in changes] == within


def test_results_of_other_parameters_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    write_metrics(50.0)
    lock = (ROOT / "dvc.lock").read_text()  # and as a run with fewer labels left it
    old = "  probe@fact-raw:\n    cmd: x\n    params:\n      params.yaml:\n        probe.common:\n"
    Path("dvc.lock").write_text(f"{lock}{old}          label_fraction: 0.15\n")
    assert "other parameters" not in run("summary").stderr
    text = Path("params.yaml").read_text()
    text = text.replace("mask_ratio: 0.8", "mask_ratio: 0.6").replace("  init_from:\n", "")
    Path("params.yaml").write_text(text.replace("  - smooth\n", ""))
    shown = run("summary")
    assert "made with other parameters: pjepa.mask_ratio 0.6 (was 0.8); run" in shown.stderr
