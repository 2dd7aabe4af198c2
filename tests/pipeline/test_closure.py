"""dvc.yaml names the code each stage runs: no more, no less (DVC does not check it, dvc#9195)."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from dvc.utils.serialize import modify_yaml

ROOT = Path(__file__).resolve().parents[2]
PARAMS = ROOT / "params.yaml"
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]

# Modules that cannot change a byte of an artifact; what only they import is not followed.
HARMLESS = {
    "pjepa/__init__.py": "lazy names for people; no stage imports them (checked below)",
    "pjepa/device.py": "checks that a device can be used: it can only stop a run",
    "pjepa/errors.py": "an exception class: it can only end a run",
    "pjepa/features/stream.py": "incremental encoding for live use; no stage streams",
    "pjepa/progress.py": "lines and bars on stderr",
    "pjepa/stage.py": "checks params and turns errors into one line",
    "pjepa/config/params.py": "validates all sections: it can only stop a run",
}


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def is_empty(file: str) -> bool:
    """True for an `__init__.py` that holds at most a docstring."""
    body = tree(file).body
    return not body or (len(body) == 1 and ast.get_docstring(tree(file)) is not None)


def module_file(module: str) -> str | None:
    """The file of a module of this project, relative to its root."""
    path = Path(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if (ROOT / candidate).is_file():
            return candidate.as_posix()
    return None


def with_parents(module: str) -> set[str]:
    """The files that importing `module` runs: the module and the packages around it."""
    parts = module.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return {file for name in names if (file := module_file(name))}


def imported(file: str) -> set[str]:
    """Project files that `file` imports anywhere, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: write relative imports in full"
            base = node.module or ""
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            lazy = [name for name in names[1:] if base == "pjepa" and not module_file(name)]
            assert not lazy, f"{file}: import {lazy[0]} from its own module, so that it is tracked"
        else:
            continue
        for name in names:
            if name.split(".")[0] in ("pjepa", "stages"):
                found |= with_parents(name)
    return found


def closure(file: str) -> set[str]:
    """Every project file that running `file` can reach and that could change its outs."""
    found, queue = {file}, [file]
    while queue:
        for other in imported(queue.pop()) - found - set(HARMLESS):
            found.add(other)
            queue.append(other)
    return {f for f in found if not (f.endswith("__init__.py") and is_empty(f))}


def declared(stage: str) -> set[str]:
    """The Python files that the stage's `deps` name, folders expanded."""
    found: set[str] = set()
    for dep in STAGES[stage]["deps"]:
        path = ROOT / dep
        if dep.endswith(".py"):
            found.add(dep)
        elif dep.startswith(("pjepa", "stages")):
            found |= {f.relative_to(ROOT).as_posix() for f in path.rglob("*.py")}
    return {f for f in found if not ((ROOT / f).is_file() and f in HARMLESS)}


@pytest.mark.parametrize("stage", STAGES)
def test_deps_are_the_import_closure(stage: str) -> None:
    needed = closure(f"stages/{stage}.py")
    named = {f for f in declared(stage) if not (f.endswith("__init__.py") and is_empty(f))}
    missing = "".join(f"\n    - {f}" for f in sorted(needed - named))
    extra = "".join(f"\n    - {f}" for f in sorted(named - needed))
    assert needed == named, (
        f"dvc.yaml, stage {stage}: "
        + (f"add to deps:{missing}\n" if missing else "")
        + (f"remove from deps:{extra}\n" if extra else "")
    )


@pytest.mark.parametrize("stage", STAGES)
def test_listed_files_exist_and_none_is_listed_twice(stage: str) -> None:
    deps = STAGES[stage]["deps"]
    assert len(deps) == len(set(deps))
    code = [d for d in deps if d.startswith(("pjepa/", "stages/"))]
    assert [d for d in code if not (ROOT / d).exists()] == []


def test_every_stage_has_its_module_and_a_description() -> None:
    modules = {f.stem for f in (ROOT / "stages").glob("*.py")} - {"__init__"}
    assert modules == set(STAGES)
    assert all(stage["desc"] for stage in STAGES.values())


@pytest.mark.parametrize("stage", STAGES)
def test_command_runs_the_module_of_the_same_name(stage: str) -> None:
    """`python -m` puts the working folder first: queued experiments run their own code."""
    arguments = " ${item.probe} ${item.representation}" if stage == "probe" else ""
    assert STAGES[stage]["cmd"] == f"python -m stages.{stage}{arguments}"


def test_no_out_switches_the_run_cache_off() -> None:
    outs = [o for stage in STAGES.values() for o in stage["outs"] if isinstance(o, dict)]
    options = {key for out in outs for value in out.values() for key in value}
    assert options <= {"push"}


def test_params_sections_are_those_the_stages_track() -> None:
    tracked = {name for stage in STAGES.values() for name in stage["params"]}
    assert {name.split(".")[0] for name in tracked} == set(yaml.safe_load(PARAMS.read_text()))
    assert "probe" not in tracked, "a cell tracks its own probe's section only"


def test_one_parameter_is_a_one_line_diff(tmp_path: Path) -> None:
    """`dvc exp run -S` rewrites params.yaml: everything else must come out byte for byte."""
    copy = tmp_path / "params.yaml"
    copy.write_bytes(PARAMS.read_bytes())
    with modify_yaml(copy):
        pass
    assert copy.read_bytes() == PARAMS.read_bytes()


def test_params_are_written_plainly() -> None:
    text = PARAMS.read_text()
    assert not re.search(r"""["'\[\]{}]|\bnull\b|~|:\s*$\n(?!\s)""", text, re.MULTILINE)
