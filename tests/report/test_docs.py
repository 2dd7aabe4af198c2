"""What the docs point at exists: files, links, anchors; their generated tables can be rewritten."""

import re
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import pjepa
from benchmarks.demo_tables import BEGIN, END, report_tables, rewritten
from benchmarks.scaling import pretraining_flops, storage_table
from pjepa.pretrain.config import PjepaConfig
from pjepa.tools.cli.app import DATA, FEATURES, LOOK, MACHINE, ORDER, RUN, SHARE
from pjepa.ui.console import InputError

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_links_and_files_exist(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[\w-]+)?\)", text):
        assert (ROOT / "docs" / target).exists(), target
    for name in re.findall(r"`((?:pjepa|stages|benchmarks)/[\w/.]+)`", text):
        assert "NAME" in name or (ROOT / name).exists(), name
    for name in re.findall(r"(?<![\w/.-])((?:tests|examples|presets)/[\w/.-]*\.\w+)", text):
        assert (ROOT / name).exists(), name
    for module in re.findall(r"python -m (benchmarks\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module


def test_every_page_is_in_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    assert [page for page in PAGES if f" {page}.md" not in nav] == []


@pytest.fixture(scope="module")
def generate() -> dict[str, Any]:
    """The names of docs/generate.py, which is in no package."""
    return run_path(str(ROOT / "docs/generate.py"))


def test_the_reference_has_every_public_name_and_command(generate: dict[str, Any]) -> None:
    public = {name for name in pjepa.__all__ if not name.startswith("_")}
    assert public <= {path.rsplit(".", 1)[1] for path in generate["API"]}
    page = generate["cli_page"]()
    places = [page.index(f"## {panel}") for panel in (FEATURES, DATA, RUN, LOOK, SHARE, MACHINE)]
    assert places == sorted(places)
    for name in ORDER:
        assert f"### `pjepa {name}" in page


def test_every_parameter_the_paper_gives_is_on_its_page(generate: dict[str, Any]) -> None:
    page = generate["params_page"]()
    tables = dict(re.findall(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    for section in generate["PAPER"]:
        for key, place in generate["paper_places"](section).items():
            row = rf"\| \**`{key}`\** \|.*\| {re.escape(place)} \|"
            assert re.search(row, tables[section]), key
    assert "| **`mask_ratio`** | `float` | `0.8` | Sec. 4 |" in page
    assert "FieldInfo" not in page


def test_the_map_names_what_is_there() -> None:
    """Every class or function of the equation map is in one of the files of its row."""
    rows = (ROOT / "docs/notation.md").read_text().partition("## Where")[0].splitlines()
    for row in (line.split("|") for line in rows if line.count("|") == 4):
        files = [ROOT / name for name in re.findall(r"`(pjepa/[\w/]+\.py)`", row[3])]
        source = "\n".join(path.read_text() for path in files)
        for name in re.findall(r"`([A-Z]\w+|[a-z]+_[a-z_0-9]+)`", row[2]):
            if files and "." not in name:
                assert re.search(rf"\b{name}\b", source), (name, row[3])


def test_generated_tables_are_replaced_whole() -> None:
    report = (
        "# Results\n\nhow\n\n## Probe\n\n| a |\n\n#### All other differences\n\n| b |\n\n"
        "## Classes\n\n### One\n\nx\n\n## Two steps\n\n### Maps\n\nx\n"
    )
    assert report_tables(report) == ("how\n\n### Probe\n\n| a |\n\n### Two steps")
    page = f"before\n{BEGIN}\nold\n{END}\nafter"
    assert rewritten(page, "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter"
    with pytest.raises(InputError, match="expected the marks"):
        rewritten("no marks", "new")


def test_the_arithmetic_of_the_scaling_page() -> None:
    table = storage_table(4.0)
    assert "| vit_large_384 | 1,000 | 17 TB | 472 GB | 29.5 GB | 29.5 GB |" in table
    assert table in (ROOT / "docs/scaling.md").read_text()
    config = PjepaConfig(width=1024, mask_ratio=0.5)
    weights = 12 * 1024**2 * (4 * 5 + 2 * 6)  # depth 4: 2 + 6 / 2 of P; predictor depth 2: 6 of Q
    assert pretraining_flops(config, 1024, 1.0, 0.0) == pytest.approx(weights)
