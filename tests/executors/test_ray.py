"""A real Ray of two nodes: the same bytes, and a killed worker costs one take."""

import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pjepa.errors import InputError
from pjepa.executors.ray import run_ray
from tests.executors.test_local import CONFIG, FACTS, expected, jobs

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'pjepa[ray]'")


def kill_one(raylets: list[int], killed: list[int]) -> None:
    """Kills the first worker of these raylets that is busy with a take."""
    for _ in range(1200):
        for raylet in raylets:
            for process in psutil.Process(raylet).children(recursive=True):
                try:
                    busy = "encoded_remotely" in " ".join(process.cmdline())
                except psutil.Error:
                    continue
                if busy:
                    time.sleep(0.3)  # into the take
                    process.kill()
                    killed.append(process.pid)
                    return
        time.sleep(0.05)


def raylet_pids(cluster: Any) -> list[int]:
    return [
        part.process.pid
        for node in cluster.list_all_nodes()
        for part in node.all_processes["raylet"]
    ]


@pytest.mark.slow
def test_two_nodes_give_the_same_bytes_and_survive_a_killed_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.cluster_utils import Cluster

    work = jobs(tmp_path, 4)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        killed: list[int] = []
        killer = threading.Thread(target=kill_one, args=(raylet_pids(cluster), killed))
        killer.start()
        frames: list[int] = []
        ended = list(run_ray(work, CONFIG, FACTS, frames.append))
        killer.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert killed
    assert sorted(outcome.take_id for outcome in ended) == [job.take_id for job in work]
    assert [outcome.reason for outcome in ended] == [None] * 4
    assert sum(frames) == 4 * 200
    for job in work:
        assert job.target.read_bytes() == expected(job)


def test_an_address_without_a_cluster_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(
        InputError, match=r"no cluster at RAY_ADDRESS=127\.0\.0\.1:1 .*ray start --head"
    ):
        list(run_ray(jobs(tmp_path, 1, 10), CONFIG, FACTS, lambda frames: None))
