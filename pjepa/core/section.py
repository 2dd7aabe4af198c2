"""The base of every section of params.yaml: frozen, strict, with readable errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import annotated_types
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from pjepa.core.tables import PARAMS
from pjepa.core.text import did_you_mean
from pjepa.storage.reading import read_yaml
from pjepa.ui.console import InputError

SectionType = TypeVar("SectionType", bound="Section")
BOUNDS = {
    annotated_types.Gt: (">", "gt"),
    annotated_types.Ge: (">=", "ge"),
    annotated_types.Lt: ("<", "lt"),
    annotated_types.Le: ("<=", "le"),
}


class Section(BaseModel):
    """One section of params.yaml. A misspelt key is an error, never ignored.

    `tuned` are the fields that people change: params.yaml always shows them. The others are
    documented where they are declared, and are in params.yaml where they differ from the default
    (`dvc exp run -S '+section.key=value'` sets one).
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )
    purpose: ClassVar[str] = ""  # one sentence, written above the section in params.yaml
    tuned: ClassVar[tuple[str, ...]] = ()

    def always_shown(self) -> tuple[str, ...]:
        """Return the fields that are always written; for a nested section, all of them."""
        return self.tuned

    @classmethod
    def from_other_sections(
        cls, name: str, value: dict[str, Any], params: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the values that the section `name` takes from other parts of params."""
        return {}


class _Float12(yaml.SafeLoader):
    """YAML 1.2 floats, so that `1e-4` is a number here as it is for DVC."""


_Float12.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789."),
)


def read_params(path: Path = PARAMS) -> dict[str, Any]:
    """Return params.yaml as plain values."""
    values = read_yaml(path, _Float12)
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected sections such as `data:`, found {values!r}")
    return values


def read_section(
    kind: type[SectionType], name: str, values: dict[str, Any] | None = None
) -> SectionType:
    """Return one validated section; `name` may be dotted (`probe.linear`)."""
    value: Any = read_params() if values is None else values
    params = value
    for part in name.split("."):
        value = (value.get(part) if isinstance(value, dict) else None) or {}
    if isinstance(value, dict):
        value = {**value, **kind.from_other_sections(name, value, params)}
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{PARAMS}: {first_fault(error, kind, name)}") from None


def first_fault(error: ValidationError, kind: type[BaseModel], name: str = "") -> str:
    """Return the first fault of a validation error: parameter, value, what is allowed."""
    fault = error.errors()[0]
    where = ".".join([name, *map(str, fault["loc"])]).strip(".")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if fault["type"] == "extra_forbidden":
        return f"{where}: unknown parameter{_closest(kind, fault['loc'])}{more}"
    text = fault["msg"].removeprefix("Value error, ") + _allowed(kind, fault["loc"]) + more
    if not where:  # a fault of all values together
        return text
    value = "" if isinstance(fault["input"], dict) else f" = {fault['input']!r}"
    return f"{where}{value}: {text}"


def _field(kind: type[BaseModel], loc: tuple[int | str, ...]) -> FieldInfo | None:
    """Return the innermost field on the way of a fault."""
    field: FieldInfo | None = None
    owner: Any = kind
    for name in loc:
        fields = getattr(owner, "model_fields", {})
        if name not in fields:
            return field
        field = fields[name]
        owner = field.annotation
    return field


def _allowed(kind: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    field = _field(kind, loc)
    bounds = [
        f"{sign} {getattr(mark, attribute)}"
        for mark in ([] if field is None else field.metadata)
        for bound, (sign, attribute) in BOUNDS.items()
        if isinstance(mark, bound)
    ]
    return f"; allowed: {' and '.join(bounds)}" if bounds else ""


def _closest(kind: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    owner = _field(kind, loc[:-1])
    names = list(getattr(kind if owner is None else owner.annotation, "model_fields", {}))
    return did_you_mean(str(loc[-1]), names, f"; known: {', '.join(names)}")


# Values that params, code and the command line choose from; importing them costs nothing.

ReaderName = Literal["auto", "decord", "pyav"]
Resampler = Literal["cv2", "antialias"]
CropView = Literal["center", "first", "middle", "last"]
WindowScope = Literal["segment", "take"]
WindowMode = Literal["block", "trailing"]
SegmentKind = Literal["annotated", "fixed", "found"]
SegmentChoice = Literal["auto", "found", "fixed"]  # where nobody annotates segments
FeatureFormat = Literal["npy", "npy-dt", "safetensors", "parquet"]
