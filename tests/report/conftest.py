"""A small project whose cells were written by the real probe: raw shows what, pjepa shows which.

Five classes, three primitives: steps 1, 2 look alike, and so do 3, 4. `raw` and its controls carry
the primitive, P-JEPA and `history` the class.
"""

from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pytest

from pjepa.core.runs import token_offsets
from pjepa.core.tables import TAKES, Classes, VideoRow, write_classes, write_table, write_videos
from pjepa.probes.attentive.config import AttentiveConfig
from pjepa.probes.base.cell import CellInputs, run_cell
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.linear.config import LinearConfig, PaperFitConfig
from pjepa.report.config import CONTROLS, ENCODED
from pjepa.select.curve import ProbeCurve, write_curve
from pjepa.storage.writing import write_json
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import StreamWriter, Take, write_labels
from pjepa.tools import paths

HOSTILE = "<b>fill</b></script><script>alert(1)</script>"
NAMES = ("background", "open | shut", "_close", "cost $5 $6", HOSTILE)
PRIMITIVE = np.array([0, 1, 1, 2, 2])
COMMON = ProbeCommonConfig(bootstrap=50, threads=1)
LINEAR = LinearConfig(l2=(1e-1, 1e-2), paper=PaperFitConfig(epochs=2))
ATTENTIVE = AttentiveConfig(
    epochs=2, lr=0.02, window=8, chunk=4, width=8, heads=2, chunk_attention="chunk"
)
FPS, TOKENS, WIDTH = 4.0, 60, 6
KNOWS_CLASS = ("pjepa", "pjepa_segment", "history")
ANNOTATED = {"boundaries_train": "annotated", "boundaries_test": "annotated"}
PROVENANCE = {
    "raw": Provenance(lookahead_s=2),
    "smooth": Provenance(lookahead_s=2),
    "time": Provenance(whole_take=True),
}
TRUTH = pa.schema([("take_id", pa.string()), ("time_s", pa.float64()), ("primitive", pa.int32())])


def take_ids() -> list[str]:
    return [f"../take|{index}" for index in range(16)]


def write_project() -> None:
    """Writes every input of `report` under the present folder."""
    random = np.random.default_rng(0)
    times = np.arange(TOKENS) / FPS
    labels = [(take, times, np.repeat(random.integers(0, 5, 12), 5)) for take in take_ids()]
    write_labels(paths.LABELS, labels)
    rows = [
        dict.fromkeys(TAKES.names, "x")
        | {"take_id": take, "group": f"g{index}", "holdout": index in (8, 9)}
        | {"split": "train" if index < 10 else "test"}
        for index, take in enumerate(take_ids())
    ]
    write_table(paths.TAKES_TABLE, rows, TAKES)
    write_classes(paths.CLASSES, Classes(NAMES, 0))
    truth = [
        {"take_id": take, "time_s": time, "primitive": int(PRIMITIVE[label])}
        for take, _, row in labels
        for time, label in zip(times.tolist(), row, strict=True)
    ]
    write_table(paths.DEMO_TRUTH, truth, TRUTH)
    ceilings = {"appearance": {"acc": 50.0}, "history": {"acc": 95.0}}
    write_json(paths.DEMO_CEILINGS, {"split": "test", "order": "procedure", **ceilings})
    for number, name in enumerate((*CONTROLS, *ENCODED)):
        write_representation(name, labels, number)
        write_cell(name)
    write_curves()
    write_films()
    scores = {25: 31.5, 50: 38.0, 100: 40.25}
    write_curve(ProbeCurve(scores, {"raw": 30.0, "random": 28.5}, 8, 2), paths.CURVE)
    paths.PARAMS.write_text(SMALL_PARAMS)


def write_representation(name: str, labels: list, seed: int) -> None:
    random = np.random.default_rng([1, seed])
    codes = np.random.default_rng(2).normal(size=(5, WIDTH)) * 2
    provenance = PROVENANCE.get(name, Provenance(**ANNOTATED, lookahead_s=7.5))
    info = StreamInfo(source="test", fps=FPS, width=WIDTH, provenance=provenance)
    for variant in ("0/", "1/") if name == "random" else ("",):
        path = paths.representation(name) / f"{variant}{paths.STREAM.name}"
        with StreamWriter(path, info) as writer:
            for take, times, label in labels:
                code = codes[label if name in KNOWS_CLASS else PRIMITIVE[label]]
                features = code + random.normal(size=(TOKENS, WIDTH))
                writer.write(Take(take, features, times, label, token_offsets(label)))


def write_cell(name: str) -> None:
    inputs = replace(cell_inputs(name), truth=paths.DEMO_TRUTH)
    run_cell(inputs, paths.cell("linear", name), "linear", name, COMMON, LINEAR)


def write_attentive_cell(name: str, common: ProbeCommonConfig = COMMON) -> None:
    """A cell whose streamed predictions differ from the offline ones."""
    folder = paths.cell("attentive", name)
    run_cell(cell_inputs(name), folder, "attentive", name, common, ATTENTIVE)


def cell_inputs(name: str) -> CellInputs:
    streams = paths.representation_streams(paths.representation(name))
    return CellInputs(streams, paths.LABELS, paths.TAKES_TABLE, paths.CLASSES)


def write_curves() -> None:
    folder = paths.PRETRAIN_RESULTS / "plots" / "metrics"
    folder.mkdir(parents=True)
    for name in ("loss", "effective_rank", "extra"):
        rows = [f"{step}\t{1 / (step + 1)}" for step in range(20)]
        (folder / f"{name}.tsv").write_text("\n".join([f"step\t{name}", *rows]) + "\n")
    (folder / "broken.tsv").write_text("nothing\there\n1\t2\n")


def write_films() -> None:
    """One real video for most takes; one take's file is missing, one has features only."""
    film = Path("data/films/film.mp4")
    film.parent.mkdir(parents=True)
    with av.open(str(film), "w") as container:
        stream = container.add_stream("libx264", rate=4)
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
        for index in range(TOKENS):
            picture = np.full((96, 160, 3), 4 * index, np.uint8)  # brighter and brighter
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode())
    names = dict.fromkeys(take_ids(), str(film)) | {take_ids()[-1]: "data/films/missing.mp4"}
    rows = [VideoRow(take, name, 4.0, 15.0) for take, name in names.items()]
    rows[-2] = VideoRow(take_ids()[-2], None, 4.0, 15.0, features="npy:x.npy")
    write_videos(paths.VIDEOS_TABLE, rows)


SMALL_PARAMS = """
threads: 1
probe:
  common: {bootstrap: 50}
  linear: {l2: [0.1, 0.01], paper: {epochs: 2}}
report: {timelines: 4, bootstrap: 50}
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_project()
    return folder


@pytest.fixture
def project(built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project as the present folder; tests write only to results/report and metrics.json."""
    monkeypatch.chdir(built)
    return built
