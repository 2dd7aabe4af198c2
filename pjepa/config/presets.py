"""params.yaml as presets write it: the defaults, and on them what one preset changes.

The text is a fixed point of ruamel's round trip, which is how `dvc exp run -S` edits the file: an
experiment changes the lines it names and no others.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from difflib import get_close_matches, unified_diff
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter

from pjepa.config.params import Params
from pjepa.config.section import one_line, read_params
from pjepa.errors import InputError
from pjepa.paths import PARAMS

PRESETS = Path("presets")
SMALL = 1e-3  # floats below are written as 1.0e-4


def preset_names(folder: Path = PRESETS) -> list[str]:
    """The presets there are, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def preset_text(name: str, keep: Sequence[str] = (), folder: Path = PRESETS) -> str:
    """params.yaml for a preset; the sections in `keep` are those of the present file."""
    return params_text(preset_values(name, keep, folder))


def preset_values(name: str, keep: Sequence[str] = (), folder: Path = PRESETS) -> Params:
    """The defaults, what a preset changes, and the sections of the present file in `keep`."""
    known = preset_names(folder)
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}"
        raise InputError(f"preset {name!r}: no such preset in {folder}/; {hint}")
    path = folder / f"{name}.yaml"
    changes = {**read_params(path), **_kept_sections(keep)}
    try:
        return Params.model_validate(changes)
    except ValidationError as error:
        fault = one_line(error, Params).removeprefix(f"{PARAMS}: ")
        place = f"{path} with the kept sections" if keep else f"{path}"
        raise InputError(f"{place}: {fault}") from None


def params_text(values: Params) -> str:
    """The file for these values, a comment at the head of every section.

    The comment stands below the section's name: DVC replaces whole lists, and with them a comment
    or an empty line that follows one.
    """
    sections = values.model_dump(mode="json")
    texts = [_yaml_text({name: section}).split("\n", 1) for name, section in sections.items()]
    return "".join(
        f"{head}\n  # {_purpose(name)}\n{body}"
        for name, (head, body) in zip(sections, texts, strict=True)
    )


def text_difference(before: str, after: str) -> str:
    """A unified diff of two versions of params.yaml; empty where they are equal."""
    lines = unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"{PARAMS} (before)",
        f"{PARAMS} (after)",
        n=1,
    )
    return "".join(lines)


def _kept_sections(keep: Sequence[str]) -> dict[str, Any]:
    unknown = [name for name in keep if name not in Params.model_fields]
    if unknown:
        sections = ", ".join(Params.model_fields)
        raise InputError(f"--keep {unknown[0]}: no such section; known: {sections}")
    present = read_params() if keep else {}
    return {name: present[name] for name in keep if name in present}


def _purpose(section: str) -> str:
    """The first line of the section's module docstring, without the name it starts with."""
    head = (import_module(f"pjepa.config.{section}").__doc__ or "").splitlines()[0]
    purpose = head.removeprefix(f"`{section}`: ")
    return purpose[:1].upper() + purpose[1:]


def _yaml_text(value: Mapping[str, Any]) -> str:
    stream = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.Representer = _ParamsRepresenter
    yaml.dump(value, stream)
    return stream.getvalue()


class _ParamsRepresenter(RoundTripRepresenter):
    """Writes small floats as people write learning rates; YAML 1.1 and 1.2 read them alike."""

    def represent_float(self, data: float) -> ScalarNode:
        if data == 0 or abs(data) >= SMALL:
            return super().represent_float(data)
        mantissa, exponent = _shortest(data)
        text = f"{mantissa}e{exponent}"
        return self.represent_scalar("tag:yaml.org,2002:float", text)


_ParamsRepresenter.add_representer(float, _ParamsRepresenter.represent_float)


def _shortest(data: float) -> tuple[str, int]:
    """Mantissa with a point, and exponent, of the shortest text that reads back as `data`."""
    digits = next(n for n in range(18) if float(f"{data:.{n}e}") == data)
    mantissa, exponent = f"{data:.{max(digits, 1)}e}".split("e")
    return mantissa, int(exponent)
