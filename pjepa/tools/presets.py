"""params.yaml as presets write it: the defaults, and on them what one preset changes.

The text is a fixed point of ruamel's round trip, which is how `dvc exp run -S` edits the file: an
experiment changes the lines it names and no others.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from importlib.resources import files
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter

from pjepa.core.section import Section, read_params
from pjepa.core.text import did_you_mean
from pjepa.storage.writing import atomic_file
from pjepa.tools.params import Params, validated
from pjepa.tools.paths import PARAMS
from pjepa.ui.console import InputError

PRESETS = Path("presets")
SHIPPED = Path(str(files("pjepa"))) / "presets"  # the same files, in an installed package
SMALL = 1e-3  # floats below are written as 1.0e-4


def preset_folder() -> Path:
    """Return the project's presets, or those of the package outside a clone."""
    return PRESETS if PRESETS.is_dir() else SHIPPED


def preset_names(folder: Path | None = None) -> list[str]:
    """Return the presets there are, sorted."""
    folder = folder or preset_folder()
    return sorted(path.stem for path in folder.glob("*.yaml"))


def preset_text(name: str, keep: Sequence[str] = (), folder: Path | None = None) -> str:
    """Return params.yaml for a preset; the sections in `keep` are those of the current file."""
    return params_text(preset_values(name, keep, folder))


def preset_values(name: str, keep: Sequence[str] = (), folder: Path | None = None) -> Params:
    """Return the defaults with a preset's changes and the current sections in `keep`."""
    folder = folder or preset_folder()
    names = preset_names(folder)
    if name not in names:
        hint = did_you_mean(name, names, f"; known: {', '.join(names) or 'none'}")
        raise InputError(f"preset {name!r}: no such preset in {folder}/{hint}")
    path = folder / f"{name}.yaml"
    changes = {**read_params(path), **_kept_sections(keep)}
    return validated(changes, f"{path} with the kept sections" if keep else path)


def params_text(values: Params) -> str:
    """Return the file for these values, a comment at the head of every section.

    The comment is below the section's name: DVC replaces whole lists, and with them a comment
    or an empty line that follows one.
    """
    lines = []
    for name, value in _shown(values).items():
        head, body = _yaml_text({name: value}).split("\n", 1)
        purpose = f"  # {getattr(values, name).purpose}\n" if body else ""
        lines.append(f"{head}\n{purpose}{body}")
    return "".join(lines)


def replaced_params(after: str, dry_run: bool) -> str:
    """Write params.yaml, unless it is a dry run; return a diff of what changes."""
    before = ""
    if PARAMS.exists():  # only to be shown: what is damaged is replaced
        before = PARAMS.read_text(encoding="utf-8", errors="replace")
    if before == after:
        return f"{PARAMS}: nothing to change\n"
    if not dry_run:
        with atomic_file(PARAMS) as partial:
            partial.write_text(after)
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    return "".join(unified_diff(*lines, f"{PARAMS} (before)", f"{PARAMS} (after)", n=1))


def _shown(section: Section) -> dict[str, Any]:
    """Return the values to write: those people tune, and those that differ from the default."""
    plain, always = section.model_dump(mode="json"), section.always_shown()
    values: dict[str, Any] = {}
    for name, value in plain.items():
        inner = getattr(section, name)
        if isinstance(inner, Section):
            inside = value if name in always else _shown(inner)
            values |= {name: inside} if inside else {}
        elif name in always or inner != type(section).model_fields[name].default:
            values[name] = value
    return values


def _kept_sections(keep: Sequence[str]) -> dict[str, Any]:
    unknown = [name for name in keep if name not in Params.model_fields]
    if unknown:
        sections = ", ".join(Params.model_fields)
        raise InputError(f"--keep {unknown[0]}: no such section; known: {sections}")
    present = read_params() if keep else {}
    return {name: present[name] for name in keep if name in present}


def _yaml_text(value: Mapping[str, Any]) -> str:
    stream = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.Representer = _ParamsRepresenter
    yaml.dump(value, stream)
    return stream.getvalue()


class _ParamsRepresenter(RoundTripRepresenter):
    """YAML with small floats as people write learning rates, read alike by YAML 1.1 and 1.2."""

    def represent_float(self, data: float) -> ScalarNode:
        if data == 0 or abs(data) >= SMALL:
            return super().represent_float(data)
        mantissa, exponent = _shortest(data)
        text = f"{mantissa}e{exponent}"
        return self.represent_scalar("tag:yaml.org,2002:float", text)


_ParamsRepresenter.add_representer(float, _ParamsRepresenter.represent_float)


def _shortest(data: float) -> tuple[str, int]:
    """Return mantissa (with a point) and exponent of the shortest text equal to `data`."""
    digits = next(n for n in range(18) if float(f"{data:.{n}e}") == data)
    mantissa, exponent = f"{data:.{max(digits, 1)}e}".split("e")
    return mantissa, int(exponent)
