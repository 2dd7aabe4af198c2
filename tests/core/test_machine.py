"""Where work runs: one section, overridden by local.yaml and the environment, in no dump."""

from pathlib import Path

import pytest

from pjepa.core.section import read_section
from pjepa.patches.config import PatchesConfig
from pjepa.pretrain.config import PjepaConfig
from pjepa.ui.console import InputError

PARAMS = {"machine": {"device": "cpu", "workers": 3}, "threads": 5, "patches": {"threads": 7}}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("DVC_ROOT", "PJEPA_DEVICE", "PJEPA_WORKERS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_sections_are_told_their_place() -> None:
    patches = read_section(PatchesConfig, "patches", PARAMS)
    assert (patches.device, patches.workers, patches.threads) == ("cpu", 3, 7)
    pjepa = read_section(PjepaConfig, "pjepa", PARAMS)
    assert (pjepa.device, pjepa.workers, pjepa.threads) == ("cpu", 3, 5)
    assert not {"device", "workers", "executor"} & set(patches.model_dump())
    assert not {"device", "workers", "threads"} & set(pjepa.model_dump())


def test_this_machine_goes_before_params(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (alone / "local.yaml").write_text("machine: {device: meta, workers: 9}\n")
    assert read_section(PjepaConfig, "pjepa", PARAMS).workers == 9
    monkeypatch.setenv("PJEPA_DEVICE", "cuda:1")
    monkeypatch.setenv("PJEPA_WORKERS", "4")
    found = read_section(PjepaConfig, "pjepa", PARAMS)
    assert (found.device, found.workers) == ("cuda:1", 4)


def test_resume_keys_know_threads_and_the_kind_of_device() -> None:
    def key(**changes: object) -> object:
        return PjepaConfig(**changes).resume_key()

    assert key(stream="file") == key()
    assert key(device="cuda:0") == key(device="cuda:1")
    assert key(workers=1) == key(workers=8)
    assert key(device="cpu") != key(device="cuda")
    assert key(threads=1) != key(threads=2)


def test_bad_values_say_where_they_stand(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"machine\.stream = 'gpu'"):
        read_section(PjepaConfig, "pjepa", {"machine": {"stream": "gpu"}})
    with pytest.raises(InputError, match=r"machine\.workers = 0"):
        read_section(PjepaConfig, "pjepa", {"machine": {"workers": 0}})
    (alone / "local.yaml").write_text("device: cuda\n")
    with pytest.raises(InputError, match=r"local\.yaml: expected data_root or machine"):
        read_section(PjepaConfig, "pjepa", PARAMS)
    (alone / "local.yaml").unlink()
    monkeypatch.setenv("PJEPA_WORKERS", "many")
    with pytest.raises(InputError, match="PJEPA_WORKERS='many': expected a number"):
        read_section(PjepaConfig, "pjepa", PARAMS)
