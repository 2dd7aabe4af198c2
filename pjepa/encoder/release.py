"""The authors' released checkpoints as a `ProcedureEncoder`.

A released file is a torch zip: a bare state dict, or one under `model_state_dict` beside its
`architecture` or the `config` of the run; their training snapshots are of the second kind. All
were trained with `tiled` rotary tables and project even if d = d_in. They are loaded without
running any code they may hold, and must hold exactly the tensors of their architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from pjepa.core.files import read_object, read_torch
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.encoder.release_table import RELEASED, Architecture, known_file, release_file
from pjepa.streams.schema import SelectionLabels
from pjepa.ui.errors import InputError

PREFIX = "release:"
STUDENT, PREDICTOR, MASK_TOKEN = "student_enc.", "predictor.", "mask_token"
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
        known = RELEASED.get(Path(name.removeprefix(PREFIX)).stem)
        return known.selection_labels if known else "val"
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
    state, found = checked_release(source, architecture)
    with torch.random.fork_rng(devices=[]):
        encoder = ProcedureEncoder(found.encoder_config())
    encoder.load_state_dict(dict(encoder.named_buffers()) | tensors_under(state, STUDENT))
    return encoder.to(device).eval()


def checked_release(
    source: str | Path, architecture: Mapping[str, Any] | None
) -> tuple[dict[str, Tensor], Architecture]:
    """Return the state dict, still on disk (mmap), and the architecture it was checked against."""
    path = release_file(source)
    known = known_file(path) if architecture is None else None
    state, stated = _contents(path)
    fields: dict[str, Any] = known.architecture.model_dump() if known else {}
    fields |= stated | dict(architecture or {})
    found = _completed(path, _read_off(state), fields)
    _check_tensors(path, state, found)
    return state, found


def _contents(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state dict of any container, and the architecture that the file states."""
    outer = read_torch(path)
    state = outer.get("model_state_dict", outer)
    if not isinstance(state, dict) or f"{STUDENT}proj.1.weight" not in state:
        names = ", ".join(map(str, list(state)[:4])) if isinstance(state, dict) else ""
        raise InputError(f"{path}: no released encoder, no {STUDENT}* tensors ({names or 'empty'})")
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


def _read_off(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Return what the tensors show: widths and depths."""
    weight = state[f"{STUDENT}proj.1.weight"]
    d_model, d_in = weight.shape if weight.ndim == 2 else (0, 0)

    def depth(prefix: str) -> int:
        start = f"{prefix}blocks."
        return len({name.split(".")[2] for name in state if name.startswith(start)})

    depths = {"enc_depth": depth(STUDENT), "pred_depth": depth(PREDICTOR)}
    return {"d_in": d_in, "d_model": d_model} | depths


def _completed(path: Path, shown: Mapping[str, int], fields: Mapping[str, Any]) -> Architecture:
    """Return the architecture from given and shown fields; raise unless they determine it."""
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
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"])) or "architecture"
        message = fault["msg"].removeprefix("Value error, ")
        raise InputError(f"{path}: {place}: {message}") from None


def _check_tensors(path: Path, state: Mapping[str, Tensor], found: Architecture) -> None:
    """Raise unless exactly the tensors of student, predictor and mask token are there."""
    expected = _expected_shapes(found)
    unlike = [
        f"{name} is {list(state[name].shape)} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in state and state[name].shape != shape
    ]
    faults = [f"{name} is missing" for name in expected if name not in state]
    faults += [f"{name} is unknown" for name in state if name not in expected]
    faults = unlike + faults
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise InputError(f"{path}: does not fit its architecture: {faults[0]}{more}")


def _expected_shapes(found: Architecture) -> dict[str, torch.Size]:
    config = found.encoder_config()
    with torch.device("meta"):
        encoder = ProcedureEncoder(config)
        like_predictor = ProcedureEncoder(config.model_copy(update={"depth": found.pred_depth}))
    shapes = {
        PREDICTOR + name: value.shape
        for name, value in like_predictor.named_parameters()
        if not name.startswith("proj.")  # else it is built like the encoder
    }
    shapes[MASK_TOKEN] = torch.Size((1, 1, found.d_model))
    return shapes | {STUDENT + name: value.shape for name, value in encoder.named_parameters()}


def tensors_under(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors under a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
