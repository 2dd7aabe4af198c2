"""Miniatures of the authors' archives, under the public names, and a miniature released encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.predictor import Predictor
from pjepa.model.release import RELEASED
from pjepa.takes.sources.archive import ARCHIVES

WIDTH = 12
STEPS = 4  # classes
VIDEOS = 10


def tokens(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """[T, WIDTH] float32 that tell their class, with noise."""
    values = rng.normal(size=(len(labels), WIDTH)).astype(np.float32)
    values[np.arange(len(labels)), labels] += 3
    return values


def plan(number: int, parts: int = 5) -> list[int]:
    """Classes of a video's parts: every class is in every video."""
    order = np.random.default_rng(number).permutation(STEPS)
    return [int(order[part % STEPS]) for part in range(parts)]


def save(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)


def pack(parts: list[np.ndarray], times: list[np.ndarray]) -> dict[str, object]:
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return {
        "tokens": torch.from_numpy(np.concatenate(parts)),
        "times": torch.from_numpy(np.concatenate(times).astype(np.float32)),
        "offsets": torch.from_numpy(offsets),
        "feature_dim": WIDTH,
    }


def write_segmented(root: Path, name: str) -> None:
    """An archive with a segment list: Assembly101 (two takes a video) or EgoProceL."""
    known, rng = ARCHIVES[name], np.random.default_rng(0)
    fps = 3.75 if known.dataset == "assembly101" else 4.0
    lines, parts, times, paths = [], [], [], []
    other = "val" if known.dataset == "assembly101" else "test"
    for number in range(VIDEOS):
        kinds = ("assembly", "disassembly") if known.dataset == "assembly101" else ("Brownie",)
        labels, start = [], 0.0
        video = f"rec{number}/C10119_rgb" if known.dataset == "assembly101" else f"vid{number}"
        for kind in kinds:
            for label in plan(number):
                count = 3 + number % 3
                labels += [label] * count
                end = start + count / fps
                split = "train" if number < VIDEOS - 3 else other
                lines.append(
                    f"u{len(lines)},{video}.mp4,{split},{kind},{label},step {label},{start},{end}"
                )
                start = end
        parts.append(tokens(rng, np.array(labels)))
        times.append(np.arange(len(labels)) / fps)
        paths.append(f"{video}.pt")
    base = root / "pjepa_features"
    save(base / known.features, {**pack(parts, times), "paths": paths, "target_fps": fps})
    task = "action_type" if known.dataset == "assembly101" else "task_name"
    head = f"sample_uid,video_path,official_split,{task},{known.label},{known.names[0]}"
    listed = base / known.segments
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text("\n".join([f"{head},start_sec,end_sec", *lines]))


def write_phases(root: Path, name: str) -> None:
    """Cholec80 or M2CAI16: labels inline."""
    known, rng = ARCHIVES[name], np.random.default_rng(1)
    labels = [np.repeat(plan(number), 4 + number % 3) for number in range(VIDEOS)]
    videos = [1, 2, 3, 10, 20, 32, 33, 40, 41, 80]
    content = pack([tokens(rng, part) for part in labels], [np.arange(len(x)) for x in labels])
    content |= {
        "dataset": name,
        "video_ids": [f"video{number:02d}" for number in videos],
        "paths": [f"video{number:02d}.mp4" for number in videos],
        "source_splits": ["train"] * 7 + ["test"] * 3,
        "phase_labels": torch.from_numpy(np.concatenate(labels)),
        "phase_class_names": [f"phase {label}" for label in range(STEPS)],
        "target_fps": 1.0,
    }
    save(root / "pjepa_features" / known.features, content)


def write_lemon(root: Path) -> None:
    """An index and two shards at 4 fps, and Cholec80 beside them."""
    write_phases(root, "cholec80")
    index = root / "pjepa_features" / ARCHIVES["lemon"].features
    rng, shards, counts = np.random.default_rng(2), [], []
    for shard in range(2):
        parts = [tokens(rng, np.repeat(plan(number), 12)) for number in range(2)]
        content = pack(parts, [np.arange(len(part)) / 4 for part in parts])
        names = [f"v{shard}{number}" for number in range(2)]
        shards.append(f"pretrain/pretrain_{shard:05d}.pt")
        counts += [len(part) for part in parts]
        save(index.parent / shards[-1], {**content, "video_ids": names, "target_fps": 4.0})
    save(
        index,
        {
            "shard_root": "/stale",
            "shards": shards,
            "shard_ids": torch.tensor([0, 0, 1, 1]),
            "local_indices": torch.tensor([0, 1, 0, 1]),
            "video_ids": ["v00", "v01", "v10", "v11"],
            "paths": ["v00.mp4", "v01.mp4", "v10.mp4", "v11.mp4"],
            "splits": ["pretrain"] * 4,
            "num_tokens": torch.tensor(counts),
            "target_fps": 4.0,
            "feature_dim": WIDTH,
        },
    )


def write_archive(root: Path, name: str) -> None:
    """The miniature of one archive below `root`."""
    if name == "lemon":
        write_lemon(root)
    elif ARCHIVES[name].segments is None:
        write_phases(root, name)
    else:
        write_segmented(root, name)


def write_release(path: Path, released: str) -> None:
    """A released file with its architecture but small: widths and depths only are changed."""
    sizes = {"d_in": WIDTH, "d_model": 16, "enc_depth": 1, "pred_depth": 1}
    heads = {"enc_heads": 2, "pred_heads": 2}
    architecture = RELEASED[released].architecture.model_copy(update={**sizes, **heads})
    torch.manual_seed(0)
    encoder = ProcedureEncoder(architecture.encoder_config())
    predictor = Predictor(encoder.config, architecture.pred_depth, architecture.pred_heads)
    buffers = set(dict(encoder.named_buffers()))
    state = {f"student_enc.{k}": v for k, v in encoder.state_dict().items() if k not in buffers}
    for key, value in predictor.state_dict().items():
        own = key == "mask_token"
        state[key if own else f"predictor.{key}"] = value.reshape(1, 1, -1) if own else value
    save(path, {"model_state_dict": state, "architecture": architecture.model_dump()})
