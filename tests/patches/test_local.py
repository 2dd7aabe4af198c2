"""Local processes: a worker that dies costs one take, a fault ends the run, bytes are the same."""

import multiprocessing
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pjepa.patches import local
from pjepa.patches.backbone import backbone_facts
from pjepa.patches.encode import Job, encoded_job
from pjepa.patches.local import TRIES, Worker, run_local
from pjepa.patches.ray import gpu_share
from pjepa.ui.console import InputError
from tests.patches.patch_infos import tiny_config
from tests.video.films import write_film

CONFIG = tiny_config(crop=96, batch_windows=1)
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
@pytest.mark.parametrize("together", [1, 3])
def test_a_dead_worker_costs_one_take_and_a_deadly_take_only_itself(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    together: int,
) -> None:
    """Of takes that share a process and a model, only the one that was alone is blamed."""
    recovering, deadly, plain = work = jobs(tmp_path, 3, 40)
    deaths = Counter({recovering.take_id: 1, deadly.take_id: 99})

    class Mortal(Worker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            send = self.connection.send

            def give(job: Job) -> None:
                """As the original, but the process is dead before it can begin a doomed take."""
                if deaths[job.take_id] > 0:
                    deaths[job.take_id] -= 1
                    self.process.kill()
                    self.process.join()
                send(job)

            self.connection.send = give

    monkeypatch.setattr(local, "Worker", Mortal)
    monkeypatch.setattr(local, "takes_per_process", lambda config: (1, together))
    ended = {found.take_id: found.reason for found in run_local(work, CONFIG, FACTS, print)}
    assert ended == {
        "take0": None,
        "take1": f"1.mp4: {TRIES} workers died on it, most likely out of memory; lower "
        "machine.workers or patches.batch_windows",
        "take2": None,
    }
    said = capsys.readouterr().err
    assert "a worker died on take take0 (exit code -9); the take is tried again" in said
    assert [recovering.target.read_bytes(), plain.target.read_bytes()] == [
        expected(recovering), expected(plain),
    ]  # fmt: skip
    assert not deadly.target.exists()
    assert multiprocessing.active_children() == []


def test_what_no_take_survives_ends_the_run_in_one_line(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"device": "nonsense"})
    with pytest.raises(InputError, match="device nonsense cannot be used"):
        list(run_local(jobs(tmp_path, 1, 10), config, FACTS, print))
    assert multiprocessing.active_children() == []


def test_on_cuda_there_is_one_process_per_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for device, workers, expected_takes in (
        ("cpu", 3, (3, 1)), ("cuda", 1, (1, 1)), ("cuda", 5, (2, 3)), ("cuda:1", 4, (1, 4)),
    ):  # fmt: skip
        config = CONFIG.model_copy(update={"device": device, "workers": workers})
        assert local.takes_per_process(config) == expected_takes
    assert [gpu_share(*case) for case in ((4, 16), (1, 2), (8, 2), (0, 2))] == [0.25, 0.5, 1, 1]
