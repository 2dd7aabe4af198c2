"""Streaming: `python -m benchmarks.streaming [--json FILE] [--project FOLDER]`.

Encoder (d 256, 4 layers, 4 heads, segments of 45 tokens, CPU time at one thread, printed; the least
of alternate rounds, which other processes disturb least). References: `re-encoding`, our own fast
encoder over the whole prefix after every segment, which is what one does without a stream (at
T 8000 every 8th prefix is measured and counted eight times); `one pass`, the same encoder once over
the whole take. Growth: mean time of a segment in the second half of the take over that in the first
half; the history is three times as long there. Memory: the stream's caches beside keys and values
alone; ten hours at 4 tokens a second under a horizon.

Whole stack (with --project, a finished run of the demo): decoding, V-JEPA, pooler, encoder, probe
on its test videos with two threads; the reference of a time is the time the video lasts. Latency is
from a hop's last frame to its labels. Accuracy: segments found by change or fixed ones instead of
annotated ones, on the test takes' tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer

from benchmarks.workers import Table, resident, row
from pjepa.core.runs import attention_segments, runs
from pjepa.core.section import SegmentChoice
from pjepa.live.models import LiveOptions, Models, load_models
from pjepa.live.session import Options, Session
from pjepa.live.source import LiveSource
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.segments import take_segments
from pjepa.streams.stream import read_labels, read_stream

WIDTH, DEPTH, SEGMENT, ROUNDS = 256, 4, 45, 7
PER_TOKEN = 2 * DEPTH * WIDTH * 4  # bytes of keys and values
HOURS, RATE, HORIZON = 10, 4, 2000
CASES = {2000: 1, 8000: 8}  # tokens, and every which prefix is measured


def encoder() -> ProcedureEncoder:
    torch.manual_seed(0)
    config = EncoderConfig(d_in=WIDTH, width=WIDTH, depth=DEPTH, heads=4, attention="clip_causal")
    return ProcedureEncoder(config).eval()


def lengths_of(tokens: int) -> list[int]:
    whole, rest = divmod(tokens, SEGMENT)
    return [SEGMENT] * whole + [rest] * (rest > 0)


def spent(work: Callable[[], object]) -> float:
    """Return CPU seconds."""
    started = time.process_time()
    work()
    return time.process_time() - started


def streamed(model: ProcedureEncoder, x: torch.Tensor, lengths: list[int]) -> list[float]:
    """Return CPU seconds of every segment."""
    stream = model.stream()
    return [spent(lambda part=part: stream.push(part)) for part in x.split(lengths)]  # type: ignore[misc]


def re_encoded(model: ProcedureEncoder, x: torch.Tensor, lengths: list[int], every: int) -> float:
    """Return CPU seconds to encode the prefix again after each segment."""
    total = 0.0
    for number in range(every - 1, len(lengths), every):
        seen = lengths[: number + 1]
        total += every * spent(lambda seen=seen: model.encode(x[: sum(seen)], seen))  # type: ignore[misc]
    return total


def encoder_rows(table: Table) -> None:
    model = encoder()
    for tokens, every in CASES.items():
        x, lengths = torch.randn(tokens, WIDTH), lengths_of(tokens)
        model.encode(x, lengths)
        passes, streams = [], []
        for _ in range(ROUNDS):
            passes.append(spent(lambda: model.encode(x, lengths)))  # noqa: B023
            streams.append(streamed(model, x, lengths))
        ours = min(map(sum, streams))
        name = f"T {tokens}, segments {SEGMENT}"
        again = re_encoded(model, x, lengths, every)
        found = row(ours, again, "s")
        table.add(f"{name}: stream / re-encoding the prefix", found)
        print(f"  {again / ours:.1f}x less time than re-encoding")
        table.add(f"{name}: stream / one pass", row(ours, min(passes), "s"))
        half = len(lengths) // 2
        first, second = (
            median(float(np.mean(times[part])) for times in streams)
            for part in (slice(0, half), slice(half, 2 * half))
        )
        table.add(f"{name}: growth of a segment's time / of history", row(second / first, 3.0, "x"))
        stream = model.stream()
        for part in x.split(lengths):
            stream.push(part)
        stated = row(stream.cache_bytes / 2**20, tokens * PER_TOKEN / 2**20, "MB")
        table.add(f"{name}: cache / keys and values", stated)


def long_row(table: Table) -> None:
    """Measure the memory of this process after one hour and after ten."""
    model, draw = encoder(), torch.Generator().manual_seed(0)
    stream = model.stream(horizon=HORIZON)
    after = []
    for hour in range(HOURS):
        for length in lengths_of(3600 * RATE):
            stream.push(torch.randn(length, WIDTH, generator=draw))
        after.append(resident("VmRSS"))
        print(f"  hour {hour + 1}: process {after[-1]:.0f} MB, cache {stream.cache_bytes >> 20} MB")
    table.add(f"{HOURS} h, horizon {HORIZON}: process / after 1 h", row(after[-1], after[0], "MB"))
    bound = 2 * PER_TOKEN * (HORIZON + SEGMENT) / 2**20
    table.add(f"{HOURS} h, horizon {HORIZON}: cache / its bound",
              row(stream.cache_bytes / 2**20, bound, "MB"))  # fmt: skip


def stack_rows(table: Table, project: Path, probe: str, videos: int) -> None:
    """Measure the whole stack on videos of a finished run."""
    options = LiveOptions(
        project / "models", project / "results/probe" / probe,
        training=project / "data/tokens/stream.parquet",
        takes=project / "data/takes/takes.parquet",
    )  # fmt: skip
    models = load_models(options)
    files = sorted((project / "data/demo/videos").glob("*.mp4"))[-videos:]
    run(models, files[0])  # warms up
    found = [run(models, file) for file in files]
    video_s = sum(one["video_s"] for one in found)
    table.add(f"{probe}, {len(files)} videos: stack / video's own time",
              row(sum(one["wall_s"] for one in found), video_s, "s"))  # fmt: skip
    decode = sum(decoded(models, file) for file in files)
    parts = {"decode and prepare": decode} | {
        part: sum(one["spent_s"][part] for one in found) for part in found[0]["spent_s"]
    }
    for part, seconds in parts.items():
        table.add(f"  of it {part}", row(1e3 * seconds / video_s, 1e3, "ms/s"))
    for percent in ("p50", "p95"):
        compute = median(one["latency_s"]["compute"][percent] for one in found)
        waits = median(one["latency_s"]["algorithmic"][percent] for one in found)
        table.add(f"  {percent} compute / algorithmic latency", row(compute, waits, "s"))
    segment_rows(table, project, options)


def segment_rows(table: Table, project: Path, options: LiveOptions) -> None:
    """Measure accuracy on test takes with found or fixed segments and with annotated ones."""
    takes = pd.read_parquet(options.takes)
    test = takes["take_id"][takes["split"] == "test"].tolist()
    labels = read_labels(project / "data/tokens/labels.parquet")
    stream = read_stream(options.training)
    accuracy: dict[str, float] = {}
    ways: dict[str, SegmentChoice] = {"annotated": "auto", "found": "found", "fixed": "fixed"}
    for kind, choice in ways.items():
        models = load_models(replace(options, segments=choice))
        right = []
        for name in test:
            take = stream.read(name)
            features, segments = take.features, attention_segments(take.segment)
            if kind != "annotated":
                segments = take_segments(features, None, models.rule)
            if models.encoder is not None:
                features = models.encoder.encode(features, runs(segments)[1].tolist()).numpy()
            best = models.probe.predict(features, segments).argmax(1)
            right.append((best == labels[name])[labels[name] >= 0])
        accuracy[kind] = 100 * float(np.concatenate(right).mean())
    for kind in ("found", "fixed"):
        beside = row(accuracy[kind], accuracy["annotated"], "%")
        table.add(f"  accuracy, {kind} / annotated segments", beside)


def run(models: Models, file: Path) -> dict[str, Any]:
    return Session(models, str(file), Options(quiet=True)).run()


def decoded(models: Models, file: Path) -> float:
    """Return seconds to decode and prepare a video, alone."""
    grid = Session(models, str(file), Options(quiet=True)).tokens.grid
    started = time.perf_counter()
    for _ in LiveSource(str(file), grid, models.backbone.prepared).hops():
        pass
    return time.perf_counter() - started


def main(
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the table.")] = None,
    project: Annotated[Path | None, typer.Option(help="A finished run of the demo.")] = None,
    probe: Annotated[str, typer.Option(help="A cell of it.")] = "linear-pjepa",
    videos: Annotated[int, typer.Option(min=1)] = 8,
) -> None:
    """Print ours beside every reference."""
    table = Table()
    torch.set_num_threads(1)
    long_row(table)  # first: nothing else has used memory yet
    encoder_rows(table)
    if project is not None:
        torch.set_num_threads(2)
        stack_rows(table, project, probe, videos)
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
