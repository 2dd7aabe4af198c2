"""Local processes: a worker that dies costs one take, a fault ends the run, bytes are the same."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from pjepa.backbones.backbone import backbone_facts
from pjepa.backbones.encode import Job, Outcome, encoded_job
from pjepa.config.patches import PatchesConfig
from pjepa.errors import InputError
from pjepa.executors.local import TRIES, run_local
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


def kill_workers() -> None:
    for child in multiprocessing.active_children():
        child.kill()


def test_a_dead_worker_costs_one_take_and_a_deadly_take_only_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recovering, deadly, plain = jobs(tmp_path, 3)
    ended: list[Outcome] = []
    killed: list[str] = []

    def on_frames(count: int) -> None:
        if not ended and not killed:
            killed.append(recovering.take_id)
            kill_workers()
        elif len(ended) == 1 and len(killed) < 1 + TRIES:
            killed.append(deadly.take_id)
            kill_workers()

    for outcome in run_local([recovering, deadly, plain], CONFIG, FACTS, on_frames):
        ended.append(outcome)
    assert [outcome.take_id for outcome in ended] == ["take0", "take1", "take2"]
    assert [outcome.reason is None for outcome in ended] == [True, False, True]
    assert ended[1].reason == (
        "1.mp4: 3 workers died on it, most likely out of memory; lower patches.workers or "
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
