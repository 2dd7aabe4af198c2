"""Downloads from a real server: every way a connection ends, and the file is whole or absent."""

import hashlib
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from pjepa.storage.download import Remote, downloaded
from pjepa.ui.console import InputError
from tests.tools.fetch.conftest import Site

CONTENT = random.Random(0).randbytes(3 * (1 << 20) + 12345)
SHA = hashlib.sha256(CONTENT).hexdigest()
ROOT = Path(__file__).parents[3]


def remote(site: Site, **known: object) -> Remote:
    site.files.setdefault("/w.pt", CONTENT)
    return Remote(f"{site.url}/w.pt", **known)  # type: ignore[arg-type]


def files(folder: Path) -> list[str]:
    """Visible files; the lock is hidden."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_whole_file_arrives_and_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "w.pt"
    wanted = remote(site, bytes=len(CONTENT), sha256=SHA)
    assert downloaded(wanted, target).read_bytes() == CONTENT
    assert files(target.parent) == ["w.pt"]
    downloaded(wanted, target)
    assert len(site.asked) == 1


def test_broken_connections_are_continued(site: Site, tmp_path: Path) -> None:
    site.cuts = [1 << 20, 0, 70_000]
    target = downloaded(remote(site, sha256=SHA), tmp_path / "w.pt")
    assert target.read_bytes() == CONTENT
    starts = [int(r.removeprefix("bytes=").rstrip("-") or 0) for _, _, r in site.asked]
    assert starts == [0, 1 << 20, 1 << 20, (1 << 20) + 70_000]


def test_errors_that_pass_are_tried_again(site: Site, tmp_path: Path) -> None:
    site.errors = [503, 429, 500]
    assert downloaded(remote(site), tmp_path / "w.pt").read_bytes() == CONTENT


@pytest.mark.slow
def test_the_next_run_continues_a_killed_one(site: Site, tmp_path: Path) -> None:
    """SIGKILL in the middle of the body: the next process asks for the rest only."""
    site.files["/w.pt"] = CONTENT
    partial = tmp_path / "w.pt.partial"
    code = (
        "import os, signal; from pathlib import Path\n"
        "from pjepa.storage import download\n"
        "class Deadly(download.Meter):\n"
        "    def advance(self, *a, **k):\n"
        "        super().advance(*a, **k)\n"
        "        if self.done: os.kill(os.getpid(), signal.SIGKILL)\n"
        "download.Meter = Deadly\n"
        f"download.downloaded(download.Remote('{site.url}/w.pt'), Path('{tmp_path}/w.pt'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    have = partial.stat().st_size
    assert have == 1 << 20
    assert not (tmp_path / "w.pt").exists()
    target = downloaded(remote(site, sha256=SHA), tmp_path / "w.pt")
    assert target.read_bytes() == CONTENT
    assert site.asked[-1] == ("GET", "/w.pt", f"bytes={have}-")
    assert files(tmp_path) == ["w.pt"]


def test_a_whole_partial_file_only_needs_its_name(site: Site, tmp_path: Path) -> None:
    (tmp_path / "w.pt.partial").write_bytes(CONTENT)
    assert downloaded(remote(site, sha256=SHA), tmp_path / "w.pt").read_bytes() == CONTENT
    (tmp_path / "v.pt.partial").write_bytes(CONTENT + b"more than there is")
    assert downloaded(remote(site), tmp_path / "v.pt").read_bytes() == CONTENT


@pytest.mark.parametrize("ranges", [True, False])
def test_two_versions_are_never_joined(site: Site, tmp_path: Path, ranges: bool) -> None:
    site.files["/w.pt"], site.ranges, site.cuts = bytes(len(CONTENT)), ranges, [1 << 20]
    first = Remote(f"{site.url}/w.pt")
    with pytest.raises(InputError, match="404"):  # the file vanishes after the first megabyte
        vanish_after_first(site, first, tmp_path / "w.pt")
    assert (tmp_path / "w.pt.partial").stat().st_size == 1 << 20
    site.files["/w.pt"] = CONTENT
    assert downloaded(first, tmp_path / "w.pt").read_bytes() == CONTENT


def vanish_after_first(site: Site, wanted: Remote, target: Path) -> None:
    class Once(dict[str, bytes]):
        def __contains__(self, key: object) -> bool:
            return not any(path == key for _, path, _ in site.asked[:-1])

    site.files = Once(site.files)
    try:
        downloaded(wanted, target)
    finally:
        site.files = {}


def test_without_ranges_it_starts_anew(site: Site, tmp_path: Path) -> None:
    site.ranges, site.cuts = False, [1 << 20]
    assert downloaded(remote(site, sha256=SHA), tmp_path / "w.pt").read_bytes() == CONTENT


def test_wrong_bytes_are_put_aside(site: Site, tmp_path: Path) -> None:
    site.files["/w.pt"] = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with pytest.raises(InputError, match=rf"rejected: sha256 \w+, put aside, .* sha256 {SHA}"):
        downloaded(remote(site, bytes=len(CONTENT), sha256=SHA), tmp_path / "w.pt")
    assert not (tmp_path / "w.pt").exists()
    assert not (tmp_path / "w.pt.partial").exists()
    site.files["/w.pt"] = CONTENT
    downloaded(remote(site, sha256=SHA), tmp_path / "w.pt")


def test_another_size_is_refused_before_the_first_byte(site: Site, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"offers {len(CONTENT)} bytes, expected 7; the release"):
        downloaded(remote(site, bytes=7), tmp_path / "w.pt")
    assert not (tmp_path / "w.pt.partial").exists()


def test_missing_file_and_dead_server_are_named(site: Site, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.pt: the server says 404"):
        downloaded(Remote(f"{site.url}/gone.pt"), tmp_path / "w.pt")
    assert len(site.asked) == 1
    with pytest.raises(InputError, match=r"no connection \(.*refused"):
        downloaded(Remote("http://127.0.0.1:9/w.pt"), tmp_path / "w.pt")
    site.errors = [503] * 9
    with pytest.raises(InputError, match=r"no connection \(503"):
        downloaded(remote(site), tmp_path / "w.pt")


def test_full_disk_and_second_process_are_named(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type(shutil.disk_usage(tmp_path))(10, 9, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InputError, match="GB are free; make room, or set PJEPA_CACHE"):
        downloaded(remote(site), tmp_path / "w.pt")
    with (
        FileLock(tmp_path / ".w.pt.lock"),
        pytest.raises(InputError, match="another process is fetching it"),
    ):
        downloaded(remote(site), tmp_path / "w.pt")
