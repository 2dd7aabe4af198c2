"""dvc.yaml names the code each stage runs (DVC does not check it, dvc#9195)."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import yaml

from pjepa.probes import probe_names
from tests.pipeline.imports import ROOT, imported, is_empty

PARAMS = ROOT / "params.yaml"
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]

# Code that cannot change a byte of an artifact; what only it imports is not followed.
HARMLESS = {
    "pjepa/__init__.py": "lazy names for people; no stage imports them (checked below)",
    "pjepa/live": "streaming and prediction for people; no stage runs it",
    "pjepa/probes/__init__.py": "the names of the probes",
    "pjepa/storage": "how files are read, survive kills and arrive; it decides when, not what",
    "pjepa/tools": "checks params, names paths, turns errors into one line",
    "pjepa/ui": "lines and bars on stderr, errors, checks that can only stop a run",
}

# Tracked though not imported: the price of naming folders. Each is cheap, or changes with the rest.
OVER_TRACKED = {
    "pjepa/core": "small and rarely edited",
    "pjepa/metrics": "the numbers of a cell come from here",
    "pjepa/model": "whoever edits the method trains again, and everything else follows",
    "pjepa/nn": "small and rarely edited",
    "pjepa/probes/base": "select and curve fit the linear probe, which shares it",
    "pjepa/probes/linear": "the same",
    "pjepa/probes/ltcontext": "LT-Causal is built from it; matrix cells have one deps list",
    "pjepa/streams": "small and rarely edited",
    "pjepa/video": "listing files stands beside reading them",
}


def harmless(file: str) -> bool:
    return any(file == name or file.startswith(f"{name}/") for name in HARMLESS)


def closure(*files: str) -> set[str]:
    """Every project file that running `files` can reach and that could change outs."""
    found, queue = set(files), list(files)
    while queue:
        for other in imported(queue.pop()) - found:
            if not harmless(other):
                found.add(other)
                queue.append(other)
    return found


def needed(stage: str, probe: str | None = None) -> set[str]:
    """The closure of a stage; a cell also loads the modules of its probe by name."""
    loaded = [f"pjepa/probes/{probe}/{part}.py" for part in ("config", "probe")] if probe else []
    return closure(f"stages/{stage}.py", *loaded)


def code_deps(stage: str, probe: str | None = None) -> list[str]:
    deps = [dep.replace("${item.probe}", probe or "") for dep in STAGES[stage]["deps"]]
    return [dep for dep in deps if dep.startswith(("pjepa/", "stages/"))]


def declared(deps: list[str]) -> set[str]:
    """The Python files that deps name, folders expanded."""
    files = chain.from_iterable(
        [dep] if dep.endswith(".py") else (f.as_posix() for f in (ROOT / dep).rglob("*.py"))
        for dep in deps
    )
    names = {Path(f).relative_to(ROOT).as_posix() if f.startswith("/") else f for f in files}
    return {f for f in names if not (f.endswith("__init__.py") and is_empty(f))}


CASES = [(stage, None) for stage in STAGES if stage != "probe"]
CASES += [("probe", name) for name in probe_names()]


@pytest.mark.parametrize(("stage", "probe"), CASES)
def test_everything_a_stage_runs_is_declared(stage: str, probe: str | None) -> None:
    missing = sorted(needed(stage, probe) - declared(code_deps(stage, probe)))
    assert missing == [], f"dvc.yaml, stage {stage}: add to deps: {missing}"


@pytest.mark.parametrize(("stage", "probe"), CASES)
def test_nothing_is_declared_without_need(stage: str, probe: str | None) -> None:
    """A dep that no closure reaches must go; a folder reached in part needs a reason."""
    reached, deps = needed(stage, probe), code_deps(stage, probe)
    assert len(deps) == len(set(deps))
    for dep in deps:
        files = declared([dep])
        unused = files - reached
        allowed = any(dep == name or dep.startswith(f"{name}/") for name in OVER_TRACKED)
        if not files & reached and not (probe and allowed):
            raise AssertionError(f"dvc.yaml, stage {stage}: remove {dep}")
        elif unused:
            assert allowed, f"dvc.yaml, stage {stage}: {dep} is reached only in part: {unused}"


@pytest.mark.parametrize("name", probe_names())
def test_no_probe_imports_another(name: str) -> None:
    """But LT-Causal, which is LTContext made causal."""
    mine = {name, "ltcontext"} if name == "ltcausal" else {name}
    others = {f"pjepa/probes/{other}/" for other in set(probe_names()) - mine}
    reached = needed("probe", name)
    assert [f for f in reached if any(f.startswith(other) for other in others)] == []


def test_the_pipeline_file_stays_reviewable() -> None:
    deps = [dep for stage in STAGES for dep in code_deps(stage, "linear")]
    assert len(deps) <= 90
    assert len((ROOT / "dvc.yaml").read_text().splitlines()) <= 340


def test_editing_harmless_code_makes_no_stage_stale() -> None:
    """Not even a comment, for DVC compares bytes."""
    for stage in STAGES:
        assert [file for file in declared(code_deps(stage, "linear")) if harmless(file)] == []


def test_every_stage_runs_the_module_of_its_name_and_has_a_description() -> None:
    """`python -m` puts the working folder first: queued experiments run their own code."""
    assert {f.stem for f in (ROOT / "stages").glob("*.py")} - {"__init__"} == set(STAGES)
    for name, stage in STAGES.items():
        arguments = " ${item.probe} ${item.representation}" if name == "probe" else ""
        assert stage["cmd"] == f"python -m stages.{name}{arguments}"
        assert stage["desc"]


def test_no_out_switches_the_run_cache_off() -> None:
    outs = [o for stage in STAGES.values() for o in stage["outs"] if isinstance(o, dict)]
    options = {key for out in outs for value in out.values() for key in value}
    assert options <= {"push"}


def test_params_sections_are_those_the_stages_track() -> None:
    tracked = {name for stage in STAGES.values() for name in stage["params"]}
    sections = set(yaml.safe_load(PARAMS.read_text()))
    assert {name.split(".")[0] for name in tracked} == sections - {"machine"}
    assert "probe" not in tracked, "a cell tracks its own probe's section only"
