"""Cells of trained probes: complete, honest about who chose and what was seen, resumable."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pjepa.core.tables import read_takes
from pjepa.metrics.bootstrap import intervals
from pjepa.metrics.segmentation import METRICS
from pjepa.probes.attentive.config import AttentiveConfig
from pjepa.probes.base import trained as training
from pjepa.probes.base.cell import CellInputs, run_cell
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.base.registry import load_probe
from pjepa.probes.foreground.config import ForegroundConfig
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.report.results import read_cell
from pjepa.storage.saver import Saver
from pjepa.streams.stream import StreamReader, read_labels, write_labels
from pjepa.ui.console import InputError
from tests.probes.world import COMMON, FPS, LINEAR, world

ATTENTIVE = AttentiveConfig(
    epochs=3, lr=0.01, window=12, chunk=4, width=8, heads=2, chunk_attention="chunk"
)
FOREGROUND = ForegroundConfig(epochs=3, lr=0.05)
TRAINED = COMMON.model_copy(update={"input_norm": "standardize", "stream_step_s": 2.5})


def trained_cell(
    inputs: CellInputs,
    out: Path,
    config: AttentiveConfig | ForegroundConfig = ATTENTIVE,
    work: Path | None = None,
    **changes: object,
) -> tuple[dict[str, float], dict]:
    common = ProbeCommonConfig.model_validate({**TRAINED.model_dump(), **changes})
    probe = "attentive" if isinstance(config, AttentiveConfig) else "foreground"
    metrics = run_cell(inputs, out, probe, "raw", common, config, work)
    return metrics, json.loads((out / "details.json").read_text())


def test_folder_is_complete_and_loads(tmp_path: Path) -> None:
    inputs, out = world(tmp_path), tmp_path / "out"
    metrics, details = trained_cell(inputs, out, seeds=(0, 5))
    assert set(metrics) == {*METRICS, "top1"}
    assert [run["seed"] for run in details["runs"]["trained"]] == [0, 5]
    values = [run["metrics"]["acc"] for run in details["runs"]["trained"]]
    assert metrics["acc"] == pytest.approx(np.mean(values))
    assert details["selection"] == {"on": "holdout", "on_reported": False}
    assert details["sight"] == {"to": "block", "whole_take": False, "lookahead_s": 0.75}
    files = {"metrics.json", "details.json", "streaming.json", "predictions.parquet"}
    assert {path.name for path in out.iterdir()} == {*files, "segments.csv", "model"}
    frame = pq.read_table(out / "predictions.parquet").to_pandas()
    probe, reader = load_probe(out / "model"), StreamReader(inputs.streams[0])
    take = reader.read("take 12")
    found = probe.predict(take.features, take.segment.astype(np.int64))
    mine = frame[frame["take_id"] == "take 12"]
    np.testing.assert_array_equal(found.argmax(1), mine["prediction"])
    np.testing.assert_array_equal(found.max(1), mine["score"])


def test_streaming_is_told_truthfully(tmp_path: Path) -> None:
    inputs, out = world(tmp_path), tmp_path / "out"
    trained_cell(inputs, out)
    streaming = json.loads((out / "streaming.json").read_text())
    assert set(streaming) == {"segments", "seconds"}
    by_segment, by_time = streaming["segments"], streaming["seconds"]
    assert not by_segment["equals_offline"]  # segments of 5 tokens end inside chunks of 4
    assert by_segment["boundaries"] == "annotated"
    assert (by_time["boundaries"], by_time["step_s"]) == ("none", 2.5)
    for entry in streaming.values():
        assert entry["probe_lookahead_s"] == 0.75
        assert entry["representation_lookahead_s"] == 2
        assert entry["lookahead_s"] == 2.75
        assert entry["note"] == "see up to 2 s ahead themselves"
    stored = read_cell("attentive", "raw", out).streamed["segments"].statistics
    found = intervals(stored.variants, stored.groups, 50, 0)["acc"]
    assert by_segment["intervals"]["acc"]["low"] == pytest.approx(found.low)
    assert by_segment["metrics"]["acc"] == pytest.approx(found.mean)
    causal = ATTENTIVE.model_copy(update={"chunk_attention": "causal"})
    metrics, details = trained_cell(inputs, tmp_path / "causal", causal, streaming=("seconds",))
    (entry,) = json.loads((tmp_path / "causal" / "streaming.json").read_text()).values()
    assert entry["equals_offline"]
    assert entry["probe_lookahead_s"] == details["sight"]["lookahead_s"] == 0
    assert entry["metrics"] == pytest.approx(metrics)


def test_a_stream_without_boundaries_is_streamed_by_time(tmp_path: Path) -> None:
    inputs = world(tmp_path, annotated=False)
    trained_cell(inputs, tmp_path / "out")
    assert list(json.loads((tmp_path / "out" / "streaming.json").read_text())) == ["seconds"]
    causal = LTCausalConfig(epochs=1, stages=1, layers=1, width=8, window=4)
    with pytest.raises(InputError, match="no annotated segment"):
        run_cell(inputs, tmp_path / "none", "ltcausal", "raw", TRAINED, causal)
    blocks = causal.model_copy(update={"block": 4})
    run_cell(inputs, tmp_path / "blocks", "ltcausal", "raw", TRAINED, blocks)


def garbled(inputs: CellInputs, splits: tuple[str, ...]) -> None:
    """Replaces the labels of some splits by noise; which tokens are known stays."""
    labels = read_labels(inputs.labels)
    split = read_takes(inputs.takes).set_index("take_id")["split"]
    random = np.random.default_rng(5)
    rows = []
    for take, label in labels.items():
        noise = np.where(label < 0, -1, random.integers(0, 4, len(label)))
        kept = label if split[take] not in splits else noise
        rows.append((take, np.arange(len(label)) / FPS, kept))
    write_labels(inputs.labels, rows)


@pytest.mark.parametrize("probe", ["linear", "attentive", "foreground"])
def test_val_and_test_labels_never_reach_the_weights(probe: str, tmp_path: Path) -> None:
    config = {"linear": LINEAR, "attentive": ATTENTIVE, "foreground": FOREGROUND}[probe]
    inputs = world(tmp_path)
    run_cell(inputs, tmp_path / "a", probe, "raw", TRAINED, config)
    garbled(inputs, ("val", "test"))
    run_cell(inputs, tmp_path / "b", probe, "raw", TRAINED, config)
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("a", "b")]
    assert files[0].read_bytes() == files[1].read_bytes()
    metrics = [(tmp_path / name / "metrics.json").read_bytes() for name in ("a", "b")]
    assert metrics[0] != metrics[1]


def test_published_habits_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = world(tmp_path)
    _, details = trained_cell(inputs, tmp_path / "test", select_on="test")
    assert details["selection"] == {"on": "test", "on_reported": True}
    assert "chosen on test, the split that is reported" in details["warnings"][0]
    assert details["warnings"][0] in capsys.readouterr().err
    assert details["takes"] == {"fit": 8, "holdout": 4, "reported": 4}
    _, details = trained_cell(inputs, tmp_path / "val", select_on="val")
    assert details["selection"] == {"on": "val", "on_reported": False}
    assert details["warnings"] == []
    _, details = trained_cell(inputs, tmp_path / "last", select_on="last", streaming=())
    assert not (tmp_path / "last" / "streaming.json").exists()
    assert details["runs"]["trained"][0]["fit"]["epoch"] == 3
    linear = COMMON.model_copy(update={"select_on": "last"})
    with pytest.raises(InputError, match="give one l2"):
        run_cell(inputs, tmp_path / "linear", "linear", "raw", linear, LINEAR)


def test_the_label_budget_is_recorded(tmp_path: Path) -> None:
    inputs = world(tmp_path)
    _, details = trained_cell(inputs, tmp_path / "half", FOREGROUND, label_fraction=0.5)
    assert details["takes"] == {"fit": 3, "holdout": 1, "reported": 4}
    assert details["labels"] == {
        "label_fraction": 0.5, "takes": 3, "of": 6, "variant": "honest",
        "why": "nothing upstream used a label or a boundary",
    }  # fmt: skip
    with pytest.raises(InputError, match="label_fraction keeps 0 of 6 train takes"):
        trained_cell(inputs, tmp_path / "none", FOREGROUND, label_fraction=0.01)


def test_a_killed_cell_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Saver, "is_due", lambda saver: True)
    inputs, work = world(tmp_path), tmp_path / "work"
    trained_cell(inputs, tmp_path / "whole", seeds=(0, 1))
    epochs = []
    plain = training.ProbeTrainer.epoch

    def counted(self: training.ProbeTrainer, *args: object) -> None:
        if len(epochs) == 4:
            raise KeyboardInterrupt
        epochs.append(self.seed)
        plain(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(training.ProbeTrainer, "epoch", counted)
    with pytest.raises(KeyboardInterrupt):
        trained_cell(inputs, tmp_path / "killed", work=work, seeds=(0, 1))
    assert not (tmp_path / "killed").exists()
    epochs.clear()
    trained_cell(inputs, tmp_path / "killed", work=work, seeds=(0, 1))
    assert epochs == [1, 1]  # seed 0 was done, seed 1 had one epoch of three
    for path in sorted((tmp_path / "whole").rglob("*.*")):
        other = tmp_path / "killed" / path.relative_to(tmp_path / "whole")
        assert path.read_bytes() == other.read_bytes(), path


def test_no_held_out_take_to_choose_on(tmp_path: Path) -> None:
    inputs = world(tmp_path)
    labels = read_labels(inputs.labels)
    labels |= {take: np.full(40, -1) for take in ("take 6", "take 7")}
    write_labels(inputs.labels, [(t, np.arange(40) / FPS, y) for t, y in labels.items()])
    with pytest.raises(InputError, match=r"set probe\.common\.select_on=last"):
        trained_cell(inputs, tmp_path / "out")
