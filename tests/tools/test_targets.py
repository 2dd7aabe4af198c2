"""No tool writes over its input or over a file that it did not write: every option that writes.

`test_every_path_is_known` walks the command line: an option or argument that takes a path is named
here as one that is read or as one that is written, and each written one has its victims.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.storage.writing import write_json
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.tools.cli.targets import OWN, check_target
from pjepa.ui.console import InputError
from tests.video.films import write_film
from tests.worlds.represented import write_represented

READ = {
    "extract inputs", "extract --model", "extract --training", "plan inputs", "plan --model",
    "predict videos",
    "predict --model", "predict --probe", "predict --training", "stream --model",
    "stream --probe", "stream --training", "study --on",
}  # fmt: skip
KEPT = {"data init folder"}  # written into, and what is there is left as it is
# Command line, with X for the target, and what X must not destroy: inputs, then what people made.
STREAM = "stream v.mp4 --device cpu"
WRITTEN = {
    "stream --jsonl": (f"{STREAM} --jsonl X", ["v.mp4", "notes.txt", "other.jsonl"]),
    "stream --summary": (f"{STREAM} --summary X", ["v.mp4", "params.json", "notes.txt"]),
    "stream --state": (f"{STREAM} --state X", ["mine"]),
    "predict --out": ("predict v.mp4 --out X", ["v.mp4", "mine", "."]),
    "extract --out": (
        "extract v.mp4 --backbone vjepa2_1_vit_tiny --checkpoint random --device cpu --out X",
        ["mine", "mine2"],
    ),
    "data check --json": ("data check --json X", ["params.yaml", "params.json", "notes.txt"]),
    "data view --out": ("data view take-0000 --out X", ["v.mp4", "picture.png", "notes.txt"]),
    "compare --json": ("compare a b --json X", ["results/metrics.json", "params.json"]),
    "compare --html": ("compare a b --html X", ["results/report/index.html", "page.html"]),
    "convert --out": (
        "convert w.pt --backbone vjepa2_1_vit_tiny --out X",
        ["w.pt", "models/pjepa/model.safetensors"],
    ),
    "export --out": ("export --layout npy --out X", ["notes.txt", "mine", "."]),
    "study --json": ("study --json X", ["results/metrics.json", "params.json"]),
    "publish --folder": ("publish --folder X", ["models/pjepa", ".", "mine"]),
}
REFUSALS = (
    "is read by this command", "exists and", "is a folder; name a file"
)  # fmt: skip
CASES = [(option, victim) for option, (_, victims) in WRITTEN.items() for victim in victims]


def path_parameters(command: Any, name: str = "") -> Iterator[str]:
    """Every option and argument that takes a path, as `COMMAND --option`."""
    for inner, found in getattr(command, "commands", {}).items():
        yield from path_parameters(found, f"{name} {inner}".strip())
    for parameter in [] if hasattr(command, "commands") else command.params:
        annotation = parameter.type_descriptor.annotation
        if Path in (annotation, *get_args(annotation)):
            yield f"{name} {parameter.opts[0]}"


def test_every_path_is_known() -> None:
    found = set(path_parameters(get_command(app)))
    assert found == READ | KEPT | WRITTEN.keys(), "name a new path here, and what it may destroy"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project, and files of a person among it."""
    write_represented(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    write_film(Path("v.mp4"), 0, 20)
    ProcedureEncoder(EncoderConfig(d_in=3, width=8, depth=1, heads=2)).save(paths.ENCODER)
    for name in ("mine/labels.csv", "mine/v.npy", "notes.txt", "w.pt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("the only copy\n")
    for name in ("params.json", "mine/state.json", "mine2/v.npy.json", "results/metrics.json"):
        write_json(Path(name), {"lr": 0.1})
    Path("other.jsonl").write_text('{"question": "?"}\n')
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\nholiday")
    for page in (Path("page.html"), paths.REPORT / "index.html"):
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("<!doctype html><title>mine</title>")
    shipped = Path(__file__).parents[2] / "params.yaml"
    Path("params.yaml").write_text(shipped.read_text())
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(("option", "victim"), CASES, ids=lambda value: str(value))
def test_nothing_that_is_there_is_lost(option: str, victim: str, home: Path) -> None:
    before = contents(home)
    line = [victim if word == "X" else word for word in WRITTEN[option][0].split()]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 1, done.output
    errors = [text for text in done.stderr.splitlines() if text.startswith("error: ")]
    assert len(errors) == 1
    assert any(reason in errors[0] for reason in REFUSALS), errors
    after = contents(home)
    assert {file: after.get(file) for file in before} == before


@pytest.mark.parametrize("kind", OWN)
def test_own_output_is_replaced_and_anything_else_is_kept(kind: str, tmp_path: Path) -> None:
    own = {
        "steps": b'{"start": 0, "end": 1, "label": "cut"}\n', "summary": b'{"cache_bytes": 0}',
        "state": b'{"pooler and probe": []}', "check": b'{"findings": []}',
        "comparison": b'{"arms": []}', "page": b"<!doctype html><title>b against a</title>",
        "sheet": b"\x89PNG\r\n pjepa", "port": b'\2\0\0\0\0\0\0\0{"weights_id": 1}',
        "study": b'{"rows": []}',
    }  # fmt: skip
    path = tmp_path / "file"
    check_target(path, kind)  # type: ignore[arg-type]
    path.write_bytes(own[kind])
    check_target(path, kind)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is read by this command"):
        check_target(path, kind, path)  # type: ignore[arg-type]
    path.write_bytes(b"\0\0\0\x20ftypisom")
    with pytest.raises(InputError, match="exists and is not an earlier"):
        check_target(path, kind)  # type: ignore[arg-type]
