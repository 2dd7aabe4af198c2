"""What every section of params.yaml shares: frozen, strict, and readable errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import annotated_types
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from pjepa.errors import InputError
from pjepa.paths import PARAMS

SectionType = TypeVar("SectionType", bound="Section")
BOUNDS = {
    annotated_types.Gt: (">", "gt"),
    annotated_types.Ge: (">=", "ge"),
    annotated_types.Lt: ("<", "lt"),
    annotated_types.Le: ("<=", "le"),
}


class Section(BaseModel):
    """One section of params.yaml. A misspelt key is an error, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class _Float12(yaml.SafeLoader):
    """YAML 1.2 floats, so that `1e-4` is a number here as it is for DVC."""


_Float12.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    __import__("re").compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789."),
)


def read_params(path: Path = PARAMS) -> dict[str, Any]:
    """params.yaml as plain values."""
    try:
        values = yaml.load(path.read_text(), Loader=_Float12)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run inside the project folder") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected sections such as `data:`, found {values!r}")
    return values


def read_section(
    kind: type[SectionType], name: str, values: dict[str, Any] | None = None
) -> SectionType:
    """One validated section; `name` may be dotted (`probe.linear`)."""
    value: Any = read_params() if values is None else values
    for part in name.split("."):
        value = (value.get(part) if isinstance(value, dict) else None) or {}
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise InputError(one_line(error, kind, name)) from None


def one_line(error: ValidationError, kind: type[BaseModel], name: str = "") -> str:
    """The first fault of a validation error: parameter, value, what is allowed."""
    fault = error.errors()[0]
    place = ".".join([name, *map(str, fault["loc"])]).strip(".")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if fault["type"] == "extra_forbidden":
        return f"{PARAMS}: {place}: unknown parameter{_closest(kind, fault['loc'])}{more}"
    text = fault["msg"].removeprefix("Value error, ")
    allowed = _allowed(kind, fault["loc"])
    value = "" if isinstance(fault["input"], dict) else f" = {fault['input']!r}"
    return f"{PARAMS}: {place}{value}: {text}{allowed}{more}"


def _field(kind: type[BaseModel], loc: tuple[int | str, ...]) -> FieldInfo | None:
    field: FieldInfo | None = None
    owner: Any = kind
    for part in loc:
        fields = getattr(owner, "model_fields", {})
        if part not in fields:
            return field
        field = fields[part]
        owner = field.annotation
    return field


def _allowed(kind: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    field = _field(kind, loc)
    if field is None:
        return ""
    bounds = [
        f"{sign} {getattr(mark, attribute)}"
        for mark in field.metadata
        for cls, (sign, attribute) in BOUNDS.items()
        if isinstance(mark, cls)
    ]
    return f"; allowed: {' and '.join(bounds)}" if bounds else ""


def _closest(kind: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    from difflib import get_close_matches

    owner: Any = kind
    for part in loc[:-1]:
        field = getattr(owner, "model_fields", {}).get(part)
        owner = field.annotation if field else None
    names = list(getattr(owner, "model_fields", {}))
    close = get_close_matches(str(loc[-1]), names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(names)}"
