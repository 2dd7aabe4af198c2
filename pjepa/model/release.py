"""The authors' released checkpoints as a `ProcedureEncoder`.

A released file is a torch zip: a bare state dict, or one under `model_state_dict` beside its
`architecture` or the `config` of the run; their training snapshots are of the second kind. All
were trained with `tiled` rotary tables and project even if d = d_in. They are loaded without
running any code they may hold, and must hold exactly the tensors of their architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from pjepa.core.section import first_fault
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder, tensor_faults
from pjepa.storage.hub import found_file, hub_file
from pjepa.storage.reading import file_sha256, read_object, read_torch
from pjepa.storage.saver import part, under
from pjepa.streams.provenance import SelectionLabels
from pjepa.ui.console import InputError

# The five encoders the authors released (model FelTris/pjepa on the hub), and their files.

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


def released_as(path: Path) -> Released | None:
    """Return the released file that this is, by name or by content; a changed one is refused."""
    size = path.stat().st_size
    named = RELEASED.get(path.stem) if path.suffix == ".pt" else None
    alike = [file for file in RELEASED.values() if file.bytes == size]
    digest = file_sha256(path) if alike else ""
    if named and (size, digest) != (named.bytes, named.sha256):
        what = f"{size} bytes" if size != named.bytes else f"sha256 {digest[:12]}..."
        expected = f"{named.bytes} bytes, sha256 {named.sha256[:12]}..."
        raise InputError(
            f"{path}: {what} is not the released {path.name} ({expected}); "
            "download it again, or pass its architecture"
        )
    return named or next((file for file in alike if file.sha256 == digest), None)


PREFIX = "release:"
STUDENT, PREDICTOR, MASK_TOKEN = "student_enc", "predictor", "mask_token"
CONFIG_NAMES = {"input_dim": "d_in", "dim": "d_model"}  # where a run's config differs


def init_encoder(name: str, device: str = "cpu") -> ProcedureEncoder:
    """Return the encoder that `pjepa.init_from` names: release:NAME, a folder or a hub id."""
    if name.startswith(PREFIX):
        return load_release(name.removeprefix(PREFIX), device=device)
    return ProcedureEncoder.from_pretrained(name, device)


def init_selection(name: str) -> SelectionLabels:
    """Return which labels chose that encoder, as far as it says.

    An unknown release counts as `val`.
    """
    if name.startswith(PREFIX):
        released = RELEASED.get(Path(name.removeprefix(PREFIX)).stem)
        return released.selection_labels if released else "val"
    written, key = Path(name) / "selection.json", "selection_labels"
    return read_object(written, key)[key] if written.is_file() else "none"


def load_release(
    source: str | Path,
    architecture: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> ProcedureEncoder:
    """Return the student encoder of a released file, or of an id of `RELEASED`.

    `architecture`, in the release's field names, goes before what the file says; with it a file
    need not be one of the five. What the tensors show (widths, depths) may be left out.
    """
    path = release_file(source)
    released = released_as(path) if architecture is None else None
    state, stated = _contents(path)
    fields = released.architecture.model_dump() if released else {}
    complete = _completed(path, state, {**fields, **stated, **(architecture or {})})
    faults = tensor_faults(state, _expected(complete))
    if faults:
        raise InputError(f"{path}: does not fit its architecture: {faults}")
    with torch.random.fork_rng(devices=[]):
        encoder = ProcedureEncoder(complete.encoder_config())
    encoder.load_state_dict(dict(encoder.named_buffers()) | part(STUDENT, state))
    return encoder.to(device).eval()


def _contents(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state dict of any container, and the architecture that the file states."""
    outer = read_torch(path)
    state = outer.get("model_state_dict", outer)
    if not isinstance(state, dict) or f"{STUDENT}.proj.1.weight" not in state:
        names = ", ".join(map(str, list(state)[:4])) if isinstance(state, dict) else ""
        raise InputError(
            f"{path}: no released encoder, no {STUDENT}.* tensors ({names or 'empty'})"
        )
    bad = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if bad:
        raise InputError(f"{path}: {bad[0]} is not a tensor")
    return state, _stated(outer)


def _stated(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the architecture fields beside the weights (`architecture`, or a run's `config`)."""
    if isinstance(content.get("architecture"), dict):
        return dict(content["architecture"])
    config = content.get("config")
    sections = [config.get(name) for name in ("model", "ssl")] if isinstance(config, dict) else []
    merged = {k: v for section in sections if isinstance(section, dict) for k, v in section.items()}
    named = {CONFIG_NAMES.get(name, name): value for name, value in merged.items()}
    return {name: value for name, value in named.items() if name in Architecture.model_fields}


def _completed(path: Path, state: Mapping[str, Tensor], fields: Mapping[str, Any]) -> Architecture:
    """Return the architecture from given fields and what tensors show: widths and depths."""
    weight = state[f"{STUDENT}.proj.1.weight"]
    d_model, d_in = weight.shape if weight.ndim == 2 else (0, 0)
    blocks = {tuple(name.split(".")[:3]) for name in state if ".blocks." in name}
    depths = [sum(name == owner for owner, *_ in blocks) for name in (STUDENT, PREDICTOR)]
    shown = {"d_in": d_in, "d_model": d_model, "enc_depth": depths[0], "pred_depth": depths[1]}
    for name, value in shown.items():
        if fields.get(name, value) != value:
            raise InputError(f"{path}: {name} is {fields[name]!r}, its tensors show {value}")
    fields = {**shown, **fields}
    required = [n for n, field in Architecture.model_fields.items() if field.is_required()]
    missing = [name for name in required if name not in fields]
    if missing:
        raise InputError(
            f"{path}: not one of the released files, and tensors do not show "
            f"{', '.join(missing)}; pass them as architecture"
        )
    try:
        return Architecture.model_validate(fields)
    except ValidationError as error:
        raise InputError(f"{path}: {first_fault(error, Architecture)}") from None


def _expected(architecture: Architecture) -> dict[str, Tensor]:
    """Return the tensors of student, predictor and mask token, without content."""
    config = architecture.encoder_config()
    with torch.device("meta"):
        encoder = ProcedureEncoder(config)
        like_predictor = ProcedureEncoder(
            config.model_copy(update={"depth": architecture.pred_depth})
        )
        mask_token = torch.empty(1, 1, architecture.d_model)
    predictor = {  # built like the encoder, but for the projection
        name: value
        for name, value in like_predictor.named_parameters()
        if not name.startswith("proj.")
    }
    student = under(STUDENT, dict(encoder.named_parameters()))
    return student | under(PREDICTOR, predictor) | {MASK_TOKEN: mask_token}
