"""Every command in README and docs: its options are parsed, its names exist."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest
import typer.main
from dvc.cli import parse_args

from pjepa.tools.cli import app
from pjepa.tools.presets import preset_names

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(page: Path) -> list[str]:
    """The lines of the page's shell blocks, joined where they go on, without comments."""
    found: list[str] = []
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    for block in (text for kind, text in blocks if kind in ("", "bash", "sh", "console")):
        text = re.sub(r"\\\n\s*", " ", block)
        lines = [re.sub(r"\s+#.*$", "", line).strip() for line in text.splitlines()]
        found += [part.strip() for line in lines for part in re.split(r"&&|\|(?= )|;", line)]
    return [line for line in found if line and not line.startswith("#")]


CASES = [(page.name, line) for page in PAGES for line in commands(page)]
OURS = [
    case for case in CASES if re.match(r"(PJEPA_\w+=\S+ )*(pjepa|dvc|make|python -m) ", case[1])
]


def parse_pjepa(words: list[str]) -> None:
    """Raises what click raises on an unknown command or option; nothing runs."""
    root = typer.main.get_command(app)
    context = root.make_context("pjepa", words, resilient_parsing=False)
    name, command, rest = root.resolve_command(context, [*context._protected_args, *context.args])
    if hasattr(command, "commands"):
        inner = command.make_context(name, list(rest), parent=context)
        name, command, rest = command.resolve_command(inner, [*inner._protected_args, *inner.args])
    command.make_context(name, list(rest), parent=context)


def test_there_are_commands_to_look_at() -> None:
    assert len(OURS) > 60
    assert {"README.md", "extraction.md", "data.md", "live.md", "team.md"} <= {p for p, _ in OURS}


@pytest.mark.parametrize("line", ["extract --nope", "nope", "data nope", "publish --fodler x"])
def test_a_wrong_command_would_be_found(line: str) -> None:
    with pytest.raises(Exception, match=r"[Nn]o such"):
        parse_pjepa(line.split())


@pytest.mark.parametrize(("page", "line"), sorted(set(OURS)))
def test_a_command_is_one_that_exists(page: str, line: str) -> None:
    words = [w for w in shlex.split(line) if not re.match(r"PJEPA_\w+=", w)]
    words = words[: next((i for i, w in enumerate(words) if w in (">", "<", "2>", "&")), None)]
    if words[0] == "pjepa":
        if words[1:2] == ["preset"] and len(words) > 2 and words[2].islower():
            assert words[2].startswith("-") or words[2] in preset_names(ROOT / "presets")
        with contextlib.suppress(typer.Exit):  # --version ends there
            parse_pjepa(words[1:])
    elif words[0] == "dvc":
        parse_args(words[1:])
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    else:
        module = ROOT / words[2].replace(".", "/")
        external = words[2] in ("pytest", "pip", "pjepa", "venv")
        assert external or module.with_suffix(".py").exists() or module.is_dir(), words[2]


def test_readme_is_short_and_names_what_a_stranger_needs() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    first = text[: text.index("## I have videos")]
    for needed in ("arxiv.org", "github.com/FelTris", "docs/images/", "make repro"):
        assert needed in first
    for needed in ("block_causal", "What does not hold", "What is not known", "Same name"):
        assert needed in text
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (ROOT / target).exists(), target
