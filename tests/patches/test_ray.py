"""A real Ray of two nodes: the same bytes, and a killed worker costs one take."""

import os
import signal
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from pjepa.patches.backbone import BackboneFacts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import Job, Outcome, encoded_job
from pjepa.patches.ray import CLUSTERS, encoded_remotely, run_ray
from pjepa.ui.console import InputError
from tests.patches.test_local import CONFIG, FACTS, expected, jobs

ROOT = Path(__file__).resolve().parents[2]
ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'pjepa[ray]'")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Ray would take a process that waits for a core for a dead one."""
    for name in (
        "health_check_initial_delay_ms", "health_check_timeout_ms",
        "worker_register_timeout_seconds", "gcs_server_request_timeout_seconds",
        "gcs_rpc_server_connect_timeout_s", "gcs_rpc_server_reconnect_timeout_s",
    ):  # fmt: skip
        monkeypatch.setenv(f"RAY_{name}", "600000" if name.endswith("ms") else "600")


def dying_once(job: Job, config: PatchesConfig, facts: BackboneFacts) -> tuple[Outcome, int]:
    """As the original, but the first worker that begins is killed within the take."""
    try:
        job.target.with_name("killed").touch(exist_ok=False)
    except FileExistsError:
        return encoded_remotely(job, config, facts)
    encoded_job(job, config, facts, lambda frames: os.kill(os.getpid(), signal.SIGKILL))
    raise AssertionError("no frame was encoded")


@pytest.mark.slow
def test_two_nodes_give_the_same_bytes_and_survive_a_killed_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.cluster_utils import Cluster

    work = jobs(tmp_path, 4)
    cluster = Cluster()
    try:
        for _ in range(2):
            cluster.add_node(wait=False, num_cpus=1)
        cluster.wait_for_nodes(timeout=600)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        monkeypatch.setattr("pjepa.patches.ray.encoded_remotely", dying_once)
        frames: list[int] = []
        ended = list(run_ray(work, CONFIG, FACTS, frames.append))
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert (tmp_path / "killed").exists()
    assert sorted(outcome.take_id for outcome in ended) == [job.take_id for job in work]
    assert [outcome.reason for outcome in ended] == [None] * 4
    assert sum(frames) == 4 * 200
    for job in work:
        assert job.target.read_bytes() == expected(job)


LISTENING = """
import psutil
from pjepa.patches import ray
from tests.patches.test_local import CONFIG

with ray._cluster(ray._imported(), CONFIG):
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        for socket in process.net_connections("inet"):
            if socket.status == "LISTEN":
                print(socket.laddr.ip)
"""


@pytest.mark.slow
def test_a_local_cluster_listens_on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", CLUSTERS):  # Ray reads the second when it is imported
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run([sys.executable, "-c", LISTENING], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    addresses = [ip_address(line) for line in done.stdout.decode().split()]
    assert len(addresses) >= 4
    assert all((getattr(at, "ipv4_mapped", None) or at).is_loopback for at in addresses)


def test_an_address_without_a_cluster_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(
        InputError, match=r"no cluster at RAY_ADDRESS=127\.0\.0\.1:1 .*ray start --head"
    ):
        list(run_ray(jobs(tmp_path, 1, 10), CONFIG, FACTS, lambda frames: None))
