import numpy as np
import pytest

from examples.ikea_asm import FLOOR, FOLDS, convert
from pjepa.takes.config import DataConfig
from pjepa.takes.sources.registry import open_source
from tests.examples.ikea import CLASSES, PEOPLE, RUNS, write_checkout


@pytest.fixture
def folder(tmp_path):
    write_checkout(tmp_path / "checkout")
    said = convert(tmp_path / "checkout", tmp_path / "ikea_asm")
    assert "12 takes" in said
    return tmp_path / "ikea_asm"


def test_the_source_reads_bounded_logs_of_three_cameras(folder):
    own = {"dataset": "ikea_asm", "fps": 24, "lookahead_s": 40, "background": "NA",
           "train_labels": True}  # fmt: skip
    config = DataConfig.model_validate({"source": "mstcn", "mstcn": own})
    source = open_source(config, folder.parent)
    assert source.classes.names == CLASSES
    assert source.classes.background == 0
    assert len(source.segments) == RUNS * len(PEOPLE) * 2
    assert source.features.train_labels
    assert not source.notes
    for path in (folder / "features").iterdir():
        features = np.load(path)
        assert features.shape[1] == 3 * len(CLASSES)
        assert np.log(FLOOR) - 0.01 <= features.min() <= features.max() <= 0
        labels = (folder / "groundTruth" / f"{path.stem}.txt").read_text().split("\n")
        assert len(labels) - 1 == len(features)


def test_a_person_is_tested_once_and_never_trained_on(folder):
    person = dict(line.split(",") for line in (folder / "groups.csv").read_text().split("\n")[1:-1])
    tested = []
    for fold in range(1, FOLDS + 1):
        names = {
            split: (folder / f"splits/{split}.split{fold}.bundle").read_text().split()
            for split in ("train", "test")
        }
        seen = {s: {person[n.removesuffix(".txt")] for n in part} for s, part in names.items()}
        assert not seen["train"] & seen["test"]
        tested += sorted(seen["test"])
    assert sorted(tested) == sorted(PEOPLE)
