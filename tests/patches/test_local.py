"""Local processes: a worker that dies costs one take, a fault ends the run, bytes are the same."""

import multiprocessing
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pjepa.patches import local
from pjepa.patches.backbone import backbone_facts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import Job, encoded_job
from pjepa.patches.local import TRIES, Worker, WorkerPool, run_local
from pjepa.patches.ray import gpu_share
from pjepa.ui.console import InputError
from tests.video.films import write_film

CONFIG = PatchesConfig(
    backbone="vjepa2_1_vit_tiny",
    checkpoint="random",
    frames_per_window=8,
    crop=96,
    grid=1,
    batch_windows=1,
)
FACTS = backbone_facts(CONFIG)


def jobs(folder: Path, count: int, frames: int = 400) -> list[Job]:
    films = [write_film(folder / f"{k}.mp4", k, frames) for k in range(count)]
    return [
        Job(f"take{k}", film.name, film, 0.0, None, film.with_suffix(".safetensors"))
        for k, film in enumerate(films)
    ]


def expected(job: Job) -> bytes:
    """What the take's file must hold."""
    alone = replace(job, target=job.target.with_name("alone.safetensors"))
    alone.target.unlink(missing_ok=True)
    assert encoded_job(alone, CONFIG, FACTS, lambda frames: None).reason is None
    return alone.target.read_bytes()


@pytest.mark.slow
def test_a_dead_worker_costs_one_take_and_a_deadly_take_only_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recovering, deadly, plain = jobs(tmp_path, 3)
    deaths = Counter({recovering.take_id: 1, deadly.take_id: TRIES})
    give_next = WorkerPool._give_next

    def give_next_to_a_dead_worker(team: WorkerPool, worker: Worker) -> None:
        """As the original, but the process is dead before it can begin a doomed take."""
        if team.waiting and deaths[team.waiting[0].take_id] > 0:
            deaths[team.waiting[0].take_id] -= 1
            worker.process.kill()
            worker.process.join()
        give_next(team, worker)

    monkeypatch.setattr(WorkerPool, "_give_next", give_next_to_a_dead_worker)
    ended = list(run_local([recovering, deadly, plain], CONFIG, FACTS, lambda frames: None))
    assert [outcome.take_id for outcome in ended] == ["take0", "take1", "take2"]
    assert [outcome.reason is None for outcome in ended] == [True, False, True]
    assert ended[1].reason == (
        "1.mp4: 3 workers died on it, most likely out of memory; lower machine.workers or "
        "patches.batch_windows"
    )
    said = capsys.readouterr().err
    assert "a worker died on take take0 (exit code -9); the take is tried again" in said
    assert recovering.target.read_bytes() == expected(recovering)
    assert plain.target.read_bytes() == expected(plain)
    assert not deadly.target.exists()
    assert multiprocessing.active_children() == []


def test_what_no_take_survives_ends_the_run_in_one_line(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"device": "nonsense"})
    with pytest.raises(InputError, match="device nonsense cannot be used"):
        list(run_local(jobs(tmp_path, 1, 10), config, FACTS, lambda frames: None))
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_takes_that_share_a_process_and_a_model_have_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "seats", lambda config: (1, 3))
    shared = jobs(tmp_path, 4, 40)
    ended = list(run_local(shared, CONFIG, FACTS, lambda frames: None))
    assert {outcome.take_id: outcome.reason for outcome in ended} == dict.fromkeys(
        [job.take_id for job in shared]
    )
    for job in shared:
        assert job.target.read_bytes() == expected(job)


@pytest.mark.slow
def test_a_death_is_blamed_on_a_take_that_was_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies before it begins, whenever it has been given the deadly take."""
    monkeypatch.setattr(local, "seats", lambda config: (1, 2))
    plain, deadly, other = jobs(tmp_path, 3, 40)
    give_next = WorkerPool._give_next

    def give_next_or_kill(team: WorkerPool, worker: Worker) -> None:
        if team.waiting[0] is deadly:
            worker.process.kill()
            worker.process.join()
        give_next(team, worker)

    monkeypatch.setattr(WorkerPool, "_give_next", give_next_or_kill)
    ended = list(run_local([plain, deadly, other], CONFIG, FACTS, lambda frames: None))
    found = {outcome.take_id: outcome.reason for outcome in ended}
    assert found.pop(deadly.take_id) is not None
    assert found == {plain.take_id: None, other.take_id: None}
    assert multiprocessing.active_children() == []


def test_on_cuda_there_is_one_process_per_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for device, workers, expected_seats in (
        ("cpu", 3, (3, 1)), ("cuda", 1, (1, 1)), ("cuda", 5, (2, 3)), ("cuda:1", 4, (1, 4)),
    ):  # fmt: skip
        config = CONFIG.model_copy(update={"device": device, "workers": workers})
        assert local.seats(config) == expected_seats


def test_a_take_on_ray_asks_for_a_share_of_a_gpu() -> None:
    assert [gpu_share(*case) for case in ((4, 16), (1, 2), (8, 2), (0, 2))] == [0.25, 0.5, 1, 1]
