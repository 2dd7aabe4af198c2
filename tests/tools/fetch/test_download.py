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
KILLED = """
import os, signal
from pathlib import Path
from pjepa.storage import download

class Deadly(download.Meter):
    def advance(self, *a, **k):
        super().advance(*a, **k)
        if self.done: os.kill(os.getpid(), signal.SIGKILL)

download.Meter = Deadly
download.downloaded(download.Remote('{url}/w.pt'), Path('{folder}/w.pt'))
"""


@pytest.fixture
def target(site: Site, tmp_path: Path) -> Path:
    """Where the file goes that the server has."""
    site.files["/w.pt"] = CONTENT
    return tmp_path / "w.pt"


def remote(site: Site, **known: object) -> Remote:
    return Remote(f"{site.url}/w.pt", **known)  # type: ignore[arg-type]


def visible(folder: Path) -> list[str]:
    """The lock is hidden."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize(
    ("trouble", "starts"),
    [
        ({"cuts": [1 << 20, 0, 70_000]}, [0, 1 << 20, 1 << 20, (1 << 20) + 70_000]),
        ({"errors": [503, 429, 500]}, [0, 0, 0, 0]),
        ({"cuts": [1 << 20], "ranges": False}, [0, 1 << 20]),  # which sends everything again
    ],
)
def test_what_passes_is_tried_again(
    site: Site, target: Path, trouble: dict[str, object], starts: list[int]
) -> None:
    vars(site).update(trouble)
    assert downloaded(remote(site, sha256=SHA), target).read_bytes() == CONTENT
    asked = [int(r.removeprefix("bytes=").rstrip("-") or 0) for _, _, r in site.asked]
    assert asked == starts


@pytest.mark.slow
def test_the_next_run_continues_a_killed_one(site: Site, target: Path) -> None:
    """SIGKILL in the middle of the body: the next process asks for the rest only."""
    code = KILLED.format(url=site.url, folder=target.parent)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    have = target.with_name("w.pt.partial").stat().st_size
    assert have == 1 << 20
    assert not target.exists()
    assert downloaded(remote(site, sha256=SHA), target).read_bytes() == CONTENT
    assert site.asked[-1] == ("GET", "/w.pt", f"bytes={have}-")
    assert visible(target.parent) == ["w.pt"]


@pytest.mark.parametrize("ranges", [True, False])
def test_two_versions_are_never_joined(site: Site, target: Path, ranges: bool) -> None:
    class Once(dict[str, bytes]):
        def __contains__(self, key: object) -> bool:
            return not any(path == key for _, path, _ in site.asked[:-1])

    site.files = Once({"/w.pt": bytes(len(CONTENT))})
    site.ranges, site.cuts = ranges, [1 << 20]
    with pytest.raises(InputError, match="404"):  # the file vanishes after the first megabyte
        downloaded(remote(site), target)
    assert target.with_name("w.pt.partial").stat().st_size == 1 << 20
    site.files = {"/w.pt": CONTENT}
    assert downloaded(remote(site), target).read_bytes() == CONTENT


def test_wrong_bytes_are_put_aside(site: Site, target: Path) -> None:
    site.files["/w.pt"] = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with pytest.raises(InputError, match=rf"rejected: sha256 \w+, put aside, .* sha256 {SHA}"):
        downloaded(remote(site, bytes=len(CONTENT), sha256=SHA), target)
    assert not {"w.pt", "w.pt.partial"} & set(visible(target.parent))
    site.files["/w.pt"] = CONTENT
    for more, known in ((b"", {"sha256": SHA}), (b"too much", {})):  # all was there, or more
        target.unlink(missing_ok=True)
        target.with_name("w.pt.partial").write_bytes(CONTENT + more)
        assert downloaded(remote(site, **known), target).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "known", "errors", "message"),
    [
        ("w.pt", {"bytes": 7}, [], rf"offers {len(CONTENT)} bytes, expected 7; the release"),
        ("gone.pt", {}, [], r"gone\.pt: the server says 404"),
        ("w.pt", {}, [503] * 9, r"no connection \(503"),
    ],
)
def test_what_does_not_pass_is_named(
    site: Site, target: Path, name: str, known: dict[str, int], errors: list[int], message: str
) -> None:
    site.errors = errors
    with pytest.raises(InputError, match=message):
        downloaded(Remote(f"{site.url}/{name}", **known), target)
    assert len(site.asked) == (5 if errors else 1)
    assert visible(target.parent) == []


def test_dead_server_full_disk_and_second_process_are_named(
    site: Site, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"no connection \(.*refused"):
        downloaded(Remote("http://127.0.0.1:9/w.pt"), target)
    with (
        FileLock(target.with_name(".w.pt.lock")),
        pytest.raises(InputError, match="another process is fetching it"),
    ):
        downloaded(remote(site), target)
    usage = type(shutil.disk_usage(target.parent))(10, 9, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InputError, match="GB are free; make room, or set PJEPA_CACHE"):
        downloaded(remote(site), target)
