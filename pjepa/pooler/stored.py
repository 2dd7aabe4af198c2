"""Action poolers on disk: one for all takes, and one per fold for the train takes it left out.

`model.safetensors` holds the pooler trained on all train takes. With folds, `fold-<k>.safetensors`
holds the one that did not see fold k, with the map that turns its tokens into the first one's
space; `config.json` says which train take belongs to which fold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import gcd
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pjepa.core.runs import Span, runs
from pjepa.core.section import WindowScope
from pjepa.core.tables import SHIPPED
from pjepa.core.time import cut_ids, window_ids
from pjepa.patches.store import PatchInfo
from pjepa.pooler.action import ActionPooler, ActionShape, padded
from pjepa.storage.reading import file_sha256, read_json, read_object, read_tensors
from pjepa.storage.writing import write_tensors
from pjepa.ui.console import InputError
from pjepa.ui.transfer import sent

# Facts about a pooler, known without loading it: `config.json` is the same for every kind.

CONFIG = "config.json"


@dataclass(frozen=True)
class PoolerFacts:
    """How patches become tokens, and which labels were used for it."""

    kind: str
    width: int  # of a token
    window: int  # steps that are pooled together
    per_step: int  # tokens of one step
    scope: WindowScope  # what windows stay inside
    train_labels: bool
    selection_labels: str  # who chose the epoch: none | holdout
    folds: int  # train tokens come from models that did not see their labels, if not 0
    patches: PatchInfo
    sha256: str  # over all files of the pooler

    @property
    def inside_segments(self) -> bool:
        """Return whether neither backbone nor pooler looks past the annotated segment."""
        return self.patches.window_scope == "segment" and (
            self.window == 1 or self.scope == "segment"
        )

    @property
    def knows_boundaries(self) -> bool:
        """Return whether annotated boundaries placed the windows of backbone or pooler."""
        return self.patches.window_scope == "segment" or (
            self.window > 1 and self.scope == "segment"
        )

    @property
    def lookahead_steps(self) -> int:
        """Return steps from a token's own to the end of what it can see, its own included.

        It sees to the end of its pooler window, whose last patches see to the end of theirs. Cut
        from the same start, the two ends lie at most `encoded - gcd` steps apart.
        """
        pooled, encoded = self.window, self.patches.sampling.kept
        if self.patches.tubelet == 1:
            return pooled - 1  # an image model sees its own frame alone
        together = gcd(pooled, encoded) if self.scope == self.patches.window_scope else 1
        return pooled + encoded - together


def read_facts(folder: Path) -> PoolerFacts:
    """Return the facts of the pooler in a folder."""
    config = read_json(folder / CONFIG)
    if isinstance(config, dict) and config.get("kind") == SHIPPED:
        raise InputError(
            f"{folder}: the tokens of this project came with its data set; no video can be turned "
            "into such tokens here"
        )
    try:
        return PoolerFacts(
            kind=config["kind"],
            width=config["width_out"],
            window=config["window"],
            per_step=config["per_step"],
            scope=config["scope"],
            **config["provenance"],
            patches=PatchInfo(**config["patches"]),
            sha256=folder_sha256(folder),
        )
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{folder / CONFIG}: not a pooler of this version ({error}); run `dvc repro pooler`"
        ) from None


def common_config(
    kind: str, info: PatchInfo, width: int, window: int, per_step: int, scope: str
) -> dict[str, Any]:
    """Return the part of `config.json` that every kind has, without labels."""
    return {
        "kind": kind,
        "grid": [info.rows, info.columns],
        "width_in": info.width,
        "width_out": width,
        "window": window,
        "per_step": per_step,
        "scope": scope,
        "provenance": {"train_labels": False, "selection_labels": "none", "folds": 0},
        "patches": dict(vars(info)),
    }


def folder_sha256(folder: Path) -> str:
    """Return one hash over the names and contents of the files that a stored model consists of."""
    files = [folder / CONFIG, *sorted(folder.glob("*.safetensors"))]
    lines = "".join(f"{file.name} {file_sha256(file)}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


# Mean pooling has nothing to train (paper Sec. 3.1).

Cells = Literal["average", "concat"]


def pool(
    patches: NDArray[np.floating], cells: Cells = "average"
) -> NDArray[np.float32]:  # [steps, cells, width] -> [steps, width out]
    """Return tokens of every step: the mean over cells [steps, width], or cells side by side.

    Unlike the paper, `concat` [steps, cells * width] keeps where things are: a spatial mean of
    random features would lose it.
    """
    if patches.ndim != 3:
        raise ValueError(f"expected patches [steps, cells, width], found {list(patches.shape)}")
    if cells == "concat":
        return patches.reshape(len(patches), -1).astype(np.float32)
    mean: NDArray[np.float32] = patches.mean(axis=1, dtype=np.float32)
    return mean


@dataclass(frozen=True)
class MeanPooler:
    """Mean pooling behind the interface that `StoredPooler` describes."""

    facts: PoolerFacts
    cells: Cells

    def tokens(
        self,
        patches: NDArray[np.floating],
        boundaries: NDArray[np.float64] | None = None,
        take_id: str | None = None,
        jumps_s: Sequence[float] = (),
    ) -> NDArray[np.float32]:
        """Return tokens [steps, D]; neither segments nor labels nor jumps matter."""
        return pool(patches, self.cells)

    def window_tokens(self, patches: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return tokens [n, D] of any number of steps."""
        return pool(patches, self.cells)


# Mapping tokens of one pooler into the space of another.


@dataclass(frozen=True)
class Alignment:
    """The map tokens -> (tokens - shift_from) rotation + shift_to."""

    rotation: NDArray[np.float32]  # [D, D] orthogonal
    shift_from: NDArray[np.float32]  # [D]
    shift_to: NDArray[np.float32]  # [D]

    def turned(self, tokens: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return tokens [T, D] in the other pooler's space."""
        turned = (tokens - self.shift_from) @ self.rotation + self.shift_to
        return turned.astype(np.float32)


def procrustes(source: NDArray[np.float32], target: NDArray[np.float32]) -> Alignment:
    """Return the orthogonal map from `source` [M, D] closest to `target` [M, D], both centred."""
    a, b = source.astype(np.float64), target.astype(np.float64)
    left, _, right = np.linalg.svd((a - a.mean(0)).T @ (b - b.mean(0)))
    return Alignment(
        (left @ right).astype(np.float32),
        a.mean(0).astype(np.float32),
        b.mean(0).astype(np.float32),
    )


def agreement(source: NDArray[np.float32], target: NDArray[np.float32]) -> float:
    """Return the share of the variance of `target` that `source` explains as is, at most 1."""
    rest = ((target - source).astype(np.float64) ** 2).sum()
    spread = ((target - target.mean(0)).astype(np.float64) ** 2).sum()
    return float(1 - rest / max(spread, 1e-12))


# Which steps of a take are pooled together: non-overlapping windows that cover each step once.


def pooled_spans(
    ids: NDArray[np.int64], window: int, rng: np.random.Generator | None = None
) -> list[Span]:
    """Return windows of at most `window` steps inside runs of equal ids [steps], in order.

    With `rng` the first window of a run too long for one is cut short at random.
    """
    spans = []
    starts, lengths = runs(ids)
    for first, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True):
        begin = first
        if rng is not None and stop - first > window:
            begin = first - int(rng.integers(window))
        spans += [
            (max(start, first), min(start + window, stop)) for start in range(begin, stop, window)
        ]
    return spans


MODEL = "model.safetensors"
ALIGN = "align."


@dataclass(frozen=True)
class StoredPooler:
    """Trained poolers: one for all takes and one for each fold."""

    facts: PoolerFacts
    main: ActionPooler
    folds: tuple[tuple[ActionPooler, Alignment], ...]
    fold_of: Mapping[str, int]
    batch_windows: int
    device: str = "cpu"

    @classmethod
    def read(
        cls, folder: Path, facts: PoolerFacts, device: str, threads: int | None
    ) -> StoredPooler:
        """Return the poolers of a folder; `threads` change the last bits of tokens."""
        if threads is not None:
            torch.set_num_threads(threads)
        config = read_object(folder / CONFIG, "model", "fold_of", "batch_windows")
        shape = ActionShape(**config["model"])
        main, _ = read_weights(folder / MODEL, shape, device)
        others = [read_weights(folder / fold_file(k), shape, device) for k in range(facts.folds)]
        folds = tuple((pooler, Alignment(**turn)) for pooler, turn in others)
        return cls(facts, main, folds, config["fold_of"], config["batch_windows"], device)

    def tokens(
        self,
        patches: NDArray[Any],
        boundaries: NDArray[np.float64] | None = None,
        take_id: str | None = None,
        jumps_s: Sequence[float] = (),
    ) -> NDArray[np.float32]:
        """Return tokens [steps * per_step, D] of a take's patches [steps, cells, width].

        Every step's come from the one window that holds it. Windows do not overlap, never cross a
        jump of the time stamps and, with `scope: segment`, never one of the take's `boundaries`
        [S, 2] in seconds. `take_id` names a take, so that a train take gets the pooler that did
        not see its labels.
        """
        facts = self.facts
        self._check(patches)
        fps = facts.patches.tokens_fps
        ids = window_ids(len(patches), fps, facts.scope, boundaries)
        plan = pooled_spans(cut_ids(ids, jumps_s, fps), facts.window)
        fold = None if take_id is None else self.fold_of.get(take_id)
        if fold is None:
            return window_tokens(self.main, patches, plan, self.batch_windows, self.device)
        pooler, alignment = self.folds[fold]
        tokens = window_tokens(pooler, patches, plan, self.batch_windows, self.device)
        return alignment.turned(tokens)

    def window_tokens(self, patches: NDArray[Any]) -> NDArray[np.float32]:
        """Return tokens [n * per_step, D] of one window of at most `facts.window` steps."""
        self._check(patches)
        if not 0 < len(patches) <= self.facts.window:
            raise InputError(
                f"pooler: a window of {len(patches)} steps; expected 1 to {self.facts.window}"
            )
        whole = [(0, len(patches))]
        return window_tokens(self.main, patches, whole, 1, self.device)

    def _check(self, patches: NDArray[Any]) -> None:
        expected = (self.main.shape.cells, self.main.shape.width_in)
        if patches.ndim != 3 or patches.shape[1:] != expected:
            raise InputError(
                f"pooler: expected patches [steps, {expected[0]}, {expected[1]}], found "
                f"{list(patches.shape)}; it was trained on other patches: run `dvc repro pooler`"
            )


Pooler = MeanPooler | StoredPooler


def load_pooler(folder: Path | str, device: str = "cpu", threads: int | None = None) -> Pooler:
    """Return the pooler that stage `pooler` wrote to a folder."""
    facts = read_facts(Path(folder))
    if facts.kind == "mean":
        return MeanPooler(facts, read_object(Path(folder) / CONFIG, "cells")["cells"])
    return StoredPooler.read(Path(folder), facts, device, threads)


@torch.inference_mode()
def window_tokens(
    pooler: ActionPooler, patches: NDArray[Any], plan: list[Span], batch: int, device: str
) -> NDArray[np.float32]:
    """Return tokens [T, D] of consecutive windows of a take.

    Short windows are padded and the tokens of padding dropped.
    """
    batches = []
    for first in range(0, len(plan), batch):
        spans = plan[first : first + batch]
        values, lengths = padded([np.asarray(patches[start:stop]) for start, stop in spans])
        real = None if lengths is None else sent(torch.from_numpy(lengths), device)
        tokens = pooler(sent(torch.from_numpy(values), device).float(), real)  # [B, T, D]
        without_padding = [
            row[: (stop - start) * pooler.shape.per_step]
            for row, (start, stop) in zip(tokens, spans, strict=True)
        ]
        batches.append(torch.cat(without_padding).float().cpu().numpy())
    return np.concatenate(batches)


def fold_file(fold: int) -> str:
    """Return the file of the pooler that did not see a fold."""
    return f"fold-{fold}.safetensors"


def write_weights(path: Path, pooler: ActionPooler, alignment: Alignment | None = None) -> None:
    """Write a pooler and, for a fold's, the map into the main one's space."""
    turn = {} if alignment is None else asdict(alignment)
    write_tensors(path, pooler.state_dict() | {f"{ALIGN}{k}": v for k, v in turn.items()})


def read_weights(
    path: Path, shape: ActionShape, device: str
) -> tuple[ActionPooler, dict[str, NDArray[np.float32]]]:
    """Return a pooler ready for inference, and the arrays of its map if it has one."""
    state = read_tensors(path)
    turn = {k.removeprefix(ALIGN): state.pop(k).numpy() for k in list(state) if k.startswith(ALIGN)}
    pooler = ActionPooler(shape)
    pooler.load_state_dict(state)
    return pooler.to(device).eval(), turn
