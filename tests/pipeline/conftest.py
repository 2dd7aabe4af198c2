"""A project in which every stage has run, shared by the tests of one file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.copies import Copy


def hashes_file(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path | None:
    """Where a test file leaves the hashes of its outs for the others of this run of the tests.

    A run in a single process has no such place.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    return tmp_path_factory.getbasetemp().parent / f"{run}-{name}.json" if run else None


@pytest.fixture(scope="module")
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which every stage has run once, committed."""
    copy = Copy(tmp_path_factory.mktemp("repro") / "first")
    copy.run("dvc", "repro")
    copy.commit()
    if shared := hashes_file(tmp_path_factory, request.module.__name__):
        shared.write_text(json.dumps(copy.hashes()))
    return copy


@pytest.fixture
def copy(finished: Copy) -> Iterator[Copy]:
    yield finished
    finished.restore()


@pytest.fixture
def hashes_of_another_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The outs of the same project run elsewhere: by another test file, else here."""
    own = hashes_file(tmp_path_factory, request.module.__name__)
    others = own.parent.glob(f"{own.name.partition('-')[0]}-*.json") if own else ()
    for other in sorted(others):
        if other != own:
            found: dict[str, str] = json.loads(other.read_text())
            return found
    second = Copy(tmp_path_factory.mktemp("repro") / "second")
    second.run("dvc", "repro")
    return second.hashes()
