"""The whole of params.yaml, validated before any stage starts its work.

It can only stop a run, never change an artifact, so stages do not list it in `deps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import PurePath
from typing import Any, ClassVar

from pydantic import Field, ValidationError, create_model, model_validator

from pjepa.core.machine import MachineConfig, MachineSection
from pjepa.core.section import Section, first_fault, read_params
from pjepa.core.tables import PARAMS
from pjepa.features.config import ControlsConfig, FeaturesConfig
from pjepa.patches.config import PatchesConfig
from pjepa.pooler.config import PoolerConfig
from pjepa.pretrain.config import PjepaConfig
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.report.config import PROBES, CellsConfig, ReportConfig
from pjepa.select.config import CurveConfig, SelectConfig
from pjepa.takes.config import DataConfig
from pjepa.tokens.config import TokensConfig
from pjepa.ui.console import InputError


def _probe_sections() -> type[Section]:
    """Return `probe`: what all share, and a section for each probe there is."""
    kinds = {name: import_module(f"pjepa.probes.{name}.config").CONFIG for name in PROBES}
    sections: dict[str, Any] = {"common": ProbeCommonConfig, **kinds}
    fields: dict[str, Any] = {name: (kind, kind()) for name, kind in sections.items()}
    kind = create_model("ProbeSections", __base__=Section, **fields)
    kind.purpose = ProbeCommonConfig.purpose
    return kind


ProbeSections = _probe_sections()


class Params(Section):
    """All sections of params.yaml; the defaults are the paper's."""

    tuned: ClassVar[tuple[str, ...]] = ("threads",)

    machine: MachineConfig = MachineConfig()
    threads: int = Field(2, ge=1)  # of every stage but patches: their number changes rounding
    data: DataConfig = DataConfig()
    patches: PatchesConfig = PatchesConfig()
    pooler: PoolerConfig = PoolerConfig()
    tokens: TokensConfig = TokensConfig()
    pjepa: PjepaConfig = PjepaConfig()
    select: SelectConfig = SelectConfig()
    curve: CurveConfig = CurveConfig()
    controls: ControlsConfig = ControlsConfig()
    features: FeaturesConfig = FeaturesConfig()
    probe: ProbeSections = Field(default_factory=ProbeSections)  # type: ignore[valid-type]
    cells: CellsConfig = CellsConfig()
    report: ReportConfig = ReportConfig()

    @model_validator(mode="after")
    def tokens_from_steps(self) -> Params:
        if self.data.ships_features:
            return self  # nothing is encoded
        tubelet, per_step = self.patches.tubelet, self.pooler.per_step
        needed = tubelet * self.tokens.fps / per_step
        if abs(self.patches.fps - needed) > 1e-9:
            share = f" / {per_step}" if per_step > 1 else ""
            count = f"{per_step} tokens" if per_step > 1 else "one token"
            raise ValueError(
                f"patches.fps {self.patches.fps} must be {tubelet} x tokens.fps{share} ({needed}): "
                f"{count} per step of {tubelet} frame{'s' * (tubelet > 1)} of "
                f"{self.patches.backbone}"
            )
        return self

    @model_validator(mode="after")
    def no_machine_path(self) -> Params:
        name = PurePath(self.patches.checkpoint)
        if name.is_absolute() or ".." in name.parts or name.parts[:1] == ("~",):
            raise ValueError(
                f"patches.checkpoint {self.patches.checkpoint} is a path of one machine; put the "
                "file into the data root and write its name (docs/backbones.md)"
            )
        return self


def check_params() -> Params:
    """Return all of params.yaml, validated, so that a typo in the last stage stops the first."""
    values = read_params()
    for name, field in Params.model_fields.items():
        kind, value = field.annotation, values.get(name)
        if isinstance(kind, type) and issubclass(kind, MachineSection) and isinstance(value, dict):
            kind.refuse_machine_values(name, value)
    return validated(values)


def validated(values: Mapping[str, Any], where: object = PARAMS) -> Params:
    """Return the params of these values, or raise an error of one line that says where."""
    try:
        return Params.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{where}: {first_fault(error, Params)}") from None


def dotted(values: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return nested values as one level, by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= dotted(value, f"{section}{name}.")
        else:
            flat[f"{section}{name}"] = value
    return flat
