"""A project run from nothing again: equal bytes. A change runs only what it touches."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.copies import CELLS, Copy, cells, ran

pytestmark = pytest.mark.slow
UNLABELLED = {"takes", "patches", "pretrain", "controls", "features"}


def change_one_label(folder: Path) -> None:
    """Gives the longest segment the label of another one; the cached copy is not touched."""
    path = folder / "data/takes/segments.parquet"
    table = pq.read_table(path)
    frame: pd.DataFrame = table.to_pandas()
    longest = (frame["end_s"] - frame["start_s"]).idxmax()
    others = frame.loc[frame["label"] != frame.loc[longest, "label"], "label"]
    frame.loc[longest, "label"] = others.iloc[0]
    path.unlink()
    pq.write_table(pa.Table.from_pandas(frame, table.schema, preserve_index=False), path)


def test_editing_a_label_encodes_and_pretrains_nothing(copy: Copy) -> None:
    before = copy.hashes()
    change_one_label(copy.folder)
    copy.run("dvc", "commit", "--force", "takes")
    output = copy.run("dvc", "repro")
    assert not ran(output) & UNLABELLED
    # `pooler` and `select` may read labels; as set here they do not, and write the same.
    assert ran(output) == {"pooler", "tokens", "select", "curve", "report"} | cells(*CELLS)
    after = copy.hashes()
    assert after["models/pooler"] == before["models/pooler"]
    assert after["models/pjepa"] == before["models/pjepa"]
    assert after["data/tokens/stream.parquet"] == before["data/tokens/stream.parquet"]
    assert after["data/tokens/labels.parquet"] != before["data/tokens/labels.parquet"]


def test_another_pooler_and_back_trains_nothing_twice(copy: Copy) -> None:
    before = copy.hashes()
    output = copy.run("dvc", "exp", "run", "-S", "pooler.kind=action")
    learned = {"pooler", "tokens", "pretrain", "select", "curve", "controls", "features"}
    assert ran(output) == learned | cells(*CELLS) | {"report"}
    report = (copy.folder / "results/report/report.md").read_text()
    assert "`raw†`" in report  # labels went into it
    output = copy.run("dvc", "exp", "run", "-S", "pooler.kind=mean")
    assert "Running stage" not in output  # every stage comes from the run-cache
    assert copy.hashes() == before


def test_two_runs_from_scratch_are_byte_identical(
    copy: Copy, hashes_of_another_run: dict[str, str]
) -> None:
    assert copy.hashes() == hashes_of_another_run
