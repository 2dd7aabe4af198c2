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
from functools import partial
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
LEVELS_OFF = 8  # of 256, by which lossy frames may differ
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
        installation, namesakes, codecs, devices, project, folders,
    ]  # fmt: skip
    for group in groups:
        try:
            yield from group()
        except Exception as error:  # one failing check must not hide the others
            yield CheckResult("broken", group.__name__, first_line(error))


def tried(
    what: str, trial: Callable[[], str], hint: str = "", otherwise: Status = "broken"
) -> CheckResult:
    """Return ok with what the trial returns, or `otherwise` with its error and the hint."""
    try:
        return CheckResult("ok", what, trial())
    except Exception as error:  # libraries, decoders and drivers raise many kinds
        reason = first_line(error).removeprefix(f"{what}: ")
        return CheckResult(otherwise, what, f"{reason}; {hint}" if hint else reason)


def installation() -> Iterator[CheckResult]:
    """Yield findings on Python and every package, imported."""
    yield CheckResult("ok", f"python {platform.python_version()}", platform.platform())
    for name in NEEDED:
        yield tried(name, partial(_imported, name), "run `pip install -c constraints.txt -e .`")
    for name, hint in OPTIONAL.items():
        yield tried(name, partial(_imported, name), hint, "missing")


def _imported(name: str) -> str:
    import_module(name)
    try:
        return version(name.replace("_", "-"))
    except PackageNotFoundError:
        return "no version"


AUTHORS = "https://github.com/FelTris/pjepa"
AUTHORS_FILES = ("pjepa/checkpoints", "pjepa/checkpoints.py", "pjepa/inference/encoder.py")


def namesakes() -> Iterator[CheckResult]:
    """Yield a finding if the authors' release, of the same import name, is installed too."""
    here = Path(__file__).resolve().parents[1]
    hint = "use a virtual environment for each"
    for entry in map(Path, dict.fromkeys(sys.path)):
        folder = entry / "pjepa"
        if folder.resolve() != here and any((entry / name).exists() for name in AUTHORS_FILES):
            detail = f"{folder} is the authors' release ({AUTHORS}); {hint}"
            yield CheckResult("broken", "another package called pjepa", detail)


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
            needed: Status = "broken" if codec == "h264" else "missing"
            hint = "reinstall av" if codec == "h264" else "such videos cannot be read"
            yield tried(f"{codec} through pyav", partial(_read_back, path, "pyav"), hint, needed)
            decord, hint = partial(_read_back, path, "decord"), "PyAV reads such files instead"
            yield tried(f"{codec} through decord", decord, hint, "missing")


def write_film(path: Path, encoder: str) -> None:
    """Write frames of rising brightness."""
    import av

    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(encoder, rate=FILM_FPS)
        stream.width = stream.height = FILM_SIDE
        stream.pix_fmt = "yuv420p"
        for number in range(FILM_FRAMES):
            picture = np.full((FILM_SIDE, FILM_SIDE, 3), 20 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode(None))


def _read_back(path: Path, reader: Literal["pyav", "decord"]) -> str:
    """Read the film and return how many frames there are; raise if they are not as written."""
    from pjepa.video.index import frame_index
    from pjepa.video.reader import decord_fault, open_video

    if reader == "decord" and (fault := decord_fault(path, frame_index(path))) is not None:
        raise InputError(fault)
    with open_video(path, reader) as video:
        frames = video.frames((np.arange(FILM_FRAMES) + 0.5) / FILM_FPS)
    error = np.abs(frames.mean(axis=(1, 2, 3)) - 20 * np.arange(FILM_FRAMES)).max()
    if error >= LEVELS_OFF:
        raise InputError(f"frames are {error:.0f} levels off")
    return f"{FILM_FRAMES} frames"


def devices() -> Iterator[CheckResult]:
    """Yield findings on processors, GPUs, bf16 and a compiler for torch.compile."""
    import torch

    from pjepa.ui.device import can_compile

    yield CheckResult("ok", "cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}")
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if not gpus:
        reason = "torch has CUDA, no usable GPU" if torch.version.cuda else "torch without CUDA"
        yield CheckResult("missing", "cuda", f"{reason}; everything runs on the CPU, slowly")
    for name in gpus:
        yield tried(name, partial(_computing, name))
    for kind in ("cpu", "cuda") if gpus else ("cpu",):
        usable = can_compile(torch.device(kind))
        detail = "" if usable else "no compiler; leave patches.compile and pjepa.compile false"
        yield CheckResult("ok" if usable else "missing", f"torch.compile on {kind}", detail)


def _computing(gpu: str) -> str:
    """Compute on a GPU and return what it is."""
    import torch

    torch.ones(8, 8, device=gpu).sum().item()
    memory = torch.cuda.get_device_properties(gpu).total_memory / 1e9
    bf16 = "yes" if torch.cuda.is_bf16_supported() else "no"
    return f"{torch.cuda.get_device_name(gpu)}, {memory:.0f} GB, bf16 {bf16}"


def project() -> Iterator[CheckResult]:
    """Yield findings on params.yaml, the data and weights it asks for, git and DVC."""
    from pjepa.patches.backbone import backbone_facts
    from pjepa.tools.params import check_params

    if not paths.PARAMS.is_file():
        yield CheckResult("missing", str(paths.PARAMS), "run inside the project for the pipeline")
        return
    checked = tried(str(paths.PARAMS), lambda: f"data from {check_params().data.source}")
    yield checked
    yield tried("git", _git_commit, "run make, or git init, git commit")
    yield tried("dvc", _dvc_root, "run make, or dvc init")
    if checked.state == "ok":
        yield from _listed_data()
        config = check_params().patches
        what = f"weights of {config.backbone}"
        yield tried(what, lambda: backbone_facts(config).weights_id, otherwise="missing")


def _listed_data() -> Iterator[CheckResult]:
    """Yield a finding if the list of the source's files does not match the disk."""
    from pjepa.core.section import read_section
    from pjepa.storage.roots import data_root
    from pjepa.takes.config import DataConfig
    from pjepa.takes.sources.scan import stale_list

    config = read_section(DataConfig, "data")
    if stale := stale_list(config, data_root(), paths.source_list(config.source)):
        yield CheckResult("broken", "list of data", f"{stale}, then `dvc repro`")


def _git_commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError("this folder is not set up")
    return f"at {done.stdout.strip()}"


def _dvc_root() -> str:
    from dvc.repo import Repo

    Repo.find_root()
    return "initialised"


def folders() -> Iterator[CheckResult]:
    """Yield findings on cache, data root and work folder: writable, and the room left."""
    from pjepa.storage.hub import CACHE, cache_root
    from pjepa.storage.roots import DATA_ROOT, data_root
    from pjepa.storage.work import work_root

    yield _folder("cache", cache_root(), f"set {CACHE} to a folder you may write")
    root = data_root()
    hint = "" if root.is_dir() else f" is no folder; set {DATA_ROOT} or local.yaml"
    yield CheckResult("broken" if hint else "ok", "data root", f"{root}{hint}")
    if paths.PARAMS.is_file():
        yield _folder("work folder", work_root(), "the project's disk must be writable")


def _folder(what: str, folder: Path, hint: str) -> CheckResult:
    """Write to the folder, or where it will be made, and return how much room there is."""
    present = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=present):
            free = shutil.disk_usage(present).free / 1e9
    except OSError as error:
        return CheckResult("broken", what, f"{folder}: {first_line(error)}; {hint}")
    detail = f"{folder}, {free:.0f} GB free"
    if free >= TIGHT_GB:
        return CheckResult("ok", what, detail)
    return CheckResult("missing", f"room in {what}", f"{detail}; features of many hours need more")
