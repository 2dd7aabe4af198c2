"""What pretraining takes on a GPU, by arithmetic: `python -m benchmarks.sizes [--json FILE]`.

Nothing is run: models have no values (`meta`), and what a forward pass keeps for the backward pass
is counted on fake CUDA tensors under bf16 autocast. Operations are those of matrix products and
attention, a multiply-add counts as two, and `UTILISATION` of a GPU's dense bf16 peak is assumed.

    per token = 6 (1 - p) S + 2 S + 6 P    S, P: weights of encoder and predictor, p: mask ratio
    (student: forward and backward on its context; teacher: forward; predictor: both on all)

The reference of the memory rows is the same with `checkpoint_activations`. The teacher's passing
activations, gradients of single layers and the allocator's slack come on top.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.workers import Table, row
from pjepa.model import flex
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.objective import Jepa
from pjepa.model.predictor import Predictor
from pjepa.patches.cost import PEAK_TFLOPS
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake, pack, view
from pjepa.pretrain.feed import FileTokens
from pjepa.pretrain.setup import encoder_config
from pjepa.tools.presets import preset_values
from pjepa.ui import transfer

UTILISATION = 0.4
MODELS = {"egoprocel-i3d-streaming": 2048, "egoexo4d": 1408, "release-lemon-block": 768}  # d_in
LENGTHS = {"10 minutes": 2400, "40 minutes": 9600, "2 hours": 28800}  # of a take at 4 tokens/s
SEGMENT = 45  # tokens


def model_of(config: PjepaConfig, d_in: int) -> Jepa:
    """Return the model of a preset without values."""
    with torch.device("meta"):
        shape = encoder_config(config, d_in)
        predictor = Predictor(shape, config.predictor_depth, config.predictor_heads)
        model = Jepa(ProcedureEncoder(shape), predictor)
    for stack in (model.student.blocks, model.predictor.blocks):
        stack.recompute = config.checkpoint_activations
    return model


def weights(module: nn.Module) -> int:
    """Return the number of weights of all matrices."""
    return sum(p.numel() for p in module.parameters() if p.ndim == 2)


def flops_per_token(model: Jepa, config: PjepaConfig, tokens: int) -> float:
    """Return the operations of a training step per token of takes of so many tokens."""
    shown, width = 1 - config.mask_ratio, model.student.config.width
    student, predictor = weights(model.student), weights(model.predictor)
    linear = 6 * shown * student + 2 * student + 6 * predictor
    attended = 2 * tokens * width  # q k^T and its product with v, over half of all keys
    layers, predicted = config.depth, config.predictor_depth
    return linear + attended * (3 * shown**2 * layers + layers + 3 * predicted)


def state_bytes(model: Jepa) -> int:
    """Return the bytes of weights, teacher, gradients and AdamW's two moments in float32."""
    trained = sum(p.numel() for p in model.trained_parameters())
    return 4 * (4 * trained + sum(p.numel() for p in model.teacher.parameters()))


class KeptAttention(torch.autograd.Function):
    """Stands for FlexAttention: keeps what its backward pass needs, computes nothing."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:3], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError


@contextmanager
def described_gpu() -> Iterator[None]:
    """Let fake CUDA tensors pass where torch asks for a driver."""
    attend = lambda: lambda q, k, v, block_mask, scale: KeptAttention.apply(q, k, v)  # noqa: E731
    with (
        mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", new=bool),
        mock.patch.object(torch.cuda, "is_bf16_supported", return_value=True),
        mock.patch.object(transfer, "pinned", new=lambda x, device: x),
        mock.patch.object(flex, "compiled", new=attend),
        FakeTensorMode(allow_non_fake_inputs=True),
    ):
        yield


def kept_bytes(config: PjepaConfig, d_in: int, tokens: int) -> int:
    """Return the bytes that a forward pass over one take keeps for its backward pass."""
    features = np.zeros((tokens, d_in), np.float16)
    take = TrainingTake(0, "take", features, np.arange(tokens) // SEGMENT)
    tokens_here = FileTokens([take], torch.device("cpu"))
    batch, model = pack([view(take, 0, config)], 0, config, tokens_here), model_of(config, d_in)
    found: dict[int, tuple[int, Tensor]] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        found[storage._cdata] = (storage.nbytes(), x)
        return x

    with described_gpu():
        model.to_empty(device="cuda")
        owned = {p.untyped_storage()._cdata for p in model.parameters()}
        there = batch.to("cuda")
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x),
            torch.autocast("cuda", torch.bfloat16, cache_enabled=False),
        ):
            terms = model(there, model.counts(there))
        del terms
    return sum(size for key, (size, _) in found.items() if key not in owned)


def main(
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the table.")] = None,
) -> None:
    """Print parameters, work, pace and memory of the presets' models."""
    table = Table()
    for name, d_in in MODELS.items():
        config = preset_values(name).pjepa
        model = model_of(config, d_in)
        size = sum(p.numel() for p in model.student.parameters())
        case = f"{name}: encoder (reference: predictor)"
        other = sum(p.numel() for p in model.predictor.parameters())
        table.add(case, row(size / 1e6, other / 1e6, "M"))
        states = f"{name}: with teacher, gradients, AdamW (reference: encoder)"
        table.add(states, row(state_bytes(model) / 1e9, 4 * size / 1e9, "GB"))
        for length, tokens in LENGTHS.items():
            work, plain = (flops_per_token(model, config, t) for t in (tokens, 0))
            label = f"{name}, {length}: a token (reference: no attention)"
            table.add(label, row(work / 1e9, plain / 1e9, "GFLOP"))
            for gpu in ("RTX 4090", "A100", "H100"):
                rate = PEAK_TFLOPS[gpu] * 1e12 * UTILISATION
                paces = row(rate / work, rate / plain, "tokens/s")
                table.add(f"{name}, {length}, {gpu}: pace", paces)
            lean = config.model_copy(update={"checkpoint_activations": True})
            kept, least = (kept_bytes(c, d_in, tokens) / 1e9 for c in (config, lean))
            table.add(f"{name}, {length} in one pass: kept", row(kept, least, "GB"))
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
