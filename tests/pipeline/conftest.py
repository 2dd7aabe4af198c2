"""A project in which every stage has run, shared by the tests of one file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.copies import Copy


def first_run(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Where the first file of this run whose project is finished leaves the hashes of its outs.

    Test processes of one run share this; a run in a single process has no such place.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    return tmp_path_factory.getbasetemp().parent / f"{run}.json" if run else None


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which every stage has run once, committed."""
    copy = Copy(tmp_path_factory.mktemp("repro") / "first")
    copy.run("dvc", "repro")
    copy.commit()
    if place := first_run(tmp_path_factory):
        partial = place.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"folder": str(copy.folder), "hashes": copy.hashes()}))
        with contextlib.suppress(FileExistsError):
            os.link(partial, place)
    return copy


@pytest.fixture
def copy(finished: Copy) -> Iterator[Copy]:
    yield finished
    finished.restore()


@pytest.fixture
def hashes_of_another_run(finished: Copy, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The outs of the same project run elsewhere: by another test file, else here."""
    place = first_run(tmp_path_factory)
    if place and place.exists():
        first = json.loads(place.read_text())
        if first["folder"] != str(finished.folder):
            return first["hashes"]
    second = Copy(tmp_path_factory.mktemp("repro") / "second")
    second.run("dvc", "repro")
    return second.hashes()
