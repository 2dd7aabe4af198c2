"""Token streams: reading speed beside .npy and plain pyarrow, and memory of a long data set.

    python -m benchmarks.streams [--json FILE] [--takes 80 --tokens 400 --width 2048]
    python -m benchmarks.streams --pack
    python -m benchmarks.streams --rounds 0 --scale 5000 --scale-tokens 2000000  (25 GB of disk)

Speed. The reference of `read all takes` is a plain loop over the same file (`read_row_group`, the
list column as a NumPy array, float32), and .npy: one file per take, `np.load` and float32. The
reference of `training copy` is the same .npy files, memory-mapped. The reference of `random access`
is the plain loop's read of single row groups. Times are wall-clock, best of `--rounds`, measured
alternately: parallel decoding is of no use where other work holds the cores.

Formats, in CPU time of one thread. The same float16 takes, decoded but not turned into float32, in
every form a stream could have; the reference is .npy read whole. `list` is the stream's own column
without checksums, decoded by pyarrow, `binary` a row of fixed-length bytes, which polars and duckdb
would not open as numbers. `as float32` is the stream's own reader, checksums verified, beside .npy.

Packing. CPU time of the host for a batch of 16,384 tokens of 2048 channels, as stored in float16
(`--pack`), for every place where `machine.stream` lets them wait for a GPU. The reference widens
every take to float32 and then concatenates them, as 0.1 did before it copied twice as many bytes to
the GPU. Copies that the GPU makes are not measured. One buffer serves all batches of `file`, as
torch hands out pinned memory again.

Scale. A packed archive of random float16 tokens goes through takes, tokens and features, each stage
a process of its own as under `dvc repro`; peak memory against 3 GB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workers import Table, row
from pjepa.pretrain.data import arrow_copy, copied_features
from pjepa.streams.provenance import StreamInfo, feature_type
from pjepa.streams.stream import StreamReader, StreamWriter, Take

LIMIT_MB = 3 * 1024


def write_stream(folder: Path, takes: int, tokens: int, width: int) -> StreamReader:
    """Return a stream of random takes and the same takes as .npy files."""
    rng = np.random.default_rng(0)
    info = StreamInfo(source="random", fps=4.0, width=width)
    with StreamWriter(folder / "stream.parquet", info) as writer:
        for number in range(takes):
            features = rng.standard_normal((tokens, width), np.float32).astype(np.float16)
            np.save(folder / f"{number}.npy", features)
            times, zeros = np.arange(tokens) / 4, np.zeros(tokens, np.int32)
            writer.write(Take(f"take-{number:05d}", features, times, zeros, np.arange(tokens)))
    return StreamReader(folder / "stream.parquet")


def plain_take(file: pq.ParquetFile, group: int, width: int) -> np.ndarray:
    """Return one row group the way a script would read it."""
    column = file.read_row_group(group).column("feature").combine_chunks()
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, width).astype(np.float32)


def best_seconds(
    cases: dict[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the best time of every case, taken in turns."""
    found: dict[str, float] = {name: float("inf") for name in cases}
    for _ in range(rounds + 1):
        for name, work in cases.items():
            started = clock()
            work()
            found[name] = min(found[name], clock() - started)
    return found


def measure_speed(table: Table, takes: int, tokens: int, width: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = write_stream(folder, takes, tokens, width)
        copy = arrow_copy(stream, stream.takes, folder / "copy.arrow")
        file = pq.ParquetFile(folder / "stream.parquet")
        arrays = [folder / f"{number}.npy" for number in range(takes)]
        places = np.random.default_rng(1).permutation(takes)[: max(1, takes // 4)]
        found = best_seconds(
            {
                "many": lambda: [take.features.shape for take in stream.read_many()],
                "loop": lambda: [plain_take(file, n, width).shape for n in range(takes)],
                "npy": lambda: [np.load(p).astype(np.float32).shape for p in arrays],
                "copy": lambda: [f.astype(np.float32).shape for f in copied_features(copy)],
                "mapped": lambda: [
                    np.load(p, mmap_mode="r").astype(np.float32).shape for p in arrays
                ],
                "random": lambda: [stream.read(stream.takes[n]).features.shape for n in places],
                "random loop": lambda: [plain_take(file, int(n), width).shape for n in places],
            },
            rounds,
        )
    size = takes * tokens * width * 2 / 1e6
    part = size * len(places) / takes
    for case, ours, reference, megabytes in (
        ("read all takes, against a plain pyarrow loop", "many", "loop", size),
        ("read all takes, against .npy", "many", "npy", size),
        ("training copy (Arrow), against .npy memory-mapped", "copy", "mapped", size),
        ("random access, against single row groups", "random", "random loop", part),
    ):
        table.add(case, row(megabytes / found[ours], megabytes / found[reference], "MB/s"))


def measure_packing(table: Table, rounds: int) -> None:
    """Compare what the host does for a batch on its way to a GPU; `meta` stands for the GPU."""
    import torch

    from pjepa.pretrain import feed
    from pjepa.pretrain.config import PjepaConfig
    from pjepa.pretrain.data import TakeView, TokenPacking, TrainingTake, pack, whole

    class Widened(TokenPacking):
        def packed(self, views: Sequence[TakeView], d_in: int) -> torch.Tensor:
            pieces = (piece for shown in views for piece in shown.pieces)
            wide = [piece.features().astype(np.float32) for piece in pieces]
            return torch.from_numpy(np.concatenate(wide))

    rng, gpu = np.random.default_rng(0), torch.device("meta")
    features = rng.standard_normal((8, 2048, 2048), np.float32).astype(np.float16)
    segment = np.arange(2048) // 45
    takes = [TrainingTake(n, f"take-{n}", part, segment) for n, part in enumerate(features)]
    views, config = [whole(take) for take in takes], PjepaConfig()
    ways = {
        "widened": Widened(),
        "device": feed.KeptTokens(gpu, takes),
        "host": feed.PinnedTokens(gpu, takes),
        "file": feed.SentTokens(gpu, torch.float16),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    buffer = torch.zeros(8 * 2048, 2048, dtype=torch.float16)
    with mock.patch.object(feed, "host_buffer", return_value=buffer):
        for _ in range(rounds + 1):  # the first round also imports
            for name, way in ways.items():
                started = time.process_time()
                pack(views, 0, config, 2048, way)
                found[name].append(time.process_time() - started)
    reference = min(found.pop("widened"))
    for name, seconds in found.items():
        case = f"packing, machine.stream: {name}, of the time to widen it"
        table.add(case, row(1e3 * min(seconds), 1e3 * reference, "ms"))


def format_readers(folder: Path, features: list[np.ndarray]) -> dict[str, Callable[[], object]]:
    """Return a reader of all takes for every format, after writing them."""
    tokens, width = features[0].shape
    binary, listed = pa.binary(2 * width), feature_type(width, "float16")
    columns: dict[str, list[pa.Array]] = {"list": [], "binary": []}
    for part in features:
        flat = pa.py_buffer(part.tobytes())
        columns["list"].append(pa.FixedSizeListArray.from_arrays(part.reshape(-1), type=listed))
        columns["binary"].append(pa.FixedSizeBinaryArray.from_buffers(binary, tokens, [None, flat]))
    found: dict[str, Callable[[], object]] = {}
    for name, kind in (("list", listed), ("binary", binary)):
        schema = pa.schema([pa.field("feature", kind, nullable=False)])
        tables = [pa.Table.from_arrays([part], schema=schema) for part in columns[name]]
        path = folder / f"{name}.parquet"
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=tokens)
        file = pq.ParquetFile(path, pre_buffer=True)
        found[name] = lambda file=file: [  # type: ignore[misc]
            file.read_row_group(n, use_threads=False).nbytes for n in range(len(features))
        ]
    for number, part in enumerate(features):
        np.save(folder / f"{number}.npy", part)
    found["npy"] = lambda: [np.load(folder / f"{n}.npy").nbytes for n in range(len(features))]
    found["npy as float32"] = lambda: [
        np.load(folder / f"{n}.npy").astype(np.float32).nbytes for n in range(len(features))
    ]
    return found


def measure_formats(table: Table, takes: int, tokens: int, width: int, rounds: int) -> None:
    """Compare the decoding of Parquet columns with .npy, on one thread."""
    rng = np.random.default_rng(0)
    shape = (tokens, width)
    features = [rng.standard_normal(shape, np.float32).astype(np.float16) for _ in range(takes)]
    size = takes * tokens * width * 2 / 1e6
    with tempfile.TemporaryDirectory() as name:
        cases = format_readers(Path(name), features)
        stream = write_stream(Path(name), takes, tokens, width)
        cases["stream"] = lambda: [stream.read(take).features.nbytes for take in stream.takes]
        found = best_seconds(cases, rounds, time.process_time)
    for kind in ("list", "binary"):
        case = f"decoding a {kind} column, against .npy"
        table.add(case, row(size / found[kind], size / found["npy"], "MB/s"))
    pace = row(size / found["stream"], size / found["npy as float32"], "MB/s")
    table.add("reading a stream as float32, against .npy", pace)


SCALE_PARAMS = """
data:
  source: archive
  archive:
    set: m2cai16
    features: scale.pt
patches: {fps: 8.0}
pjepa: {width: 64, heads: 4, predictor_heads: 4, depth: 1, attention: block_causal,
        segments: fixed, positions: 1d}
features: {random_draws: 1, threads: 1}
"""


def write_archive(path: Path, takes: int, tokens: int, width: int) -> None:
    """Write a packed archive of random float16 tokens; only pages in use are in memory."""
    import torch

    per = tokens // takes
    path.parent.mkdir(parents=True, exist_ok=True)
    store = path.with_suffix(".raw")
    values = np.memmap(store, np.float16, "w+", shape=(takes * per, width))
    rng = np.random.default_rng(0)
    for first in range(0, takes * per, per):
        values[first : first + per] = rng.standard_normal((per, width), np.float32)
    values.flush()
    labels = (np.arange(takes * per) % per) * 4 // per
    content = {
        "tokens": torch.from_file(
            str(store), shared=False, size=values.size, dtype=torch.float16
        ).view(-1, width),
        "times": torch.from_numpy(np.tile(np.arange(per) / 4, takes).astype(np.float32)),
        "offsets": torch.arange(0, takes * per + 1, per),
        "video_ids": [f"video{number % 80 + 1:02d}-{number}x" for number in range(takes)],
        "paths": [f"{number}.mp4" for number in range(takes)],
        "source_splits": ["train" if number % 5 else "test" for number in range(takes)],
        "phase_labels": torch.from_numpy(labels),
        "phase_class_names": ["a", "b", "c", "d"],
        "target_fps": 4.0,
    }
    torch.save(content, path)
    store.unlink()


def stage_peak(stage: str, folder: Path) -> tuple[float, float]:
    """Return (peak MB, seconds) of one stage in a process of its own."""
    code = f"from stages.{stage} import run; run(); print(open('/proc/self/status').read())"
    root = Path(__file__).resolve().parents[1]
    kept = {**os.environ, "PYTHONPATH": str(root), "PJEPA_DATA_ROOT": str(folder / "root")}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=kept, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{stage}: {done.stderr[-800:]}")
    peak = next(line for line in done.stdout.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024, time.perf_counter() - started


def measure_scale(table: Table, takes: int, tokens: int, width: int, folder: Path) -> None:
    """Measure the peak memory of each stage against 3 GB."""
    import yaml

    from pjepa.model.config import EncoderConfig
    from pjepa.model.encoder import ProcedureEncoder
    from pjepa.storage.writing import write_json
    from pjepa.takes.config import DataConfig
    from pjepa.takes.sources.scan import scan
    from pjepa.tools.params import Params
    from pjepa.tools.presets import params_text

    params = Params.model_validate(yaml.safe_load(SCALE_PARAMS))
    (folder / "params.yaml").write_text(params_text(params))
    write_archive(folder / "root/pjepa_features/scale.pt", takes, tokens, width)
    data: DataConfig = params.data
    write_json(folder / "data/sources/archive.json", scan(data, folder / "root"))
    encoder = ProcedureEncoder(
        EncoderConfig(
            d_in=width, width=64, depth=1, heads=4, attention="block_causal", segments="fixed",
            positions="1d",
        )
    )  # fmt: skip
    encoder.save_pretrained(folder / "models/pjepa")
    write_json(folder / "models/pjepa/selection.json", {"selection_labels": "none"})
    for stage in ("takes", "patches", "pooler", "tokens", "features"):
        peak, seconds = stage_peak(stage, folder)
        print(f"  {stage}: {peak:.0f} MB, {seconds:.0f} s", file=sys.stderr, flush=True)
        if stage in ("takes", "tokens", "features"):
            case = f"{stage}, {takes} takes, {tokens} tokens of {width}: peak, against 3 GB"
            table.add(case, row(peak, LIMIT_MB, "MB"))
    stream = StreamReader(folder / "data/tokens/stream.parquet")
    parts = sorted((folder / "data/tokens/stream.parquet").glob("*.parquet"))
    print(
        f"  {len(stream.takes)} row groups, {sum(stream.lengths)} tokens, {len(parts) or 1} parts",
        file=sys.stderr,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--takes", type=int, default=80)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=9, help="of the speed runs; 0: none")
    parser.add_argument("--pack", action="store_true", help="packing alone")
    parser.add_argument("--scale", type=int, default=0, help="takes of the memory run; 0: none")
    parser.add_argument("--scale-tokens", type=int, default=2_000_000)
    options = parser.parse_args()
    table = Table()
    if options.pack:
        measure_packing(table, options.rounds)
    elif options.rounds:
        size = (options.takes, options.tokens, options.width)
        measure_speed(table, *size, options.rounds)
        measure_formats(table, *size, options.rounds)
    if options.scale:
        with tempfile.TemporaryDirectory() as folder:
            measure_scale(table, options.scale, options.scale_tokens, options.width, Path(folder))
    table.save(options.json)


if __name__ == "__main__":
    main()
