"""Facts about a pooler without loading it: `config.json`, the same for every kind."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

from pjepa.core.choices import WindowScope
from pjepa.core.files import file_sha256, read_json
from pjepa.core.tables import SHIPPED
from pjepa.patches.store import PatchInfo
from pjepa.ui.errors import InputError

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
    found = read_json(folder / CONFIG)
    if isinstance(found, dict) and found.get("kind") == SHIPPED:
        raise InputError(
            f"{folder}: the tokens of this project came with its data set; no video can be turned "
            "into such tokens here"
        )
    try:
        return PoolerFacts(
            kind=found["kind"],
            width=found["width_out"],
            window=found["window"],
            per_step=found["per_step"],
            scope=found["scope"],
            **found["provenance"],
            patches=PatchInfo(**found["patches"]),
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
