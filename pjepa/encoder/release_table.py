"""The five encoders the authors released (model FelTris/pjepa on the hub), and their files.

Heads, attention mode, block size and rotary positions leave no trace in the tensors, so they are
listed here; a file is known by its name and its sha256.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pjepa.core.files import file_sha256
from pjepa.encoder.config import EncoderConfig
from pjepa.hub.files import hub_file
from pjepa.hub.places import found_file
from pjepa.streams.schema import SelectionLabels
from pjepa.ui.errors import InputError

HUB = "FelTris/pjepa"

ReleasedAttention = Literal["clip_causal", "block_causal", "causal", "bidirectional"]
RopeMode = Literal["2d_clip_frame", "1d_flat"]


class Architecture(BaseModel):
    """The release's own ten fields, under the release's names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    d_in: int = Field(ge=1)
    d_model: int = Field(ge=1)
    enc_depth: int = Field(ge=0)
    enc_heads: int = Field(ge=1)
    pred_depth: int = Field(ge=0)
    pred_heads: int = Field(ge=1)
    drop_path_prob: float = 0.0  # acts in the authors' training only
    student_encoder_attention: ReleasedAttention
    student_encoder_block_size: int = Field(ge=1)
    rope_mode: RopeMode

    @model_validator(mode="after")
    def heads_divide_width(self) -> Architecture:
        for name in ("enc_heads", "pred_heads"):
            if self.d_model % getattr(self, name):
                raise ValueError(
                    f"{name} {getattr(self, name)} does not divide d_model {self.d_model}"
                )
        return self

    def encoder_config(self) -> EncoderConfig:
        """Return the same encoder in our terms."""
        attention = self.student_encoder_attention
        return EncoderConfig(
            d_in=self.d_in,
            width=self.d_model,
            depth=self.enc_depth,
            heads=self.enc_heads,
            attention="token_causal" if attention == "causal" else attention,
            block=self.student_encoder_block_size,
            positions="2d" if self.rope_mode == "2d_clip_frame" else "1d",
            rope="tiled",
            project="always",
        )


@dataclass(frozen=True)
class Released:
    """One published file. Its epoch was chosen on the labels of that split of its data set."""

    bytes: int
    sha256: str
    selection_labels: SelectionLabels
    architecture: Architecture


def _architecture(
    d_in: int, width: int, heads: int, attention: ReleasedAttention, block: int, rope: RopeMode
) -> Architecture:
    return Architecture(
        d_in=d_in, d_model=width, enc_depth=4, enc_heads=heads, pred_depth=2, pred_heads=heads,
        student_encoder_attention=attention, student_encoder_block_size=block, rope_mode=rope,
    )  # fmt: skip


RELEASED: dict[str, Released] = {
    "lemon_plstitch_block32": Released(
        172522460,
        "e15967fc28eb4e7cbde29eb3491852c07cc8e6b1527e4f2de0c6ebde876098c4",
        "val",
        _architecture(768, 768, 8, "block_causal", 32, "1d_flat"),
    ),
    "assembly101_tsm_block64": Released(
        583007046,
        "b8e785d1d2b9167add647ae08c9d4ed54b81f5aea7a050f1a82ec27240da8abe",
        "val",
        _architecture(2048, 1408, 16, "block_causal", 64, "1d_flat"),
    ),
    "assembly101_tsm_clip": Released(
        583007046,
        "787987c3ee7ebbb512107d9eb443995faba46bf8ca036c74846ae549d5aff449",
        "val",
        _architecture(2048, 1408, 16, "clip_causal", 16, "2d_clip_frame"),
    ),
    "egoprocel_fact_features_clip": Released(
        583007046,
        "4798a91795ce477059e681addf807598c0754edb16256398f59dc8576fbea12e",
        "test",
        _architecture(2048, 1408, 16, "clip_causal", 16, "2d_clip_frame"),
    ),
    "egoprocel_pooled_clip": Released(
        579397446,
        "9c6cb8350e4dae049f2e69833130f4d7082cfcb490444f8999c32a78c2416291",
        "test",
        _architecture(1408, 1408, 16, "clip_causal", 16, "2d_clip_frame"),
    ),
}


def release_file(source: str | Path) -> Path:
    """Return the local file of a path or an id; an id that is not there is fetched from the hub."""
    path = Path(source)
    if path.is_file():
        return path
    name = str(source).removesuffix(".pt")
    if name not in RELEASED:
        raise InputError(
            f"{source}: neither a file nor a released encoder ({', '.join(sorted(RELEASED))})"
        )
    return found_file(f"{name}.pt") or hub_file(HUB, f"{name}.pt")


def known_file(path: Path) -> Released | None:
    """Return the released file that this is, by name or by content; a changed one is refused."""
    size = path.stat().st_size
    named = RELEASED.get(path.stem) if path.suffix == ".pt" else None
    alike = [known for known in RELEASED.values() if known.bytes == size]
    digest = file_sha256(path) if alike else ""
    if named and (size, digest) != (named.bytes, named.sha256):
        what = f"{size} bytes" if size != named.bytes else f"sha256 {digest[:12]}..."
        expected = f"{named.bytes} bytes, sha256 {named.sha256[:12]}..."
        raise InputError(
            f"{path}: {what} is not the released {path.name} ({expected}); "
            "download it again, or pass its architecture"
        )
    return named or next((known for known in alike if known.sha256 == digest), None)
