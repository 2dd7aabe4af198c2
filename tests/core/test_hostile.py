"""Damaged and hostile files: each ends in one line that names the file, never in a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pjepa.core.section import read_params
from pjepa.core.tables import (
    read_boundaries,
    read_classes,
    read_feature_info,
    read_segments,
    read_takes,
    read_videos,
)
from pjepa.model.encoder import ProcedureEncoder
from pjepa.patches.store import read_patches
from pjepa.pooler.stored import load_pooler
from pjepa.probes.base.registry import load_probe
from pjepa.report.results import read_cell, read_predictions
from pjepa.select.curve import read_curve
from pjepa.storage.roots import local_values
from pjepa.storage.saver import load_state
from pjepa.streams.stream import StreamReader, read_labels
from pjepa.takes.config import DataConfig
from pjepa.takes.sources.scan import check_scan
from pjepa.ui.console import InputError

Reader = Callable[[Path], Any]
DEEP = 100_000

TEXT: dict[str, bytes] = {
    "is empty": b"",
    "is not UTF-8": b'{"names": ["caf\xe9"]}',
    "is UTF-16": '{"names": []}'.encode("utf-16"),
    "is nested without end": b"[" * DEEP,
    "is nested in objects": b'{"a":' * DEEP,
    "is a list": b"[1, 2]",
    "is a number": b"7",
    "is cut": b'{"names": ["a", "b',
    "is binary": bytes(range(256)),
    "has other keys": b'{"nobody": 1}',
}
JSON_READERS: dict[str, Reader] = {
    "classes.json": read_classes,
    "curve.json": read_curve,
    "demo.json": lambda path: check_scan(DataConfig(source="demo"), path.parent, path),
    "config.json": lambda path: ProcedureEncoder.from_pretrained(path.parent),
    "details.json": lambda path: read_cell("linear", "raw", path.parent),
    "linear/config.json": lambda path: load_probe(path.parent),
    "pooler/config.json": lambda path: load_pooler(path.parent),
}
YAML_READERS: dict[str, Reader] = {
    "params.yaml": read_params,
    "local.yaml": lambda path: local_values(),
}
FINE_YAML = {"params.yaml": {"has other keys"}, "local.yaml": {"is empty"}}

GOOD = pa.table({"take_id": ["a"], "label": pa.array([1], pa.int32())})
NUMBERS = pa.table({"take_id": pa.array([1.5]), "label": ["x"]})


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


TABLES: dict[str, bytes] = {
    "is empty": b"",
    "is garbage": b"PAR1" + bytes(range(256)) + b"PAR1",
    "is cut": parquet(GOOD)[:-20],
    "has a broken footer": parquet(GOOD)[:-60] + b"\xff" * 52 + parquet(GOOD)[-8:],
    "has other columns": parquet(pa.table({"nobody": [1]})),
    "has broken metadata": parquet(NUMBERS.replace_schema_metadata({b"pjepa": b"{not json"})),
    "has other metadata": parquet(NUMBERS.replace_schema_metadata({b"pjepa": b"[1]"})),
}
TABLE_READERS: dict[str, Reader] = {
    "videos.parquet": lambda path: (read_feature_info(path), read_videos(path)),
    "boundaries.parquet": read_boundaries,
    "takes.parquet": read_takes,
    "segments.parquet": read_segments,
    "stream.parquet": StreamReader,
    "predictions.parquet": lambda path: read_predictions(path.parent),
}
TENSORS: dict[str, bytes] = {
    "is empty": b"",
    "is garbage": bytes(range(256)) * 4,
    "has a header of a terabyte": (1 << 40).to_bytes(8, "little") + b"{}",
    "has a header that is a list": (2).to_bytes(8, "little") + b"[]",
    "is nested without end": (DEEP).to_bytes(8, "little") + b"[" * DEEP,
    "is shorter than it says": (84).to_bytes(8, "little")
    + json.dumps({"patches": {"dtype": "F16", "shape": [9, 9, 9], "data_offsets": [0, 1458]}})
    .ljust(84)
    .encode(),
}
TENSOR_READERS: dict[str, Reader] = {
    "take.safetensors": read_patches,
    "state.safetensors": lambda path: load_state(path.parent),
    "model.safetensors": lambda path: ProcedureEncoder.from_pretrained(path.parent),
}
CASES = [
    *((name, read, what, TEXT[what]) for name, read in JSON_READERS.items() for what in TEXT),
    *((name, read, what, TEXT[what]) for name, read in YAML_READERS.items() for what in TEXT
      if what not in FINE_YAML[name]),
    *((name, read, what, TABLES[what]) for name, read in TABLE_READERS.items() for what in TABLES),
    *((name, read, what, TENSORS[what]) for name, read in TENSOR_READERS.items()
      for what in TENSORS),
    *(("labels.parquet", read_labels, what, TABLES[what]) for what in list(TABLES)[:5]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "read", "content"),
    [pytest.param(name, read, content, id=f"{name} {what}") for name, read, what, content in CASES],
)
def test_it_is_one_line_that_names_the_file(
    name: str, read: Reader, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    if name == "model.safetensors":
        from pjepa.model.config import EncoderConfig

        (tmp_path / "config.json").write_text(EncoderConfig(d_in=4).model_dump_json())
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    said = str(caught.value)
    assert "\n" not in said
    assert path.name in said
    assert len(said) < 600


def test_there_are_many() -> None:
    assert len(CASES) >= 60


def test_a_config_of_a_million_blocks_allocates_nothing(tmp_path: Path) -> None:
    from pjepa.model.config import EncoderConfig

    config = EncoderConfig(d_in=4, width=8, heads=2, depth=1)
    ProcedureEncoder(config).save(tmp_path)
    ProcedureEncoder.from_pretrained(tmp_path)
    for key, value in (("depth", 1_000_000), ("width", 800_000), ("d_in", 10**9)):
        changed = {**config.model_dump(), key: value}
        (tmp_path / "config.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match=r"model\.safetensors: does not fit config\.json: "):
            ProcedureEncoder.from_pretrained(tmp_path)
