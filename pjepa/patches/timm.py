"""Any timm image model as a backbone: each frame alone, its last feature map as patches.

Sizes, resizing, cropping and normalisation come from timm's data config of the model. A frame is a
time step (tubelet 1), so a token covers one frame and sees no other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_model_data_config
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pjepa.patches.backbone import Backbone, BackboneFacts
from pjepa.patches.checkpoint import RANDOM, read_checkpoint, tensors_id
from pjepa.patches.config import TIMM, PatchesConfig
from pjepa.patches.preprocess import Uint8
from pjepa.storage.hub import HUB, checkpoint_file, hub_errors
from pjepa.ui.console import InputError, first_line

PRETRAINED = ("pretrained", "official")  # timm's own weights for that name, from the hub
CONTAINERS = ("state_dict_ema", "model_ema", "state_dict", "model")  # of training checkpoints


def timm_facts(config: PatchesConfig) -> BackboneFacts:
    """Return sizes from a model without weights, identity from the weights."""
    model = shape_model(config)
    crop = config.crop or int(resolve_model_data_config(model)["input_size"][-1])
    rows, columns, width = map_shape(model, config, crop)
    identity = f"{RANDOM}-{config.backbone}-{config.seed}-timm{timm.__version__}"
    if config.checkpoint != RANDOM:
        identity = tensors_id(timm_model(config).state_dict())
    return BackboneFacts(config.backbone, identity, width, rows, columns, 1, crop)


def shape_model(config: PatchesConfig) -> nn.Module:
    """Return the model without values, for its shapes; raise if timm does not know it."""
    name = config.backbone.removeprefix(TIMM)
    if not timm.is_model(name):
        close = timm.list_models(f"*{name.split('.')[0]}*")[:3]
        hint = f"did you mean {', '.join(close)}?" if close else "see timm.list_models()"
        raise InputError(f"patches.backbone: timm has no model {name!r}; {hint}")
    with torch.device("meta"):
        return _created(config, pretrained=False)


def timm_model(config: PatchesConfig) -> nn.Module:
    """Return the model in eval mode, without its classifier, with the chosen weights."""
    if config.checkpoint == RANDOM:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            return _created(config, pretrained=False)
    if config.checkpoint in PRETRAINED:
        return _hub_model(config)
    return _local_model(config)


def _created(config: PatchesConfig, **options: Any) -> nn.Module:
    """Return timm's model for `patches.crop`; models of any size have no `img_size`."""
    name = config.backbone.removeprefix(TIMM)
    try:
        model: Any = timm.create_model(name, img_size=config.crop or None, **options)
    except TypeError as error:
        if "img_size" not in str(error):
            raise
        model = timm.create_model(name, **options)
    if model.num_classes:
        model.reset_classifier(0)  # features do not use it
    return model.eval().requires_grad_(False)


def _released(config: PatchesConfig) -> dict[str, Any]:
    """Return what timm says about the weights of that name."""
    stated: Any = timm.get_pretrained_cfg(config.backbone.removeprefix(TIMM))
    return {name: getattr(stated, name, None) for name in ("hf_hub_id", "url", "classifier")}


def _hub_model(config: PatchesConfig) -> nn.Module:
    """Return timm's pretrained weights; loading is strict: no class is added or dropped."""
    released = _released(config)
    page = f"{HUB}/{released['hf_hub_id']}" if released["hf_hub_id"] else released["url"]
    hint = f"download them from {page or 'their authors'} and set patches.checkpoint to the file's"
    with hub_errors(f"{config.backbone}: no pretrained weights here", f"{hint} name"):
        return _created(config, pretrained=True)


def _local_model(config: PatchesConfig) -> nn.Module:
    """Return the weights of a file, strict but for the classifier, which is left out."""
    path = checkpoint_file(config.checkpoint)
    content = read_checkpoint(path)
    state = next((content[k] for k in CONTAINERS if isinstance(content.get(k), dict)), content)
    heads = _released(config)["classifier"] or ()
    left_out = tuple(f"{name}." for name in ([heads] if isinstance(heads, str) else heads))
    state = {k.removeprefix("module."): v for k, v in state.items() if isinstance(v, Tensor)}
    state = {k: v for k, v in state.items() if not (left_out and k.startswith(left_out))}
    overlay = {"state_dict": state, "num_classes": 0}
    try:
        return _created(config, pretrained=True, num_classes=0, pretrained_cfg_overlay=overlay)
    except (RuntimeError, KeyError, AssertionError) as error:
        lines = [line.strip() for line in str(error).splitlines()] or [type(error).__name__]
        reason = " ".join(lines[1:2] or lines)[:300]
        raise InputError(f"{path}: does not fit {config.backbone} ({reason})") from None


def feature_maps(model: nn.Module, images: Tensor) -> Tensor:
    """Return the last feature map [B, rows, columns, D] of images; prefix tokens dropped."""
    x = model.forward_features(images)  # type: ignore[operator]
    if isinstance(x, Tensor) and x.ndim == 4:
        return x if getattr(model, "output_fmt", "") == "NHWC" else x.permute(0, 2, 3, 1)
    prefix = getattr(model, "num_prefix_tokens", 0)
    if isinstance(x, Tensor) and x.ndim == 3:
        side = math.isqrt(x.shape[1] - prefix)
        if side * side == x.shape[1] - prefix:
            return x[:, prefix:].unflatten(1, (side, side))
    last = model.forward_intermediates(  # type: ignore[operator]
        images, indices=1, norm=True, intermediates_only=True, output_fmt="NCHW"
    )
    return last[-1].permute(0, 2, 3, 1)


@torch.no_grad()
def map_shape(model: nn.Module, config: PatchesConfig, crop: int) -> tuple[int, int, int]:
    """Return (rows, columns, width) of the feature map at that crop."""
    device = next(model.parameters()).device
    try:
        maps = feature_maps(model, torch.empty(1, 3, crop, crop, device=device))
    except Exception as error:  # each architecture fails its own way on a size it cannot take
        reason = first_line(error)
        raise InputError(
            f"{config.backbone}: gives no feature map at {crop} px ({reason}); "
            "leave patches.crop at 0 for its own size, or choose another model"
        ) from None
    _, rows, columns, width = maps.shape
    return rows, columns, width


class TimmFrames(Backbone):
    """A timm model and its own preprocessing."""

    def built(self) -> nn.Module:
        model = timm_model(self.config)
        settings = resolve_model_data_config(model)
        settings["input_size"] = (3, self.facts.crop, self.facts.crop)
        self.transform = create_transform(**settings, is_training=False)
        self.maps = feature_maps
        return model

    def compile(self) -> None:
        self.maps = torch.compile(feature_maps)

    def prepared(self, frames: Uint8) -> Tensor:
        pictures = [self.transform(Image.fromarray(np.ascontiguousarray(f))) for f in frames]
        return torch.stack(pictures, dim=1)

    def features(self, batch: Tensor) -> Tensor:
        """Return features [B, T * cells, D], one window at a time to bound memory."""
        maps = [self.maps(self.model, window.transpose(0, 1)) for window in batch]
        return torch.stack([grid.flatten(0, 2) for grid in maps])


def frame_flops(config: PatchesConfig, crop: int) -> float:
    """Return floating-point operations of one frame, counted on a model without values."""
    model = shape_model(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        feature_maps(model, torch.empty(1, 3, crop, crop, device="meta"))
    return float(counter.get_total_flops())
