"""The whole of params.yaml, validated before any stage starts its work.

It can only stop a run, never change an artifact, so stages do not list it in `deps`.
"""

from __future__ import annotations

from pathlib import PurePath

from pydantic import Field, ValidationError, model_validator

from pjepa.config.cells import CellsConfig
from pjepa.config.controls import ControlsConfig
from pjepa.config.curve import CurveConfig
from pjepa.config.data import DataConfig
from pjepa.config.features import FeaturesConfig
from pjepa.config.patches import PatchesConfig
from pjepa.config.pjepa import PjepaConfig
from pjepa.config.pooler import PoolerConfig
from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.config.report import ReportConfig
from pjepa.config.section import Section, one_line, read_params
from pjepa.config.select import SelectConfig
from pjepa.config.tokens import TokensConfig
from pjepa.config.trained import (
    AttentiveConfig,
    FactProbeConfig,
    ForegroundConfig,
    LTCausalProbeConfig,
    LTContextProbeConfig,
)
from pjepa.errors import InputError


class ProbeSections(Section):
    common: ProbeCommonConfig = ProbeCommonConfig()
    linear: LinearConfig = LinearConfig()
    foreground: ForegroundConfig = ForegroundConfig()
    attentive: AttentiveConfig = AttentiveConfig()
    ltcontext: LTContextProbeConfig = LTContextProbeConfig()
    ltcausal: LTCausalProbeConfig = LTCausalProbeConfig()
    fact: FactProbeConfig = FactProbeConfig()


class Params(Section):
    """Mirrors params.yaml 1:1; the defaults are the paper's."""

    data: DataConfig = DataConfig()
    patches: PatchesConfig = PatchesConfig()
    pooler: PoolerConfig = PoolerConfig()
    tokens: TokensConfig = TokensConfig()
    pjepa: PjepaConfig = PjepaConfig()
    select: SelectConfig = SelectConfig()
    curve: CurveConfig = CurveConfig()
    controls: ControlsConfig = ControlsConfig()
    features: FeaturesConfig = FeaturesConfig()
    probe: ProbeSections = Field(default_factory=ProbeSections)
    cells: CellsConfig = CellsConfig()
    report: ReportConfig = ReportConfig()

    @model_validator(mode="after")
    def tokens_from_steps(self) -> Params:
        if self.data.ships_features:
            return self  # nothing is encoded
        tubelet, per_step = self.patches.tubelet, self.pooler.per_step
        wanted = tubelet * self.tokens.fps / per_step
        if abs(self.patches.fps - wanted) > 1e-9:
            share = f" / {per_step}" if per_step > 1 else ""
            count = f"{per_step} tokens" if per_step > 1 else "one token"
            raise ValueError(
                f"patches.fps {self.patches.fps} must be {tubelet} x tokens.fps{share} ({wanted}): "
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
    """Every section at once, so that a typo in the last stage stops the first."""
    try:
        return Params.model_validate(read_params())
    except ValidationError as error:
        raise InputError(one_line(error, Params)) from None
