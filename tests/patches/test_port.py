"""`pjepa convert`: ports that load back equal; `pjepa plan --per-hour`: the table of costs."""

import hashlib
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from pjepa.patches.checkpoint import build_encoder, read_metadata, weights_id
from pjepa.patches.vjepa21 import VARIANTS, Variant
from pjepa.storage.hub import CACHE
from pjepa.tools.cli import app

FOLDER = Path(__file__).parents[1] / "golden/vjepa21"
SOURCE = FOLDER / "fake_vjepa2_1_vitb_dist_style.pt"
NAME = "fake_base"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    small = Variant(8, 12, 1, 32, (2, 5, 8, 11), file=SOURCE.name, encoder_key="ema_encoder")
    monkeypatch.setitem(VARIANTS, NAME, small)
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "checkpoints"


def test_port_goes_to_the_cache_and_is_the_official_file_from_then_on(cache: Path) -> None:
    found = run("convert", str(SOURCE), "--backbone", NAME)
    port = cache / f"{NAME}.safetensors"
    assert found.exit_code == 0, found.output
    assert f"{port}: " in found.stdout
    assert port.stat().st_size < 0.7 * SOURCE.stat().st_size  # the fake's optimiser is a stub
    stated = read_metadata(port)
    assert (stated["variant"], stated["heads"], stated["source"]) == (NAME, 1, SOURCE.name)
    assert stated["source_sha256"] == hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    assert (
        stated["weights_id"] == weights_id(NAME, str(SOURCE), 0) == weights_id(NAME, "official", 0)
    )
    assert stated["weights_id"] in found.stdout
    before, after = (build_encoder(NAME, c, 0).state_dict() for c in (str(SOURCE), "official"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    first = port.read_bytes()
    run("convert", str(SOURCE), "--backbone", NAME)
    assert port.read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((str(SOURCE), "--backbone", "vjepa2_1_vit_base_384"), f"released file of {NAME}"),
        ((str(SOURCE), "--backbone", NAME, "--out", "x.pt"), "a port is a .safetensors file"),
        (("gone.pt", "--backbone", NAME), "no file gone.pt"),
        ((str(SOURCE), "--backbone", "vit"), "'vit' is not one of"),
    ],
)
def test_bad_arguments_end_in_one_line(arguments: tuple[str, ...], reason: str) -> None:
    found = run("convert", *arguments)
    assert found.exit_code == 1
    assert reason in found.stderr
    assert found.stderr.count("\n") == 1
    assert not list(Path().glob("**/*.safetensors"))


def test_the_fetched_file_is_converted_by_its_kind(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / SOURCE.name).write_bytes(SOURCE.read_bytes())
    assert run("convert", "official", "--backbone", NAME).exit_code == 0
    assert {path.name for path in cache.iterdir()} == {SOURCE.name, f"{NAME}.safetensors"}


def test_a_port_is_not_written_over_itself(cache: Path) -> None:
    run("convert", str(SOURCE), "--backbone", NAME)
    found = run("convert", f"{NAME}.safetensors", "--backbone", NAME)
    assert found.exit_code == 1
    assert "is such a port already" in found.stderr


def test_costs_are_a_table() -> None:
    found = run("plan", "--per-hour", "vjepa2_1_vit_giant_384", "--crop", "256")
    assert found.exit_code == 0
    header, _, line = found.stdout.splitlines()
    cells = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert float(cells["GB/h, 16 x 16"]) == pytest.approx(3600 * 4 * 256 * 1408 * 2 / 1e9, rel=0.01)
    assert run("plan", "--per-hour", "nothing").exit_code == 1
