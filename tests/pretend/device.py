"""A pretend device: what would go wrong on a GPU, found without one.

Tensors on `pretend` hold real values on the CPU, but say they are elsewhere. Like CUDA's they
cannot be mixed with CPU tensors and have no `.numpy()`. Whatever would make the host wait for a GPU
is counted by the line of `pjepa` that caused it (`Waits`):

| kind     | what                                                                          |
|----------|-------------------------------------------------------------------------------|
| `sync`   | the host reads a value: `float(x)`, `nonzero`, a boolean index, `x.cpu()`     |
| `upload` | a copy to the device from memory that is not pinned, or that is waited for    |

Streams are kept in order as CUDA's are not: a tensor made in one stream and used in another that
has not waited for it is an error (`Stream`).

As a plugin of pytest it changes torch for good, so it needs a process of its own. Limits:
`inference_mode` is `no_grad`, there is no autocast, FlexAttention is replaced by dense attention
under the same mask.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretend"
aten = torch.ops.aten

# Operations whose result has a size, or a check, that the host must know.
SYNCS = {
    "_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique", "_unique2",
    "unique_consecutive", "bincount", "equal", "is_nonzero", "linalg_eigh", "_linalg_eigh",
    "linalg_svd", "_linalg_svd", "linalg_eigvalsh",
}  # fmt: skip
INDEXED = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}
FACTORIES = (
    "empty.memory_format", "empty_strided", "zeros", "ones", "full", "arange", "arange.start",
    "arange.start_step", "eye", "eye.m", "rand", "randn", "randint", "randint.low", "randperm",
    "scalar_tensor", "linspace",
)  # fmt: skip


class Pretend(torch.Tensor):
    """A tensor that says it is on the pretend device; `held` has its values on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor, requires_grad: bool = False) -> Pretend:
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, device=torch.device(NAME, 0), requires_grad=requires_grad,
        )  # fmt: skip

    def __init__(self, held: Tensor, requires_grad: bool = False) -> None:
        self.held = held
        self.made = present().stamp()

    def numpy(self, *arguments: Any, **options: Any) -> Any:
        raise TypeError("can't convert a tensor of the pretend device to numpy; use .cpu() first")

    __array__ = numpy

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:  # torch.save keeps values, not the device
        WAITS.add("sync")
        return self.held.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = Pretend(self.held.detach().clone(), self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            twin = torch.nn.Parameter(twin, self.requires_grad)
        memo[id(self)] = twin
        return twin

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatched(func, args, kwargs or {})


class Stream:
    """A queue of work; what another stream made can be used once its event has been waited for."""

    clock = itertools.count()

    def __init__(self, device: Any = None) -> None:
        self.known: dict[Stream, float] = {self: math.inf}  # up to when each stream's work is done

    def stamp(self) -> tuple[Stream, int]:
        return self, next(self.clock)

    def record_event(self) -> tuple[Stream, int]:
        return self.stamp()

    def wait_event(self, event: tuple[Stream, int]) -> None:
        self.known[event[0]] = max(event[1], self.known.get(event[0], -1))

    def check(self, name: str, values: list[Tensor]) -> None:
        for x in values:
            if isinstance(x, Pretend) and x.made[1] > self.known.get(x.made[0], -1):
                raise RuntimeError(f"{name}: used before its copy has arrived, at {_line()}")


DEFAULT, PRESENT = Stream(), threading.local()


def present() -> Stream:
    """The stream of this thread."""
    return getattr(PRESENT, "stream", DEFAULT)


@contextmanager
def entered(stream: Stream) -> Iterator[None]:
    before, PRESENT.stream = present(), stream
    try:
        yield
    finally:
        PRESENT.stream = before


class Waits:
    """What made the host wait, by kind and line of the product."""

    def __init__(self) -> None:
        self.found: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str) -> None:
        self.found[kind, _line()] += 1

    def count(self, kind: str, within: str = "") -> int:
        """How many of a kind came from lines whose place contains `within`."""
        return sum(n for (k, line), n in self.found.items() if k == kind and within in line)

    def table(self) -> str:
        return "\n".join(f"{n:5d} {kind:7s} {line}" for (kind, line), n in self.found.most_common())


WAITS = Waits()


@contextmanager
def counted() -> Iterator[Waits]:
    """The waits inside the block."""
    global WAITS
    before, WAITS = WAITS, Waits()
    try:
        yield WAITS
    finally:
        WAITS = before


def _line() -> str:
    """The innermost line of the product, else of whoever called torch."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/pjepa/" in name and "/site-packages/" not in name and "/tests/" not in name:
            return f"{name[name.rindex('/pjepa/') + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "elsewhere"


def dispatched(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`func` on the values held inside, its results back on the pretend device."""
    name = func.overloadpacket.__name__
    if name in ("_to_copy", "copy_", "_copy_from"):
        return _copied(func, name, args, kwargs)
    values = [x for x in tree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    _refuse_mixing(name, values)
    present().check(name, values)
    if name in SYNCS or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        WAITS.add("sync")
    if name in INDEXED:
        _count_index(args[1])
    if kwargs.get("device") is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    inner_args, inner_kwargs = tree.tree_map_only(Pretend, lambda x: x.held, (args, kwargs))
    found = NOT_ON_CPU.get(name, func)(*inner_args, **inner_kwargs)
    if name == "_local_scalar_dense":
        return found
    owners = {id(x.held): x for x in values if isinstance(x, Pretend)}
    return tree.tree_map_only(
        Tensor, lambda x: owners[id(x)] if id(x) in owners else Pretend(x), found
    )


def _gru_cell(i: Tensor, h: Tensor, state: Tensor, i_bias: Tensor, h_bias: Tensor) -> Any:
    """Return the next state of a GRU, and what its gradient would need (nothing here)."""
    (i_r, i_z, i_n), (h_r, h_z, h_n) = (i + i_bias).chunk(3, 1), (h + h_bias).chunk(3, 1)
    new, keep = (i_n + (i_r + h_r).sigmoid() * h_n).tanh(), (i_z + h_z).sigmoid()
    return torch.lerp(new, state, keep), state.new_zeros(0)


NOT_ON_CPU = {"_thnn_fused_gru_cell": _gru_cell}


def _refuse_mixing(name: str, values: list[Tensor]) -> None:
    there = any(isinstance(x, Pretend) for x in values)
    for x in values:
        if there and not (isinstance(x, Pretend) or not x.ndim or name in INDEXED):
            raise RuntimeError(
                f"{name}: expected all tensors on one device, found {NAME} and a CPU tensor "
                f"{tuple(x.shape)} at {_line()}"
            )


def _count_index(indices: Any) -> None:
    """A boolean index asks how many are set; one from the CPU is uploaded."""
    for index in indices:
        if index is None:
            continue
        if index.dtype in (torch.bool, torch.uint8):
            WAITS.add("sync")
        if not isinstance(index, Pretend):
            WAITS.add("upload")


def _copied(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    if name == "_to_copy":
        source, target = args[0], kwargs.get("device")
        kind = source.device.type if target is None else torch.device(target).type
        _count_copy(source, kind, bool(kwargs.get("non_blocking")))
        held = source.held if isinstance(source, Pretend) else source
        options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
        found = func(held, **options)
        if found is held or found.data_ptr() == held.data_ptr():
            found = held.clone()
        return Pretend(found) if kind == NAME else found
    into, source = args[0], args[1]
    _count_copy(source, into.device.type, bool(args[2]) if len(args) > 2 else False)
    a, b = (x.held if isinstance(x, Pretend) else x for x in (into, source))
    a.copy_(b)
    into.made = present().stamp()
    return into


def _count_copy(source: Tensor, kind: str, non_blocking: bool) -> None:
    if isinstance(source, Pretend):
        if kind != NAME:
            WAITS.add("sync")
    elif (
        kind == NAME and source.ndim and source.numel() and not (non_blocking and is_pinned(source))
    ):
        WAITS.add("upload")


PINNED = "_pretend_pinned"


def is_pinned(x: Tensor) -> bool:
    """Whether the product asked for page-locked memory for this tensor."""
    return bool(getattr(x, PINNED, False)) or (x._base is not None and is_pinned(x._base))


def pin(x: Tensor) -> Tensor:
    """Stands for `Tensor.pin_memory`."""
    copy = x.clone()
    setattr(copy, PINNED, True)
    return copy


class _Backend(_DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def set_device(self, device: Any) -> None:
        pass

    def synchronize(self, device: Any = None) -> None:
        WAITS.add("sync")

    Stream = Stream
    stream = staticmethod(entered)
    current_stream = staticmethod(present)


def _factory(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    func = getattr(getattr(aten, packet), overload or "default")

    def made(*args: Any, **kwargs: Any) -> Any:
        kwargs = kwargs | {"device": torch.device("cpu"), "pin_memory": False}
        return Pretend(func(*args, **kwargs))

    return made


def dense_flex(q: Tensor, k: Tensor, v: Tensor, block_mask: Any, scale: float) -> Tensor:
    """FlexAttention's answer by a dense mask [1, heads, size, d], with a backward pass."""
    size = q.shape[2]
    place = torch.arange(size, device=q.device)
    mask = block_mask.mask_mod(place, place, place[:, None], place)
    scores = (q @ k.mT) * scale
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ v


def _no_grad(mode: Any = True) -> Any:
    if callable(mode):
        return torch.no_grad()(mode)
    return torch.no_grad() if mode else nullcontext()


def _tensor(data: Any, *, device: Any = None, **options: Any) -> Tensor:
    made = REAL_TENSOR(data, **options)
    return made if device is None else made.to(device)


REAL_TENSOR, REAL_EMPTY = torch.tensor, torch.empty
LIBRARY = torch.library.Library("aten", "IMPL")


def pytest_configure() -> None:
    """Registers the device; as a plugin, before a test file imports pjepa."""
    torch.inference_mode = _no_grad  # type: ignore[misc, assignment]
    torch.tensor = _tensor
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
    for name in FACTORIES:
        LIBRARY.impl(name, _factory(name), "PrivateUse1")
    from pjepa.ui import transfer

    transfer.host_buffer = lambda shape, dtype, device: pin(REAL_EMPTY(shape, dtype=dtype))
    transfer.pinned = lambda x, device: x if is_pinned(x) else pin(x)
    from pjepa.model import flex

    flex.is_usable = lambda x: x.device.type == NAME  # type: ignore[assignment]
    flex.compiled = lambda: dense_flex  # type: ignore[assignment]
