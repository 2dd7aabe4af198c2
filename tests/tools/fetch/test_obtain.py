"""From names to files: the catalogue, the hub's client against a local hub, words for the rest."""

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pjepa.model.release import RELEASED, release_file
from pjepa.patches.vjepa21 import VARIANTS
from pjepa.tools.cli import app
from pjepa.tools.fetch import CATALOGUE, FEATURES, local_files, obtained
from pjepa.ui.console import InputError
from tests.tools.fetch.conftest import Site

BASE, ENCODER = "vjepa2_1_vit_base_384", "assembly101_tsm_clip"
FILE = str(VARIANTS[BASE].file)
CONTENT = random.Random(1).randbytes(50_000)
SHA = hashlib.sha256(CONTENT).hexdigest()
OURS = {"bytes": len(CONTENT), "sha256": SHA}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fetch", *arguments])


@pytest.fixture
def hub(site: Site, places: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """huggingface_hub's client pointed at the local server, with a cache of its own."""
    from huggingface_hub import constants

    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, site.url)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", site.url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(places / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return site


@pytest.fixture
def base(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The catalogue's first item, served by the local server with other bytes."""
    item = replace(CATALOGUE[BASE], url=f"{site.url}/w.pt", **OURS)
    monkeypatch.setitem(CATALOGUE, BASE, item)
    return site


def listed(site: Site, api: str, files: dict[str, dict[str, object]]) -> None:
    """Let the hub's interface name these files, by what it knows of them."""
    siblings = [{"rfilename": name, **about} for name, about in files.items()]
    info = json.dumps({"sha": "a" * 40, "id": api, "siblings": siblings}).encode()
    tree = [{"type": "file", "path": name, "size": len(CONTENT), "oid": "b" * 40} for name in files]
    for place in ("", "/revision/main"):
        site.json[f"/api/{api}{place}"] = info
    for place in ("main", "a" * 40):
        site.json[f"/api/{api}/tree/{place}"] = json.dumps(tree).encode()


def test_backbone_is_fetched_into_the_cache_and_found_there(base: Site, places: Path) -> None:
    base.files["/w.pt"] = CONTENT
    target = places / "cache" / "checkpoints" / FILE
    done = run(BASE)
    assert (done.exit_code, done.stdout) == (0, f"{BASE}: {target}\n"), done.output
    assert target.read_bytes() == CONTENT
    assert local_files(CATALOGUE[BASE]) == [target]
    assert "already here" in run(BASE).stderr
    by_hand = places / "data" / "checkpoints" / FILE
    by_hand.parent.mkdir(parents=True)
    target.rename(by_hand)
    assert obtained(BASE) == [by_hand]
    by_hand.write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    with pytest.raises(InputError, match=f"the released file has sha256 {SHA}"):
        obtained(BASE)
    assert by_hand.exists()  # not ours to remove
    assert len(base.asked) == 1


def test_what_cannot_be_fetched_says_what_to_do(
    hub: Site, base: Site, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(CATALOGUE[BASE], url="http://127.0.0.1:9/w.pt")
    monkeypatch.setitem(CATALOGUE, BASE, gone)
    texts = {
        BASE: f"download {gone.url} and put it at {places / 'cache' / 'checkpoints' / FILE}",
        "egoexo4d": "sign the licence form",
        "nothing_such": "'nothing_such': nothing of that name",
        ENCODER: "the hub did not answer",  # which has nothing of it
        "assembly101_tsm": "the hub did not answer",
    }
    done = run(*texts)
    assert done.exit_code == 1
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    for error, text in zip(errors, texts.values(), strict=True):
        assert text in error
    monkeypatch.delenv("PJEPA_DATA_ROOT")
    with pytest.raises(InputError, match=r"40\.2 GB need space; set PJEPA_DATA_ROOT"):
        obtained("lemon_plstitch")


def test_released_encoder_comes_from_the_hub(hub: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release is known by the names of its files, not by where the hub keeps them."""
    where = f"weights/{ENCODER}.pt"
    listed(hub, "models/FelTris/pjepa", {where: {}})
    hub.files[f"/FelTris/pjepa/resolve/main/{where}"] = CONTENT
    with pytest.raises(InputError, match=r"50000 bytes, the released file has 583007046 bytes"):
        obtained(ENCODER)
    monkeypatch.setitem(CATALOGUE, ENCODER, replace(CATALOGUE[ENCODER], **OURS))
    (path,) = obtained(ENCODER)
    assert path.read_bytes() == CONTENT
    assert release_file(ENCODER) == path  # the same copy


def test_timm_weights_go_where_timm_looks(hub: Site) -> None:
    hub.files["/timm/resnet18.a1_in1k/resolve/main/model.safetensors"] = CONTENT
    assert obtained("timm:resnet18")[0].read_bytes() == CONTENT
    with pytest.raises(InputError, match="timm knows no weights"):
        obtained("timm:resnet999")


@pytest.mark.parametrize("kind", ["datasets", "models"])
def test_archive_goes_below_the_data_root(hub: Site, places: Path, kind: str) -> None:
    (name,) = CATALOGUE["cholec80_plstitch"].files
    lfs = {"size": len(CONTENT), "sha256": SHA, "pointerSize": 130}
    listed(hub, f"{kind}/{FEATURES}", {name: {"size": len(CONTENT), "lfs": lfs}, "other.pt": {}})
    at = f"/datasets/{FEATURES}" if kind == "datasets" else f"/{FEATURES}"
    hub.files[f"{at}/resolve/{'a' * 40}/{name}"] = CONTENT
    (path,) = obtained("cholec80_plstitch")
    assert path == places / "data" / "pjepa_features" / name
    assert path.read_bytes() == CONTENT
    assert local_files(CATALOGUE["cholec80_plstitch"]) == [path]
    listed(hub, f"{kind}/{FEATURES}", {name: {"lfs": {**lfs, "sha256": "0" * 64}}})
    with pytest.raises(InputError, match=f"sha256 {SHA}, the released file has sha256 0000"):
        obtained("cholec80_plstitch")


def test_catalogue_names_every_release_once() -> None:
    kinds = [item.kind for item in CATALOGUE.values()]
    assert {k: kinds.count(k) for k in kinds} == {
        "backbone": 4, "encoder": len(RELEASED), "head": 5, "archive": 6, "data set": 4,
    }  # fmt: skip
    for name, item in CATALOGUE.items():
        assert item.files or item.by_hand, name
        assert item.sha256 is None or len(item.sha256) == 64
    assert all(name in run("--list").stdout for name in CATALOGUE)
