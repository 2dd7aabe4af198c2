"""`machine`: where work runs; no stage tracks it, local.yaml and PJEPA_DEVICE override it.

The machine is not part of the experiment: a stage's section gets these values when it is read, and
no section of params.yaml repeats them.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from pjepa.core.section import Section, first_fault
from pjepa.core.tables import PARAMS
from pjepa.storage.roots import LOCAL, local_values
from pjepa.ui.console import InputError

DEVICE, WORKERS = "PJEPA_DEVICE", "PJEPA_WORKERS"
Stream = Literal["auto", "device", "file"]


class MachineConfig(Section):
    """Where work runs: `device: auto` is CUDA where there is one; `workers` are processes and
    reading threads.
    """

    purpose: ClassVar[str] = (
        "Where work runs; no stage tracks it, local.yaml and PJEPA_DEVICE override it."
    )
    tuned: ClassVar[tuple[str, ...]] = ("device", "workers", "executor")

    device: str = "auto"
    workers: int = Field(2, ge=1)
    executor: Literal["local", "ray"] = "local"  # of `patches`
    stream: Stream = "auto"  # where tokens wait for `pretrain` on a GPU: the first with room


class MachineSection(Section):
    """A section whose device, workers and threads come from `machine` and `threads` of params.

    These fields are not written in the section itself, so a move to another machine is one edit
    and DVC sees no change of the experiment.
    """

    device: str = Field("cpu", exclude=True)
    workers: int = Field(1, ge=1, exclude=True)
    threads: int = Field(1, ge=1, exclude=True)

    def resume_key(self) -> dict[str, Any]:
        """Return what a resumed run must share: all settings, the threads, the kind of device."""
        here = {"threads": self.threads, "device": device_kind(self.device)}
        return {**self.model_dump(mode="json"), **here}

    def has_spare_core(self, processes: int = 1) -> bool:
        """Return whether on this CPU a second thread of every process has cores of its own."""
        if device_kind(self.device) != "cpu" or self.workers < 2:
            return False
        return cores() >= 2 * self.threads * processes

    @classmethod
    def machine_fields(cls) -> list[str]:
        """Return the fields that the section takes from `machine` and `threads`."""
        return [name for name, field in cls.model_fields.items() if field.exclude]

    @classmethod
    def refuse_machine_values(cls, name: str, value: dict[str, Any]) -> None:
        """Raise an error if the section holds a value of the machine; it says where it belongs."""
        for field in cls.machine_fields():
            if field in value:
                there = field if field == "threads" else f"machine.{field}"
                raise InputError(f"{PARAMS}: {name}.{field}: it is {there} now; move it there")

    @classmethod
    def from_other_sections(
        cls, name: str, value: dict[str, Any], params: dict[str, Any]
    ) -> dict[str, Any]:
        """Return device, workers and threads as `machine` and `threads` of params say."""
        cls.refuse_machine_values(name, value)
        try:
            machine = MachineConfig.model_validate(machine_values(params))
        except ValidationError as error:
            fault = first_fault(error, MachineConfig, "machine")
            raise InputError(f"{PARAMS}: {fault}") from None
        values = {**machine.model_dump(), "device": resolved_device(machine.device)}
        if "threads" in params:
            values["threads"] = params["threads"]
        return {field: values[field] for field in cls.machine_fields() if field in values}


def machine_values(params: dict[str, Any]) -> dict[str, Any]:
    """Return `machine` of params, overridden by local.yaml and the environment."""
    values = dict(params.get("machine") or {})
    local = local_values().get("machine") or {}
    if not isinstance(local, dict):
        raise InputError(f"{LOCAL}: machine: expected keys such as `device:`, found {local!r}")
    values |= local
    if device := os.environ.get(DEVICE):
        values["device"] = device
    if workers := os.environ.get(WORKERS):
        if not workers.isdigit():
            raise InputError(f"{WORKERS}={workers!r}: expected a number of processes")
        values["workers"] = int(workers)
    return values


def cores() -> int:
    """Return the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolved_device(name: str) -> str:
    """Return the device that `auto` means here; any other name unchanged."""
    if name != "auto":
        return name
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def device_kind(device: str) -> str:
    """Return the kind of a device, which numbers depend on: `cuda` for `cuda:1`."""
    return device.partition(":")[0]
