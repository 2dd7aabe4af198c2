"""Shared memory of the CUDA attention kernels: `python -m benchmarks.kernels [--json FILE]`.

Needs no GPU: FlexAttention is traced on fake tensors, inductor writes its kernels for a device that
is only described, and Triton compiles them for it. A kernel that asks for more shared memory than a
block of the GPU can have does not start; inductor then retries with fewer stages, which is slow.
Ours fills heads up to a power of two (`flex.kernel_width`); the reference is the kernel for the
width as it is. Speed is not measured, and nothing is run. Uses private parts of torch 2.14.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any
from unittest import mock

import torch
import triton
import typer
from torch import fx
from torch._dynamo.device_interface import CudaInterface
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch._inductor import async_compile, compile_fx
from torch._inductor import config as inductor
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.runtime import triton_heuristics
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention as flex_module
from torch.utils._pytree import tree_map_only
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.driver import driver

from benchmarks.workers import Table, row
from pjepa.model import flex

LIMITS = {80: 166_912, 89: 101_376, 90: 232_448}  # bytes of shared memory a block can have
NAMES = {80: "A100 (sm80)", 89: "4090 (sm89)", 90: "H100 (sm90)"}
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
TOKENS, HEADS = 2048, 16  # tiles depend on neither

Kernel = tuple[str, str]  # name and source


def traced(width: int, dtype: torch.dtype) -> list[fx.GraphModule]:
    """Return the graphs of FlexAttention's forward and backward pass, traced on the CPU."""
    found: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, example_inputs: Any) -> Any:
        found.append(gm)
        return make_boxed_func(gm.forward)

    def backend(graph: fx.GraphModule, inputs: Any) -> Any:
        table = select_decomp_table()
        return aot_module_simplified(graph, inputs, keep, keep, decompositions=table)

    place = torch.arange(TOKENS)
    tiles = flex.tiles_of(torch.zeros_like(place), place + 1)
    torch._dynamo.reset()
    refusal = mock.patch.object(flex_module, "_validate_device")  # of the CPU
    with refusal, FakeTensorMode(allow_non_fake_inputs=True):
        q, k, v = (
            torch.zeros(1, HEADS, TOKENS, width, dtype=dtype, requires_grad=True) for _ in range(3)
        )
        attend = torch.compile(flex_module.flex_attention, backend=backend, dynamic=False)
        attend(q, k, v, block_mask=tiles, scale=1.0).sum().backward()
    return found


@contextmanager
def described(capability: int) -> Iterator[list[Kernel]]:
    """Let inductor believe in one GPU of a compute capability; yield the kernels it writes."""
    major, minor = divmod(capability, 10)
    facts = SimpleNamespace(
        name="described", major=major, minor=minor, multi_processor_count=108, warp_size=32,
        total_memory=40 << 30, regs_per_multiprocessor=65536, max_threads_per_block=1024,
        max_threads_per_multi_processor=2048, gcnArchName="",
        shared_memory_per_block_optin=LIMITS[capability],
    )  # fmt: skip
    found: list[Kernel] = []
    driver.set_active(SimpleNamespace(get_current_target=lambda: target(capability)))
    said: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "get_device_properties": lambda device=None: facts,
    }  # fmt: skip
    cuda = said | {
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_name": lambda device=None: "described",
        "synchronize": lambda device=None: None,
        "_exchange_device": lambda index: 0,
        "_maybe_exchange_device": lambda index: 0,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda state, device=None: None,
    }
    interface = said | {
        "get_compute_capability": lambda device=None: capability,
        "raise_if_triton_unavailable": lambda device=None: None,
    }
    with ExitStack() as stack:
        for name, value in cuda.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        for name, value in interface.items():
            stack.enter_context(mock.patch.object(CudaInterface, name, staticmethod(value)))
        for name in ("get_device_properties", "current_device"):
            worker = mock.patch.object(CudaInterface.Worker, name, staticmethod(said[name]))
            stack.enter_context(worker)
        for place in ("fx_passes.joint_graph.lazy_init", "fx_passes.post_grad.lazy_init"):
            stack.enter_context(mock.patch(f"torch._inductor.{place}"))
        stack.enter_context(mock.patch("torch._inductor.scheduler.has_triton", return_value=True))
        kept = lambda own, name, source, device_str="cuda": found.append((name, source))  # noqa: E731
        stack.enter_context(mock.patch.object(async_compile.AsyncCompile, "triton", kept))
        stack.enter_context(inductor.patch(fx_graph_cache=False, fx_graph_remote_cache=False))
        yield found


def target(capability: int) -> GPUTarget:
    """Return Triton's name of a GPU."""
    return GPUTarget("cuda", capability, 32)


def on_cuda(graph: fx.GraphModule) -> list[Any]:
    """Move the fake values of a graph to CUDA; return those of its inputs."""
    mode = graph_mode(graph)
    for part in graph.modules():
        for node in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
            if "val" in node.meta:
                with mode:
                    moved = tree_map_only(torch.Tensor, lambda x: x.to("cuda"), node.meta["val"])
                node.meta["val"] = moved
    return [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]


def graph_mode(graph: fx.GraphModule) -> FakeTensorMode:
    """Return the mode that a graph's fake values belong to."""
    first = next(node for node in graph.graph.nodes if node.op == "placeholder")
    mode: FakeTensorMode = first.meta["val"].fake_mode
    return mode


def written(graphs: list[fx.GraphModule], capability: int) -> list[Kernel]:
    """Return the attention kernels that inductor writes for the graphs."""
    with described(capability) as found:
        for number, graph in enumerate(graphs):
            inputs = on_cuda(graph)
            context = torch._guards.TracingContext(graph_mode(graph))
            with torch._guards.tracing(context):
                compile_fx.compile_fx_inner(graph, inputs, is_backward=number > 0)
    return [(name, source) for name, source in found if name.startswith("triton_tem")]


def shared_bytes(kernel: Kernel, capability: int) -> int:
    """Return the shared memory that a kernel asks for, compiled for a GPU."""
    name, source = kernel
    settings: dict[str, Any] = {}

    def template(**given: Any) -> Any:
        settings.update(given)
        return lambda function: function

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with mock.patch.object(triton_heuristics, "template", template):
            spec.loader.exec_module(module)
        meta = settings["triton_meta"]
        ast = ASTSource(getattr(module, name), meta["signature"], {}, meta["configs"][0])
        options = {key: settings[key] for key in ("num_warps", "num_stages")}
        compiled = triton.compile(ast, target=target(capability), options=options)
    return int(compiled.metadata.shared)


def largest(width: int, precision: str, capability: int) -> float:
    """Return the KB of the kernel, forward or backward, that asks for most."""
    kernels = written(traced(width, TYPES[precision]), capability)
    return max(shared_bytes(kernel, capability) for kernel in kernels) / 1024


def main(
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the table.")] = None,
    widths: Annotated[list[int] | None, typer.Option("--width", help="Of heads.")] = None,
    capabilities: Annotated[list[int] | None, typer.Option("--sm", help="80, 89, 90.")] = None,
    precisions: Annotated[list[str] | None, typer.Option("--precision", help="bf16, fp32.")] = None,
) -> None:
    """Print the largest kernel of every case, filled up (ours) and as it is (the reference)."""
    torch.set_float32_matmul_precision("high")  # as in training
    table = Table()
    for capability in capabilities or list(LIMITS):
        for precision in precisions or list(TYPES):
            known: dict[int, float] = {}
            for width in widths or [64, 80, 88, 96, 128]:
                for size in (flex.kernel_width(width), width):
                    known[size] = known.get(size) or largest(size, precision, capability)
                ours, other = known[flex.kernel_width(width)], known[width]
                limit = LIMITS[capability] / 1024
                verdict = f"{fit(ours, limit)}; as it is, {fit(other, limit)}"
                gpu = f"{NAMES[capability]}, {limit:.0f} KB"
                case = f"{gpu}, {precision}, heads of {width}: {verdict}"
                table.add(case, row(ours, other, "KB"))
    table.save(json_file)


def fit(needed: float, limit: float) -> str:
    """Return whether the kernel starts, in a word."""
    return "fits" if needed <= limit else "does not fit"


if __name__ == "__main__":
    typer.run(main)
