"""A small stack of real parts on disk: videos, backbone, pooler, encoder, probes, tokens."""

import itertools
import time
from dataclasses import asdict, replace
from pathlib import Path

import av
import numpy as np
import torch

from pjepa.core.tables import Classes, write_classes
from pjepa.live.models import LiveOptions
from pjepa.live.outlook import ABOUT, NEXT, PROGRESS, Ridge, encoder_id
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.neighbours import NeighbourHeads
from pjepa.patches.backbone import backbone_facts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import patch_info
from pjepa.pooler.action import ActionPooler, ActionShape
from pjepa.pooler.stored import write_weights
from pjepa.probes.attentive.config import AttentiveConfig
from pjepa.probes.base.trained import Task
from pjepa.probes.linear.probe import LinearProbe
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.probes.ltcontext.config import LTContextConfig
from pjepa.storage.reading import read_json
from pjepa.storage.writing import write_json
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamWriter, Take
from tests.probes.kinds import new_probe

CLASSES = Classes(("background", "cut <b>&", 'mix, "stir"', "pour"), 0)
WIDTH, FPS, SIDE = 64, 15, 96
PATCHES = PatchesConfig(
    backbone="vjepa2_1_vit_tiny", checkpoint="random", fps=8.0, frames_per_window=8, crop=32,
    window_scope="take", grid=1,
)  # fmt: skip


def wait_for(condition):
    """Waits until it holds, however busy the machine is; what never comes is the suite's to end."""
    while not condition():
        time.sleep(0.01)


def stop_after(session, hops, stop=None):
    """Stop the session's source when so many hops have been taken."""
    usual, count = session.tokens.push, itertools.count()

    def push(hop):
        if next(count) == hops:
            (stop or session.source.stop)()
        return usual(hop)

    session.tokens.push = push


def make_video(path: Path, seconds: float, seed: int = 0, fps: int = FPS, **options) -> Path:
    """A real file: blocks of colour that move and change every second or so."""
    draw = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", **options) as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "20", "g": "15"})
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        picture = np.zeros((SIDE, SIDE, 3), np.uint8)
        for number in range(round(seconds * fps)):
            if number % fps == 0:
                picture[:] = draw.integers(0, 255, 3, dtype=np.uint8)
            row, column = draw.integers(0, SIDE - 24, 2)
            picture[row : row + 24, column : column + 24] = draw.integers(0, 255, 3, dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def make_project(root: Path, **changes) -> LiveOptions:
    """models/, results/probe/ and data/tokens/ of a small untrained run; returns how to use it."""
    patches = PatchesConfig(**{**PATCHES.model_dump(), **changes.pop("patches", {})})
    info = patch_info(patches, backbone_facts(patches))
    write_json(root / "models/pooler/config.json", {
        "kind": "mean", "cells": "average", "grid": [info.rows, info.columns],
        "width_in": info.width, "width_out": info.width, "window": 1, "per_step": 1,
        "scope": "take", "patches": dict(vars(info)),
        "provenance": {"train_labels": False, "selection_labels": "none", "folds": 0},
    })  # fmt: skip
    torch.manual_seed(0)
    shape = {"width": 32, "depth": 2, "heads": 2, "block": 6, "style_rank": 4, "found_tokens": 6}
    shape |= {"attention": "clip_causal", "input_norm": "causal_center", "found_max": 12}
    encoder = ProcedureEncoder(EncoderConfig(d_in=info.width, **{**shape, **changes})).eval()
    for buffer in (encoder.style_read, encoder.style_write):
        buffer.normal_(0, 0.1)
    encoder.style_strength.uniform_(0.1, 5)
    encoder.save_pretrained(root / "models/pjepa")
    make_probes(root, encoder.config.width, info.width)
    make_tokens(root / "data/tokens/stream.parquet", info.width)
    return LiveOptions(
        root / "models", root / "results/probe/linear-pjepa",
        training=root / "data/tokens/stream.parquet", takes=root / "data/takes/takes.parquet",
    )  # fmt: skip


def make_outlook(root: Path, options: LiveOptions) -> LiveOptions:
    """Adds what tells the next step, progress and surprise of this encoder."""
    model, questions = root / "models/pjepa", root / "results/questions"
    config = ProcedureEncoder.from_pretrained(model).config
    torch.manual_seed(1)
    NeighbourHeads(config.width, config.d_in, (-1, 1)).save(model)
    weight = torch.randn(len(CLASSES.names), config.width)
    still = torch.zeros(len(weight)), torch.zeros(config.width), torch.ones(config.width)
    LinearProbe(weight, *still).save(questions / NEXT)
    width = config.width + 3
    line = np.random.default_rng(0).normal(0, 0.02, width), np.asarray(0.4)
    Ridge(*line, np.zeros(width), np.ones(width)).save(questions / PROGRESS)
    write_json(questions / ABOUT, {"encoder": encoder_id(model)})
    return replace(options, questions=questions)


def make_action_pooler(root: Path, window: int, per_step: int = 1) -> None:
    """Puts an action pooler of the same width in place of the mean."""
    config = read_json(root / "models/pooler/config.json")
    width = config["width_in"]
    shape = ActionShape(
        rows=1, columns=1, width_in=width, width=width, window=window, queries=window * per_step,
        depth=1, heads=2, mlp_ratio=1.0, dropout=0.0, positions="spatiotemporal",
    )  # fmt: skip
    torch.manual_seed(0)
    pooler = ActionPooler(shape)
    pooler.pooler.initialise(0.3)
    config |= {"kind": "action", "window": window, "per_step": per_step, "model": asdict(shape)}
    write_json(root / "models/pooler/config.json", config | {"fold_of": {}, "batch_windows": 2})
    write_weights(root / "models/pooler/model.safetensors", pooler.eval())


def make_probes(root: Path, encoded: int, raw: int) -> None:
    """Cells as the pipeline names them, untrained, with sharp opinions."""
    for name, width in (("pjepa", encoded), ("raw", raw)):
        task, draw = Task(width, len(CLASSES.names), 0), torch.Generator().manual_seed(0)
        weight = 3 * torch.randn(len(CLASSES.names), width, generator=draw)
        still = torch.zeros(len(CLASSES.names)), torch.zeros(width), torch.ones(width)
        attentive = AttentiveConfig(window=12, chunk=4, width=16, heads=2)
        layers = {"stages": 2, "layers": 2, "width": 8, "window": 4, "stride": 4, "reduction": 1}
        probes = {
            "linear": LinearProbe(weight, *still),
            "attentive": new_probe("attentive", attentive, task, 0),
            "ltcausal": new_probe("ltcausal", LTCausalConfig(**layers), task, 0),
            "ltcontext": new_probe("ltcontext", LTContextConfig(**layers), task, 0),
        }
        for kind, probe in probes.items():
            folder = root / f"results/probe/{kind}-{name}/model"
            probe.save(folder)
            write_classes(folder / "classes.json", CLASSES)


def make_tokens(path: Path, width: int) -> None:
    """A token stream that a threshold can be measured on."""
    draw = np.random.default_rng(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with StreamWriter(path, StreamInfo(source="test", fps=4.0, width=width), "float32") as writer:
        for number in range(3):
            level = np.repeat(draw.normal(size=(10, width)), 8, axis=0)
            features = (level + 0.2 * draw.normal(size=level.shape)).astype(np.float32)
            place = np.full(len(level), -1, np.int32)
            times = np.arange(len(level)) / 4.0
            offset = np.arange(len(level), dtype=np.int32)
            writer.write(Take(f"t{number}", features, times, place, offset))
