"""No test depends on how fast or busy the machine is, nor on chance.

Property tests have no deadline, do not mind slow generation, and draw the same examples every time;
`--hypothesis-profile=explore` draws others. Nothing is forced to the disk. bf16 is computed without
AMX: virtual machines may offer it and stop at its first instruction.

Nothing that a function remembers outlives a test that replaced a part of the program: which test
files share a process depends on the load of the machine.

What `make fast` leaves out follows a rule: a test that runs all stages, a browser or another Python
(a stage, `pjepa`, `dvc`) is marked slow. The last part of the rule is held here.
"""

import os
import sys
from collections.abc import Generator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pjepa.storage.writing import SYNC
from pjepa.ui.device import WITHOUT_AMX

os.environ[SYNC] = "0"
os.environ.update(WITHOUT_AMX)
PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("explore", **PATIENT)
settings.register_profile("house", derandomize=True, database=None, **PATIENT)
settings.load_profile("house")

# Started first and in this order, so that none is left to run alone at the end.
LONGEST = (
    "pipeline/test_repro.py",
    "pipeline/test_repro_again.py",
    "pipeline/test_own_videos.py",
    "pipeline/test_sources.py",
    "pipeline/test_preset_runs.py",
    "pipeline/test_team.py",
    "pooler/test_stage.py",
    "pretrain/test_stage.py",
    "patches/test_timm_frames.py",
    "pretend/test_pretend.py",
    "browser/test_page.py",
)
CACHED = type(lru_cache(lambda: None))
is_fast = False  # the test that runs now


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; `make test` gives out files in this order."""
    place = {f"tests/{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.split("::")[0], len(place)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global is_fast
    is_fast = item.get_closest_marker("slow") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Clear the caches of pjepa after a test that may have filled them with a part replaced."""
    yield
    if "monkeypatch" in getattr(item, "fixturenames", ()):
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] == "pjepa":
                for part in vars(module).values():
                    if isinstance(part, CACHED):
                        part.cache_clear()


def refuse_python(event: str, arguments: tuple[Any, ...]) -> None:
    """Fail a test that starts Python and is not marked slow."""
    if event == "subprocess.Popen" and is_fast:
        name = Path(os.fsdecode(arguments[0])).name
        if name.startswith(("python", "dvc", "pjepa")):
            pytest.fail(f"starts {name}, which takes seconds to import: mark it slow")


sys.addaudithook(refuse_python)
