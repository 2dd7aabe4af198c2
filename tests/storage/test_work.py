"""Work folders: what other code began is not continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from pjepa.storage import work as resume
from pjepa.storage.work import work_folder, work_root

BEFORE = '"""Doc."""\n\ndef ema(a):\n    return a * 0.5  # half\n'


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose stage `train` tracks one file."""
    file = tmp_path / "pjepa" / "ema.py"
    file.parent.mkdir()
    file.write_text(BEFORE)
    text = "stages:\n  train:\n    deps:\n      - pjepa/${item.probe}.py\n      - data/x\n"
    (tmp_path / "dvc.yaml").write_text(text)
    monkeypatch.setattr(resume, "ROOT", tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return file


def interrupted() -> bool:
    """Runs the stage until it is interrupted; whether an earlier state was there."""
    try:
        with work_folder("train", "k", {"probe": "ema"}) as work:
            found = (work / "state").exists()
            (work / "state").write_text("half")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return found


def test_a_run_resumes_until_its_code_or_torch_changes(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not interrupted()
    assert interrupted()
    assert capsys.readouterr().err == ""
    program.write_text(BEFORE.replace("0.5", "0.6"))
    assert not interrupted()
    said = capsys.readouterr().err
    assert said == "train: the code or torch changed since the interrupted run; starting over\n"
    assert len([p for p in (work_root() / "train").iterdir() if p.is_dir()]) == 1
    assert interrupted()
    monkeypatch.setattr(resume, "version", lambda name: "99.0")
    assert not interrupted()


def test_success_removes_the_work_in_one_step(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(resume, "remove", killed)
    with pytest.raises(KeyboardInterrupt), work_folder("train", "k", {"probe": "ema"}) as work:
        (work / "state").write_text("done")
    assert not work.exists()
