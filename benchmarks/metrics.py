"""Time of Edit + F1@{10,25,50} + accuracy on one pair of sequences.

Reference: the textbook loops as every evaluation script of the
field writes them: runs by a Python scan, the full Levenshtein table, and each predicted segment
against every true one. `python -m benchmarks.metrics [--json FILE]`.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pjepa.metrics.segmentation import THRESHOLDS, UNKNOWN, segmentation_scores


@dataclass(frozen=True)
class Segment:
    label: int
    start: int
    end: int


def loop_segments(labels: list[int], background: int | None) -> list[Segment]:
    """Return the runs of equal label that are known and not background."""
    found, start = [], 0
    for index in range(1, len(labels) + 1):
        if index == len(labels) or labels[index] != labels[start]:
            if labels[start] >= 0 and labels[start] != background:
                found.append(Segment(labels[start], start, index))
            start = index
    return found


def loop_edit(truth: list[Segment], prediction: list[Segment]) -> float:
    """Return the edit score in percent from the whole Levenshtein table."""
    rows, columns = len(prediction), len(truth)
    if not rows and not columns:
        return 100.0
    table = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows + 1):
        for j in range(columns + 1):
            if i == 0 or j == 0:
                table[i][j] = i + j
            elif prediction[i - 1].label == truth[j - 1].label:
                table[i][j] = table[i - 1][j - 1]
            else:
                table[i][j] = 1 + min(table[i - 1][j], table[i][j - 1], table[i - 1][j - 1])
    return 100.0 * (1 - table[-1][-1] / max(rows, columns))


def loop_f1(truth: list[Segment], prediction: list[Segment], threshold: float) -> float:
    """Return F1 in percent by greedy matching in temporal order."""
    if not truth and not prediction:
        return 100.0
    hit = [False] * len(truth)
    for guess in prediction:
        best, best_index = 0.0, -1
        for index, true in enumerate(truth):
            if true.label == guess.label:
                inner = min(guess.end, true.end) - max(guess.start, true.start)
                overlap = inner / (max(guess.end, true.end) - min(guess.start, true.start))
                if overlap > best:
                    best, best_index = overlap, index
        if best >= threshold and not hit[best_index]:
            hit[best_index] = True
    return 200.0 * sum(hit) / (len(truth) + len(prediction))


def loop_scores(
    truth: list[int], prediction: list[int], background: int | None
) -> dict[str, float]:
    """Return the scores of one take, `release` convention, by textbook loops."""
    guesses = [UNKNOWN if y < 0 else p for y, p in zip(truth, prediction, strict=True)]
    known = [(y, p) for y, p in zip(truth, guesses, strict=True) if y >= 0]
    action = [(y, p) for y, p in known if y != background]
    true, guess = loop_segments(truth, background), loop_segments(guesses, background)
    otherwise = 0.0 if guess else 100.0
    found = {"edit": loop_edit(true, guess)}
    for name, frames in (("acc", action), ("acc_bg", known)):
        right = sum(y == p for y, p in frames)
        found[name] = 100.0 * right / len(frames) if frames else otherwise
    return found | {name: loop_f1(true, guess, k) for name, k in THRESHOLDS.items()}


def noisy_pair(frames: int, run: int, noise: float, seed: int) -> tuple[list[int], list[int]]:
    """Return a sequence of runs of about `run` frames and a copy with a share of wrong frames."""
    random = np.random.default_rng(seed)
    labels = np.repeat(random.integers(0, 20, frames // run + 1), run)[:frames]
    wrong = random.random(frames) < noise
    return labels.tolist(), np.where(wrong, random.integers(0, 20, frames), labels).tolist()


def seconds(work: Callable[[], object]) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(frames: int, run: int, noise: float, rounds: int) -> dict[str, float | str]:
    """Return the best time of each, measured alternately."""
    truth, prediction = noisy_pair(frames, run, noise, seed=0)
    y, p = np.array(truth), np.array(prediction)
    ours, reference = [], []
    for _ in range(rounds):
        ours.append(seconds(lambda: segmentation_scores([y], [p], background=0)))
        reference.append(seconds(lambda: loop_scores(truth, prediction, background=0)))
    best = 1e3 * min(ours), 1e3 * min(reference)
    return {"ours": best[0], "reference": best[1], "ratio": best[0] / best[1], "unit": "ms"}


CASES = {
    "1,000 frames, smooth": (1_000, 40, 0.01, 5),
    "10,000 frames, smooth": (10_000, 100, 0.002, 5),
    "10,000 frames, noisy": (10_000, 100, 0.1, 3),
}


def main() -> None:
    """Print the table; `--json FILE` also writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {case: measure(*setting) for case, setting in CASES.items()}
    print(f"{'case':26} {'ours':>10} {'reference':>10} {'ratio':>8}")
    for case, row in results.items():
        print(f"{case:26} {row['ours']:7.2f} ms {row['reference']:7.1f} ms {row['ratio']:8.4f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
