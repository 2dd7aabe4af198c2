"""This tree beside another commit: `python -m benchmarks.beside COMMIT [--rounds 3] [--only NAME]`.

The other commit is checked out in a temporary folder. Each case runs in one process per tree, one
thread, both alternately; a round is the least CPU time of `REPEATS` calls of either. `demo, two
cores` is the time on the clock and needs them idle. A ratio is the other's time over ours, so
above 1 this tree is faster; printed are that of the least times of all rounds, which other work on
the machine disturbs least, and over the rounds its median, least and most. Cases are built from
what `benchmarks/` has had for long, so that old commits run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from pjepa.ui.device import bf16_trial

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 2
BF16 = "bf16 step over fp32"

# Steps of trained probes on takes of equal segments.
PROBES = """
import importlib
import numpy as np
import torch
from pjepa.probes.base.trained import ProbeTake, ProbeTrainer, Task
draw = np.random.default_rng(0)
def take(name, width, classes, segments, length):
    labels = np.repeat(draw.integers(classes, size=segments), length)
    features = draw.normal(size=(len(labels), width)).astype(np.float32)
    return ProbeTake(name, features, np.repeat(np.arange(segments), length), labels)
def trainer(name, settings, width, classes, takes):
    module = importlib.import_module(f"pjepa.probes.{name}.probe")
    kind = getattr(module, "TRAINED_KIND", module.KIND)  # the first in older commits
    config = kind.config(**settings)
    module = kind.new(config, Task(width, classes, 0), 0).module.train()
    return ProbeTrainer(module, takes, [], torch.zeros(width), torch.ones(width), config, 0, 0)
"""

# Each defines `work`. `BF16` runs our step in bf16, and in fp32 that of a commit from before
# `train_step` had a case in bf16. The demo's pretraining is its model and batches on noise, without
# terms that are not in the paper; two epochs of 40 takes.
CASES = {
    "training step": """
from benchmarks.train_step import case
work = case("ours")
""",
    BF16: """
from benchmarks import train_step as t
work = t.case("ours bf16" if hasattr(t, "inputs") else "ours")
""",
    "demo pretraining": """
import tempfile
from pathlib import Path
from benchmarks import train_step as t
config = t.PjepaConfig(
    width=128, depth=4, heads=4, mlp_ratio=2.0, predictor_depth=1, predictor_heads=4,
    mask_ratio=0.8, rope_base=100.0, batch_tokens=512, epochs=2, lr=1e-3, threads=1,
    input_norm="causal_center",
)
takes = [t.synthetic_take(n, 160 + 5 * n, 64) for n in range(40)]
def work():
    with tempfile.TemporaryDirectory() as folder:
        t.pretrain(takes, config, Path(folder) / "w", Path(folder) / "o", lambda entry: None)
""",
    "linear probe": """
import numpy as np
try:
    from pjepa.probes.base.scoring import LabelledTake
    from pjepa.probes.linear.config import LinearConfig
    from pjepa.probes.linear.probe import fit_converged
except ImportError:
    from pjepa.config.probe import LinearConfig
    from pjepa.probes.linear import LabelledTake, fit_converged
draw = np.random.default_rng(0)
centres = draw.normal(size=(12, 128))
def take(tokens):
    labels = draw.integers(12, size=tokens)
    noise = 2 * draw.normal(size=(tokens, 128))
    return LabelledTake((centres[labels] + noise).astype(np.float32), labels)
takes, holdout = [take(500) for _ in range(12)], [take(500) for _ in range(2)]
def work():
    for _ in range(5):
        fit_converged(takes, holdout, 12, LinearConfig(l2=(1e-1, 1e-2, 1e-3)))
""",
    "streaming": """
import torch
from benchmarks import streaming as s
model, x, lengths = s.encoder(), torch.randn(2000, s.WIDTH), s.lengths_of(2000)
def work():
    s.streamed(model, x, lengths)
""",
    "LTContext": PROBES
    + """
one = trainer("ltcontext", {}, 2048, 202, [take("a", 2048, 202, 80, 50)])
def work():
    one.step(one.takes, 0)
""",
    "FACT": PROBES
    + """
one = trainer("fact", {}, 2048, 116, [take("a", 2048, 116, 22, 91)])
def work():
    one.step(one.takes, 0)
""",
    "probes, short takes": PROBES
    + """
import yaml
small = yaml.safe_load(open("params.yaml"))["probe"]  # of the demo
takes = [take(str(number), 99, 33, 19, 12) for number in range(8)]
names = ("ltcausal", "ltcontext", "fact")
trainers = [trainer(name, small[name], 99, 33, takes) for name in names]
def work():
    for one in trainers:
        for shown in takes:
            one.step([shown], 0)
""",
}

OF_TRAINED = ("LTContext", "FACT", "probes, short takes")
NEEDS = dict.fromkeys(OF_TRAINED, "pjepa/probes/base/trained.py")  # older commits lack it
CASES["demo, dropout"] = CASES["demo pretraining"].replace("epochs=2", "epochs=2, dropout=0.3")
CASES["demo, two cores"] = (
    CASES["demo pretraining"]
    + """
config = config.model_copy(update={"workers": 2})
clock = time.perf_counter
"""
)

SERVE = """
import json, sys, time
import torch
torch.set_num_threads(1)
clock = time.process_time
exec(sys.argv[1])
work()
said = sys.stdout
sys.stdout = sys.stderr
print("ready", file=said, flush=True)
for line in sys.stdin:
    found = []
    for _ in range(int(line)):
        started = clock()
        work()
        found.append(clock() - started)
    print(json.dumps(min(found)), file=said, flush=True)
"""


class Side:
    """A case in a process of one tree."""

    def __init__(self, tree: Path, code: str) -> None:
        kept = {**os.environ, "PYTHONPATH": str(tree), "PJEPA_QUIET": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, code], cwd=tree, env=kept, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._heard()

    def seconds(self) -> float:
        """Return the least CPU seconds of some calls."""
        assert self.process.stdin is not None
        print(REPEATS, file=self.process.stdin, flush=True)
        return float(json.loads(self._heard()))

    def _heard(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a case ended with code {self.process.wait()}")
        return line

    def end(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit."""
    with tempfile.TemporaryDirectory() as name:
        packed = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", name], input=packed, check=True)
        yield Path(name)


def why_not(name: str, other: Path, commit: str) -> str:
    """Return why a case cannot be measured, if so."""
    if not (other / NEEDS.get(name, "")).exists():
        return f"not in {commit}"
    return "not on this CPU" if name == BF16 and bf16_trial() else ""


def measured(other: Path, code: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of the other tree and of ours in every round, and their ratios."""
    theirs, ours = Side(other, code), Side(ROOT, code)
    pairs = [(theirs.seconds(), ours.seconds()) for _ in range(rounds)]
    theirs.end()
    ours.end()
    before, now = map(list, zip(*pairs, strict=True))
    return {"before": before, "seconds": now, "ratios": [a / b for a, b in pairs]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    print(f"{'case':20}{'ours, s':>10}{'of least':>10}{'median':>8}  range, {options.commit}/ours")
    with checked_out(options.commit) as other:
        for name in options.only or CASES:
            if missing := why_not(name, other, options.commit):
                print(f"{name:20}  {missing}")
                continue
            case = found[name] = measured(other, CASES[name], options.rounds)
            ours, times = min(case["seconds"]), case["ratios"]
            of_least, span = min(case["before"]) / ours, f"{min(times):.2f} to {max(times):.2f}"
            print(f"{name:20}{ours:10.4f}{of_least:10.2f}{median(times):8.2f}  {span}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
