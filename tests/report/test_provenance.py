"""The page names the commit it was made on, and what differs from it; without Git it says so."""

import subprocess
from pathlib import Path

import pytest

from pjepa.report import markdown
from pjepa.report.page import markdown_html
from pjepa.report.provenance import Revision, dated, git_revision


def revision_text(revision: Revision | None) -> str:
    return markdown.text("revision", revision=revision)


def git(*arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_commit_and_what_differs_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in map(Path, ("pjepa/a.py", "params.yaml", "dvc.lock", "results/metrics.json")):
        name.parent.mkdir(exist_ok=True)
        name.write_text("x")
    assert git_revision() == Revision("")
    git("init", "--quiet")
    assert git_revision() == Revision("")  # no commit yet
    git("add", "--all")
    git("commit", "--quiet", "--message", "x")
    commit = git("rev-parse", "HEAD").strip()
    Path("dvc.lock").write_text("y")  # DVC writes it while it runs
    Path("results/metrics.json").unlink()
    day = git("show", "--no-patch", "--format=%cs").strip()
    assert git_revision() == Revision(commit, (), day)
    assert dated(git_revision()) == f"{day} (commit {commit[:8]})"
    assert f"`{commit}`, code and parameters as committed" in revision_text(git_revision())
    Path("params.yaml").write_text("y")
    Path("pjepa/<b> ü.py").write_text("new")
    found = git_revision()
    assert set(found.changed) == {"params.yaml", "pjepa/<b> ü.py"}
    assert dated(found) == f"{day} (commit {commit[:8]} with uncommitted changes)"
    text = markdown_html(revision_text(found))
    assert "<strong>with uncommitted changes</strong>: params.yaml, pjepa/&lt;b&gt; ü.py" in text


def test_no_git_is_said_and_a_long_list_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert git_revision() == Revision("")
    assert "none" in revision_text(Revision(""))
    assert "report.git_revision" in revision_text(None)
    assert dated(None) == dated(Revision("")) == "undated"
    assert "and 3 more" in revision_text(Revision("c", tuple("abcdefgh")))
