"""`pjepa doctor`: does this machine have what extraction and the pipeline need?

Every line is a real trial: packages are imported, a tiny film is encoded and decoded, a file is
written to each folder. `broken` is needed and does not work; `missing` matters to some only.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pjepa.tools import paths
from pjepa.ui.console import InputError, first_line

Status = Literal["ok", "missing", "broken"]

NEEDED = ("torch", "torchvision", "timm", "av", "pyarrow", "safetensors", "huggingface_hub", "dvc")
OPTIONAL = {
    "decord": "PyAV reads the videos instead",
    "ray": "for machine.executor: ray, install pjepa[ray]",
}
CODECS = {"h264": ("libx264", "mp4"), "vp9": ("libvpx-vp9", "webm"), "av1": ("libsvtav1", "mp4")}
FILM_FRAMES, FILM_SIDE, FILM_FPS = 12, 96, 12
TIGHT_GB = 20.0  # an hour of ViT-g features with every patch is 23 GB


@dataclass(frozen=True)
class CheckResult:
    """One line: what was tried, how it went, what to do."""

    state: Status
    what: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.state:8}{self.what}" + (f": {self.detail}" if self.detail else "")


def findings() -> Iterator[CheckResult]:
    """Yield the findings of every check; one that crashes is a finding too."""
    groups: list[Callable[[], Iterator[CheckResult]]] = [
        installation, namesakes, codecs, devices, project, folders, backbone_weights,
    ]  # fmt: skip
    for group in groups:
        try:
            yield from group()
        except Exception as error:  # a doctor that dies of what it finds is of no use
            yield CheckResult("broken", group.__name__, first_line(error))


def installation() -> Iterator[CheckResult]:
    """Yield findings on Python and every package, imported."""
    yield CheckResult("ok", f"python {platform.python_version()}", platform.platform())
    for name in (*NEEDED, *OPTIONAL):
        try:
            import_module(name)
            yield CheckResult("ok", f"{name} {_version(name)}")
        except Exception as error:  # a library that is there may still fail to load
            if name in OPTIONAL:
                yield CheckResult("missing", name, f"{first_line(error)}; {OPTIONAL[name]}")
            else:
                hint = "pip install -c constraints.txt -e ."
                yield CheckResult("broken", name, f"{first_line(error)}; run `{hint}`")


AUTHORS = "https://github.com/FelTris/pjepa"
AUTHORS_FILES = ("pjepa/checkpoints", "pjepa/checkpoints.py", "pjepa/inference/encoder.py")


def namesakes() -> Iterator[CheckResult]:
    """Yield a finding if the authors' release, of the same import name, is installed too."""
    here = Path(__file__).resolve().parents[1]
    hint = "use a virtual environment for each"
    for place in map(Path, dict.fromkeys(sys.path)):
        folder = place / "pjepa"
        if folder.resolve() != here and any((place / name).exists() for name in AUTHORS_FILES):
            detail = f"{folder} is the authors' release ({AUTHORS}); {hint}"
            yield CheckResult("broken", "another package called pjepa", detail)


def _version(name: str) -> str:
    try:
        return version(name.replace("_", "-"))
    except PackageNotFoundError:
        return "(no version)"


def codecs() -> Iterator[CheckResult]:
    """Yield findings on a tiny film per codec, read by each reader; h264 by PyAV is needed."""
    os.environ.setdefault("SVT_LOG", "0")  # the AV1 encoder writes to stderr otherwise
    with tempfile.TemporaryDirectory() as folder:
        for codec, (encoder, suffix) in CODECS.items():
            path = Path(folder) / f"{codec}.{suffix}"
            try:
                write_film(path, encoder)
            except Exception as error:  # this build of FFmpeg may have no such encoder
                yield CheckResult("missing", f"{codec} encoder", f"{first_line(error)}; not tried")
                continue
            for reader in ("pyav", "decord"):
                yield _read_back(path, codec, reader)


def write_film(path: Path, encoder: str) -> None:
    """Write frames of rising brightness."""
    import av

    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(encoder, rate=FILM_FPS)
        stream.width = stream.height = FILM_SIDE
        stream.pix_fmt = "yuv420p"
        for number in range(FILM_FRAMES):
            picture = np.full((FILM_SIDE, FILM_SIDE, 3), 20 * number, np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FILM_FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _read_back(path: Path, codec: str, reader: str) -> CheckResult:
    from pjepa.video.decord import decord_fault
    from pjepa.video.index import frame_index
    from pjepa.video.reader import open_video

    what, needed = f"{codec} through {reader}", (codec, reader) == ("h264", "pyav")
    try:
        if reader == "decord" and (fault := decord_fault(path, frame_index(path))) is not None:
            return CheckResult("missing", what, f"{fault}; PyAV reads such files instead")
        with open_video(path, reader) as video:  # type: ignore[arg-type]
            frames = video.frames((np.arange(FILM_FRAMES) + 0.5) / FILM_FPS)
        shown = frames.mean(axis=(1, 2, 3))
        error = float(np.abs(shown - 20 * np.arange(FILM_FRAMES)).max())
        if error < 8:
            return CheckResult("ok", what, f"{FILM_FRAMES} frames")
        reason = f"frames are {error:.0f} levels off"
    except Exception as error:  # decoders raise many kinds
        reason = first_line(error) if needed else "cannot be decoded"
    hint = "reinstall av" if needed else "such videos cannot be read"
    return CheckResult("broken" if needed else "missing", what, f"{reason}; {hint}")


def devices() -> Iterator[CheckResult]:
    """Yield findings on processors, GPUs, bf16 and a compiler for torch.compile."""
    import torch

    from pjepa.ui.device import can_compile

    yield CheckResult("ok", "cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}")
    if not torch.cuda.is_available():
        reason = "torch has CUDA, no usable GPU" if torch.version.cuda else "torch without CUDA"
        yield CheckResult("missing", "cuda", f"{reason}; everything runs on the CPU, slowly")
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        memory = torch.cuda.get_device_properties(index).total_memory / 1e9
        detail = f"{torch.cuda.get_device_name(index)}, {memory:.0f} GB"
        torch.ones(8, 8, device=f"cuda:{index}").sum().item()
        bf16 = torch.cuda.is_bf16_supported()
        yield CheckResult("ok", f"cuda:{index}", f"{detail}, bf16 {'yes' if bf16 else 'no'}")
    for name in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        if can_compile(torch.device(name)):
            yield CheckResult("ok", f"torch.compile on {name}")
        else:
            hint = "leave patches.compile and pjepa.compile false"
            yield CheckResult("missing", f"torch.compile on {name}", f"no compiler; {hint}")


def project() -> Iterator[CheckResult]:
    """Yield findings on params.yaml, git and DVC of the working folder."""
    from pjepa.tools.params import check_params

    if not paths.PARAMS.is_file():
        yield CheckResult("missing", str(paths.PARAMS), "run inside the project for the pipeline")
        return
    try:
        check_params()
        yield CheckResult("ok", str(paths.PARAMS))
    except InputError as error:
        yield CheckResult("broken", str(paths.PARAMS), str(error).removeprefix(f"{paths.PARAMS}: "))
    yield from _listed_data()
    for tool, command, hint in (
        ("git", ["git", "rev-parse", "--short", "HEAD"], "git init, git commit"),
        ("dvc", ["dvc", "root"], "dvc init"),
    ):
        done = _output(command)
        if done is None:
            yield CheckResult("broken", tool, f"this folder is not set up; run make, or {hint}")
        else:
            yield CheckResult("ok", tool, f"at {done}" if tool == "git" else "initialised")


def _listed_data() -> Iterator[CheckResult]:
    """Yield a finding on whether the list of the source's files matches the disk."""
    from pjepa.core.section import read_section
    from pjepa.storage.roots import data_root
    from pjepa.takes.config import DataConfig
    from pjepa.takes.sources.scan import stale_list

    try:
        config = read_section(DataConfig, "data")
    except InputError:
        return  # `project` has said so
    if stale := stale_list(config, data_root(), paths.source_list(config.source)):
        yield CheckResult("broken", "list of data", f"{stale}, then `dvc repro`")


def _output(command: list[str]) -> str | None:
    """Return what a command prints; None if it fails or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def folders() -> Iterator[CheckResult]:
    """Yield findings on cache, data root and work folder: writable, and the room left."""
    from pjepa.storage.hub import CACHE, cache_root
    from pjepa.storage.roots import DATA_ROOT, data_root
    from pjepa.storage.work import work_root

    yield _folder("cache", cache_root(), f"set {CACHE} to a folder you may write")
    if not data_root().is_dir():
        detail = f"{data_root()} is no folder; set {DATA_ROOT} or local.yaml"
        yield CheckResult("broken", "data root", detail)
    else:
        yield CheckResult("ok", "data root", str(data_root()))
    if paths.PARAMS.is_file():
        yield _folder("work folder", work_root(), "the project's disk must be writable")


def _folder(what: str, folder: Path, hint: str) -> CheckResult:
    present = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=present):
            pass
    except OSError as error:
        return CheckResult("broken", what, f"{folder}: {first_line(error)}; {hint}")
    free = shutil.disk_usage(present).free / 1e9
    detail = f"{folder}, {free:.0f} GB free"
    if free < TIGHT_GB:
        return CheckResult(
            "missing", f"room in {what}", f"{detail}; features of many hours need more"
        )
    return CheckResult("ok", what, detail)


def backbone_weights() -> Iterator[CheckResult]:
    """Yield findings on the weights that params.yaml asks for."""
    if not paths.PARAMS.is_file():
        return
    from pjepa.core.section import read_section
    from pjepa.patches.backbone import backbone_facts
    from pjepa.patches.config import PatchesConfig

    try:
        config = read_section(PatchesConfig, "patches")
    except InputError:
        return  # `project` has said so
    what = f"weights of {config.backbone}"
    try:
        facts = backbone_facts(config)
        yield CheckResult("ok", what, facts.weights_id)
    except InputError as error:
        yield CheckResult("missing", what, str(error))
