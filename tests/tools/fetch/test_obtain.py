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
from pjepa.tools.catalogue import CATALOGUE, FEATURES
from pjepa.tools.cli import app
from pjepa.tools.fetch import local_files, obtained
from pjepa.ui.console import InputError
from tests.tools.fetch.conftest import Site

BASE, ENCODER = "vjepa2_1_vit_base_384", "assembly101_tsm_clip"
CONTENT = random.Random(1).randbytes(50_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


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
    item = replace(CATALOGUE[BASE], url=f"{site.url}/w.pt", bytes=len(CONTENT), sha256=SHA)
    monkeypatch.setitem(CATALOGUE, BASE, item)
    return site


def test_backbone_is_fetched_into_the_cache_and_found_there(base: Site, places: Path) -> None:
    base.files["/w.pt"] = CONTENT
    found = run(BASE)
    target = places / "cache" / "checkpoints" / str(VARIANTS[BASE].file)
    assert found.exit_code == 0, found.output
    assert found.stdout == f"{BASE}: {target}\n"
    assert target.read_bytes() == CONTENT
    assert local_files(CATALOGUE[BASE]) == [target]
    again = run(BASE)
    assert "already here" in again.stderr
    assert len(base.asked) == 1


def test_file_put_there_by_hand_is_checked(base: Site, places: Path) -> None:
    target = places / "data" / "checkpoints" / str(VARIANTS[BASE].file)
    target.parent.mkdir(parents=True)
    target.write_bytes(CONTENT)
    assert obtained(BASE) == [target]
    target.write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    with pytest.raises(InputError, match=f"the released file has sha256 {SHA}"):
        obtained(BASE)
    assert target.exists()  # not ours to remove
    assert not base.asked


def test_offline_says_which_file_to_put_where(base: Site, places: Path) -> None:
    item = replace(CATALOGUE[BASE], url="http://127.0.0.1:9/w.pt")
    CATALOGUE[BASE] = item
    found = run(BASE, "egoexo4d", "nothing_such")
    assert found.exit_code == 1
    place = places / "cache" / "checkpoints" / str(VARIANTS[BASE].file)
    first, second, third = [line for line in found.stderr.splitlines() if "error" in line]
    assert f"download http://127.0.0.1:9/w.pt and put it at {place}" in first
    assert "sign the licence form" in second
    assert "'nothing_such': nothing of that name" in third


def test_released_encoder_comes_from_the_hub(
    hub: Site, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files[f"/FelTris/pjepa/resolve/main/{ENCODER}.pt"] = CONTENT
    with pytest.raises(InputError, match=r"50000 bytes, the released file has 583007046 bytes"):
        obtained(ENCODER)
    item = replace(CATALOGUE[ENCODER], bytes=len(CONTENT), sha256=SHA)
    monkeypatch.setitem(CATALOGUE, ENCODER, item)
    (path,) = obtained(ENCODER)
    assert path.read_bytes() == CONTENT
    assert release_file(ENCODER) == path  # the same copy


def test_an_encoder_in_a_folder_of_the_hub_is_found(
    hub: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release is known by the names of its files, not by where the hub keeps them."""
    where = f"weights/{ENCODER}.pt"
    info = {"sha": "a" * 40, "id": "FelTris/pjepa", "siblings": [{"rfilename": where}]}
    tree = [{"type": "file", "path": where, "size": len(CONTENT), "oid": "b" * 40}]
    hub.json["/api/models/FelTris/pjepa"] = json.dumps(info).encode()
    hub.json["/api/models/FelTris/pjepa/tree/main"] = json.dumps(tree).encode()
    hub.files[f"/FelTris/pjepa/resolve/main/{where}"] = CONTENT
    item = replace(CATALOGUE[ENCODER], bytes=len(CONTENT), sha256=SHA)
    monkeypatch.setitem(CATALOGUE, ENCODER, item)
    assert obtained(ENCODER)[0].read_bytes() == CONTENT


def test_timm_weights_go_where_timm_looks(hub: Site) -> None:
    hub.files["/timm/resnet18.a1_in1k/resolve/main/model.safetensors"] = CONTENT
    assert obtained("timm:resnet18")[0].read_bytes() == CONTENT
    with pytest.raises(InputError, match="timm knows no weights"):
        obtained("timm:resnet999")


def test_archive_goes_below_the_data_root(hub: Site, places: Path) -> None:
    names = CATALOGUE["cholec80_plstitch"].files
    lfs = {"size": len(CONTENT), "sha256": SHA, "pointerSize": 130}
    siblings = [{"rfilename": n, "size": len(CONTENT), "lfs": lfs} for n in names]
    info = {"sha": "a" * 40, "id": FEATURES, "siblings": siblings}
    tree = [{"type": "file", "path": n, "size": len(CONTENT), "oid": "b" * 40} for n in names]
    hub.json[f"/api/datasets/{FEATURES}"] = json.dumps(info).encode()
    hub.json[f"/api/datasets/{FEATURES}/revision/main"] = json.dumps(info).encode()
    hub.json[f"/api/datasets/{FEATURES}/tree/{'a' * 40}"] = json.dumps(tree).encode()
    for name in names:
        hub.files[f"/datasets/{FEATURES}/resolve/{'a' * 40}/{name}"] = CONTENT
    found = obtained("cholec80_plstitch")
    assert found == [places / "data" / "pjepa_features" / name for name in names]
    assert found[0].read_bytes() == CONTENT
    assert local_files(CATALOGUE["cholec80_plstitch"]) == found
    lfs["sha256"] = "0" * 64
    hub.json[f"/api/datasets/{FEATURES}"] = json.dumps(info).encode()
    with pytest.raises(InputError, match=f"sha256 {SHA}, the released file has sha256 0000"):
        obtained("cholec80_plstitch")


def test_archive_needs_a_data_root(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PJEPA_DATA_ROOT")
    with pytest.raises(InputError, match=r"40\.2 GB need space; set PJEPA_DATA_ROOT"):
        obtained("lemon_plstitch")


def test_hub_that_does_not_answer_is_named(hub: Site) -> None:
    with pytest.raises(InputError, match=r"the hub did not answer .*resolve/main/assembly101"):
        obtained(ENCODER)
    with pytest.raises(InputError, match=r"the hub did not answer .*pjepa_features"):
        obtained("assembly101_tsm")


def test_catalogue_names_every_release_once() -> None:
    kinds = [item.kind for item in CATALOGUE.values()]
    assert {k: kinds.count(k) for k in kinds} == {
        "backbone": 4, "encoder": len(RELEASED), "head": 5, "archive": 6, "data set": 4,
    }  # fmt: skip
    for name, item in CATALOGUE.items():
        assert item.files or item.by_hand, name
        assert item.sha256 is None or len(item.sha256) == 64
    listed = run("--list")
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in CATALOGUE)
