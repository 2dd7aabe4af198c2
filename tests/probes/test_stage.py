"""`python -m stages.probe`: the probes it knows and the errors it gives."""

import sys

import pytest

from pjepa.report.config import PROBES, CellsConfig
from pjepa.tools.params import ProbeSections
from pjepa.ui.console import InputError
from stages.probe import run
from tests.probes.kinds import KINDS


@pytest.mark.parametrize("arguments", [[], ["linear"], ["nothing", "raw"], ["a", "b", "c"]])
def test_usage_is_one_line(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["probe", *arguments])
    with pytest.raises(InputError, match=r"usage: .*attentive\|fact\|foreground"):
        run()


def test_every_probe_has_a_section_and_a_name_in_cells() -> None:
    sections = set(ProbeSections.model_fields) - {"common"}
    assert sections == set(PROBES) == {"linear", *KINDS}
    for name, kind in KINDS.items():
        assert isinstance(getattr(ProbeSections(), name), kind.config)
    assert CellsConfig().probes == ("linear",)
    assert CellsConfig(probes=PROBES).probes == PROBES
    for wrong in (("raw",), ("linear", "linear")):
        with pytest.raises(ValueError, match=r"unknown: raw; known|repeated: linear"):
            CellsConfig(probes=wrong)
