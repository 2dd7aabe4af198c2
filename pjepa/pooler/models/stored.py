"""Action poolers on disk: one for all takes, and one per fold for the train takes it left out.

`model.safetensors` holds the pooler trained on all train takes. With folds, `fold-<k>.safetensors`
holds the one that did not see fold k, with the map that turns its tokens into the first one's
space; `config.json` says which train take belongs to which fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from pjepa.core.files import read_object
from pjepa.core.runs import Span
from pjepa.core.time_grid import cut_ids, window_ids
from pjepa.pooler.models.action import ActionPooler, ActionShape, padded
from pjepa.pooler.models.alignment import Alignment
from pjepa.pooler.models.facts import CONFIG, PoolerFacts
from pjepa.pooler.models.windows import pooled_spans
from pjepa.ui.errors import InputError
from pjepa.ui.transfer import sent

MODEL = "model.safetensors"
ALIGN = "align."


@dataclass(frozen=True)
class StoredPooler:
    """Trained poolers behind the interface of every pooler (`pjepa.pooler.models.Pooler`)."""

    facts: PoolerFacts
    main: ActionPooler
    folds: tuple[tuple[ActionPooler, Alignment | None], ...]
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
        folds = tuple(
            read_weights(folder / fold_file(k), shape, device) for k in range(facts.folds)
        )
        return cls(facts, main, folds, config["fold_of"], config["batch_windows"], device)

    def tokens(
        self,
        patches: NDArray[Any],
        boundaries: NDArray[np.float64] | None = None,
        take_id: str | None = None,
        cuts: Sequence[int] = (),
    ) -> NDArray[np.float32]:
        """Return tokens [steps * per_step, D]: every step's from the one window that holds it.

        Windows do not overlap, never cross a cut and, with `scope: segment`, never a boundary
        [S, 2] (seconds).
        """
        facts = self.facts
        self._check(patches)
        ids = window_ids(len(patches), facts.patches.tokens_fps, facts.scope, boundaries)
        plan = pooled_spans(cut_ids(ids, cuts), facts.window)
        pooler, alignment = self._pooler_of(take_id)
        found = window_tokens(pooler, patches, plan, self.batch_windows, self.device)
        return found if alignment is None else alignment.turned(found)

    def window_tokens(self, patches: NDArray[Any]) -> NDArray[np.float32]:
        """Return tokens [n * per_step, D] of one window of at most `facts.window` steps."""
        self._check(patches)
        if not 0 < len(patches) <= self.facts.window:
            raise InputError(
                f"pooler: a window of {len(patches)} steps; expected 1 to {self.facts.window}"
            )
        whole = [(0, len(patches))]
        return window_tokens(self.main, patches, whole, 1, self.device)

    def _pooler_of(self, take_id: str | None) -> tuple[ActionPooler, Alignment | None]:
        if take_id is None or take_id not in self.fold_of:
            return self.main, None
        return self.folds[self.fold_of[take_id]]

    def _check(self, patches: NDArray[Any]) -> None:
        expected = (self.main.shape.cells, self.main.shape.width_in)
        if patches.ndim != 3 or patches.shape[1:] != expected:
            raise InputError(
                f"pooler: expected patches [steps, {expected[0]}, {expected[1]}], found "
                f"{list(patches.shape)}; it was trained on other patches: run `dvc repro pooler`"
            )


@torch.inference_mode()
def window_tokens(
    pooler: ActionPooler, patches: NDArray[Any], plan: list[Span], batch: int, device: str
) -> NDArray[np.float32]:
    """Return tokens [T, D] of consecutive windows of a take.

    Short windows are padded and the tokens of padding dropped.
    """
    found = []
    for first in range(0, len(plan), batch):
        part = plan[first : first + batch]
        values, lengths = padded([np.asarray(patches[start:stop]) for start, stop in part])
        real = None if lengths is None else sent(torch.from_numpy(lengths), device)
        tokens = pooler(sent(torch.from_numpy(values), device).float(), real)  # [B, T, D]
        kept = [
            row[: (stop - start) * pooler.shape.per_step]
            for row, (start, stop) in zip(tokens, part, strict=True)
        ]
        found.append(torch.cat(kept).float().cpu().numpy())
    return np.concatenate(found)


def fold_file(fold: int) -> str:
    """Return the file of the pooler that did not see a fold."""
    return f"fold-{fold}.safetensors"


def write_weights(path: Path, pooler: ActionPooler, alignment: Alignment | None = None) -> None:
    """Write a pooler and, for a fold's, the map into the main one's space."""
    tensors = {k: v.detach().cpu().contiguous().numpy() for k, v in pooler.state_dict().items()}
    if alignment is not None:
        tensors |= {f"{ALIGN}{name}": value for name, value in asdict(alignment).items()}
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)


def read_weights(
    path: Path, shape: ActionShape, device: str
) -> tuple[ActionPooler, Alignment | None]:
    """Return a pooler ready for inference and its map, if it has one."""
    try:
        stored = load_file(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro pooler`") from None
    turned = {k.removeprefix(ALIGN): v for k, v in stored.items() if k.startswith(ALIGN)}
    state = {k: torch.from_numpy(v) for k, v in stored.items() if not k.startswith(ALIGN)}
    pooler = ActionPooler(shape)
    pooler.load_state_dict(state)
    return pooler.to(device).eval(), Alignment(**turned) if turned else None
