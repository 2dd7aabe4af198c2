"""The small stack that all tests of a session share."""

import pytest

from tests.live.world import make_outlook, make_project, make_video


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    return root, make_outlook(root, make_project(root)), make_video(root / "v/x.mp4", 20.3)
