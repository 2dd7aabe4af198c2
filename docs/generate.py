"""Reference pages from the code: `python docs/generate.py` writes docs/reference/ (`make docs`).

params.md from the pydantic models, cli.md from typer; api.md names what mkdocstrings renders.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import typer.main

from pjepa.core.section import Section
from pjepa.tools.cli import app
from pjepa.tools.params import Params

OUT = Path(__file__).parent / "reference"
API = ("pjepa.model.encoder.ProcedureEncoder", "pjepa.model.stream.EncoderStream",
       "pjepa.model.forecast.Forecaster", "pjepa.streams.stream.read_stream",
       "pjepa.streams.stream.StreamReader", "pjepa.streams.stream.StreamWriter",
       "pjepa.streams.stream.Take", "pjepa.streams.provenance.StreamInfo")  # fmt: skip
LINK = re.compile(r"(?<!`)<[^>\n]+>")
TRAINING = "epochs lr optimizer weight_decay milestones"
LONG_TERM = (
    f"{TRAINING} stages layers width window stride dilation reduction heads dropout channel_masking"
)
# Where the paper gives a value or defines what a key chooses: section -> {place: keys}.
PAPER = {
    "patches": {"Sec. 3.1": "backbone window_scope"},
    "pooler": {"Sec. 3.1, Eq. 1": "kind queries"},
    "tokens": {"Sec. 3.1": "gaps", "Sec. 4": "fps"},
    "pjepa": {
        "Sec. 3.1": "project",
        "Sec. 3.2, Eq. 2": "loss_reduction",
        "Sec. 3.2, Eq. 3": "attention segments",
        "Sec. 3.2, 2D RoPE": "positions rope rope_segment rope_offset",
        "Sec. 4": "depth predictor_depth mask_ratio ema epochs lr gamma",
    },
    "select": {"Sec. 4": "by"},
    "probe.common": {"Table 3": "streaming", "Table 4": "label_fraction"},
    "probe.linear.paper": {"Supplement": "epochs lr weight_decay milestones gamma"},
    "probe.ltcontext": {"Supplement": f"{LONG_TERM} smoothing clip"},
    "probe.ltcausal": {"Supplement": LONG_TERM},
    "probe.fact": {
        "Supplement": "epochs lr optimizer milestones clip_grad blocks tokens channel_mask "
        "merge_weight hidden frame_dim frame_layers action_dim action_ffn action_layers "
        "action_heads",
    },
    "probe.attentive": {"Supplement": f"{TRAINING} window chunk width depth heads dropout"},
}


def main() -> None:
    """Write the three pages."""
    OUT.mkdir(exist_ok=True)
    (OUT / "params.md").write_text(params_page())
    (OUT / "cli.md").write_text(cli_page())
    (OUT / "api.md").write_text("# Python\n\n" + "\n\n".join(f"::: {name}" for name in API) + "\n")


def params_page() -> str:
    """Return every parameter with its type, default and comment, section by section."""
    head = (
        "# Parameters\n\nDefaults are the paper's where it gives a value; the column *paper* says "
        "where. `pjepa preset NAME` writes the **bold** keys into `params.yaml`. Add the others "
        "there, or set them with `dvc exp run -S '+section.key=value'`.\n"
    )
    return head + "".join(section_text(name, field.annotation) for name, field in _fields(Params))


def section_text(name: str, kind: Any) -> str:
    """Return a heading and a table for a section, and the same for the sections inside."""
    if not _is_section(kind):
        return f"\n## `{name}`\n\nDefault `{Params.model_fields[name].default}`.\n"
    notes, places, inner, rows = comments(kind), paper_places(name), [], []
    for key, field in _fields(kind):
        if _is_section(field.annotation):
            inner.append(section_text(f"{name}.{key}", field.annotation))
        else:
            shown = f"**`{key}`**" if key in kind.tuned else f"`{key}`"
            cells = [shown, _type(field), f"`{_default(field)}`", places.get(key, "")]
            rows.append(f"| {' | '.join([*cells, notes.get(key, '')])} |")
    head = "| key | type | default | paper | note |\n|---|---|---|---|---|\n"
    table = head + "\n".join(rows) if rows else ""
    text = _escaped(inspect.cleandoc(kind.__doc__ or ""))
    return f"\n## `{name}`\n\n{_escaped(kind.purpose)}\n\n{text}\n\n{table}\n" + "".join(inner)


def paper_places(section: str) -> dict[str, str]:
    """Return where the paper speaks of the keys of a section."""
    return {key: place for place, keys in PAPER.get(section, {}).items() for key in keys.split()}


def comments(kind: type[Section]) -> dict[str, str]:
    """Return the comment behind every field, here and in the classes it derives from."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not issubclass(base, Section) or base.__module__.startswith("pydantic"):
            continue
        try:
            lines = inspect.getsource(base).splitlines()
        except (OSError, TypeError):
            continue  # made by a function
        for line in lines:
            if match := re.match(r"    (\w+): .*?#\s(.*)$", line):
                found[match[1]] = _escaped(match[2]).replace("|", "\\|")
    return found


def cli_page() -> str:
    """Return every command with its help, arguments and options, in the panels of `pjepa -h`."""
    root = typer.main.get_command(app)
    parts = [f"# Commands\n\n{_escaped(inspect.cleandoc(root.help or ''))}\n\n"
             "`pjepa -h` lists the commands. Put `-q` and `-v` before the command.\n"]  # fmt: skip
    panel = ""
    for name in root.list_commands(None):  # type: ignore[attr-defined,arg-type]
        command = root.commands[name]  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None) or {"": command}
        if command.rich_help_panel != panel:
            panel = command.rich_help_panel
            parts.append(f"## {panel}\n")
        parts += [command_text(f"pjepa {name} {n}".rstrip(), one) for n, one in inner.items()]
    return "\n".join(parts)


def command_text(title: str, command: Any) -> str:
    """Return one command: help, then a row per argument and option."""
    rows = []
    for one in command.params:
        if one.name == "help":
            continue
        names = ", ".join(f"`{n}`" for n in (*one.opts, *one.secondary_opts))
        if one.param_type_name == "argument":
            names = f"`{one.metavar or one.name.upper()}`".replace("|", "\\|")
        text = _escaped(getattr(one, "help", "") or "").replace("|", "\\|")
        default = getattr(one.default, "value", one.default)
        shown = "" if default is None or callable(default) or default is False else f"`{default}`"
        rows.append(f"| {names} | {shown} | {text} |")
    table = "| option | default | |\n|---|---|---|\n" + "\n".join(rows) if rows else ""
    return f"### `{title}`\n\n{_escaped(inspect.cleandoc(command.help or ''))}\n\n{table}\n"


def _fields(kind: type[Section]) -> list[tuple[str, Any]]:
    return [(name, field) for name, field in kind.model_fields.items() if not field.exclude]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _type(field: Any) -> str:
    name = getattr(field.annotation, "__name__", None)
    if name in (None, "Literal", "Optional", "Union", "tuple") or "[" in str(field.annotation):
        name = str(field.annotation).replace("typing.", "")
    name = re.sub(r"Annotated\[(\w+), .*?\)\]\)?\]?", lambda m: m[1], name)
    name = re.sub(r"Literal\[(.*?)\]", lambda m: m[1].replace("'", ""), name)
    return f"`{name}`".replace("|", "\\|")


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    return str(list(value) if isinstance(value, tuple) else value).replace("|", "\\|")


def _escaped(text: str) -> str:
    return LINK.sub(lambda m: f"`{m[0]}`", text)


if __name__ == "__main__":
    main()
