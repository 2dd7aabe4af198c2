"""A preset through a real `dvc repro`, and a colleague who pulls from S3 what was not run here.

The S3 server is moto's, on 127.0.0.1; DVC, its cache and its remote are the real ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from pjepa.tools.params import Params
from pjepa.tools.presets import params_text
from tests.pipeline.copies import Copy, ran
from tests.pipeline.test_preset_runs import miniature

pytestmark = pytest.mark.slow
BUCKET = "pjepa-team"


class PresetCopy(Copy):
    """A copy of the project with a preset's miniature applied; its data stands outside."""

    def __init__(self, folder: Path, preset: str) -> None:
        root = folder.with_name(f"{folder.name}-data")
        values = miniature(preset, root)
        values["cells"] = {"probes": ["linear"], "representations": ["raw", "pjepa"]}
        super().__init__(folder)
        (folder / "local.yaml").write_text(f"data_root: {root}\n")
        (folder / "params.yaml").write_text(params_text(Params.model_validate(values)))
        self.run("pjepa", "data", "scan")
        self.commit()

    @classmethod
    def clone(cls, source: Copy, folder: Path) -> PresetCopy:
        """What a colleague has after `git clone`: no data root, no cache."""
        found = cls.__new__(cls)
        source.run("git", "clone", "--quiet", ".", str(folder))
        found.folder = folder
        for name, value in (("name", "colleague"), ("email", "colleague@localhost")):
            found.run("git", "config", f"user.{name}", value)
        return found


@dataclass(frozen=True)
class Remote:
    """The S3 server and what lies in the team's bucket."""

    endpoint: str

    def keys(self) -> set[str]:
        client = boto3.client("s3", endpoint_url=self.endpoint)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return {entry["Key"] for page in pages for entry in page.get("Contents", [])}

    def has(self, md5: str) -> bool:
        """Whether an object of this hash was pushed (DVC: files/md5/ab/cdef...)."""
        return any(key.endswith(f"files/md5/{md5[:2]}/{md5[2:]}") for key in self.keys())


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "HTTP_PROXY", "http_proxy", "PJEPA_DATA_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    found = Remote(f"http://{host}:{port}")
    boto3.client("s3", endpoint_url=found.endpoint).create_bucket(Bucket=BUCKET)
    yield found
    server.stop()


def test_a_colleague_pulls_from_s3_all_but_patches(tmp_path: Path, remote: Remote) -> None:
    ours = PresetCopy(tmp_path / "ours", "assembly101-vjepa-mean")
    ours.run("dvc", "repro")
    ours.run("dvc", "remote", "add", "--default", "team", f"s3://{BUCKET}/pjepa")
    ours.run("dvc", "remote", "modify", "team", "endpointurl", remote.endpoint)
    ours.commit()
    ours.run("dvc", "push")
    hashes = ours.hashes()
    assert not remote.has(hashes.pop("data/patches"))  # push: false
    hashes.pop("results/metrics.json")  # in Git
    assert all(remote.has(md5) for md5 in hashes.values())
    theirs = PresetCopy.clone(ours, tmp_path / "theirs")
    theirs.run("dvc", "pull", "--allow-missing")
    assert all((theirs.folder / path).exists() for path in hashes)
    assert not (theirs.folder / "data/patches").exists()
    assert not ran(theirs.run("dvc", "repro", "--pull", "--allow-missing"))

    # They need not pull first: what the changed stages read is fetched, and those stages run.
    theirs = PresetCopy.clone(ours, tmp_path / "another")
    theirs.edit_params({"probe": {"linear": {"paper": {"epochs": 2}}}})
    output = theirs.run("dvc", "repro", "--pull", "--allow-missing")
    assert ran(output) == {"probe@linear-raw", "probe@linear-pjepa", "report"}
    metrics = json.loads((theirs.folder / "results/metrics.json").read_text())
    assert set(metrics["linear"]) == {"raw", "pjepa"}
    before, after = ours.hashes(), theirs.hashes()
    assert before["data/representations/pjepa"] == after["data/representations/pjepa"]
    assert not (theirs.folder / "data/patches").exists()
