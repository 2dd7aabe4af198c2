"""What training tokens are like: strange videos are beyond the limit, videos of the set are not."""

import numpy as np
import pytest

from pjepa.select.familiar import Familiar, Moments, fit_familiar, read_familiar
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamWriter, Take, read_stream

WIDTH, TAKES = 12, 30


def tokens(rng, count=80):
    """Tokens of a take: few directions, a look of its own, a little noise."""
    axes = np.random.default_rng(7).normal(size=(4, WIDTH))
    look = rng.normal(size=(1, 4))
    return (look + rng.normal(size=(count, 4))) @ axes + 0.1 * rng.normal(size=(count, WIDTH))


@pytest.fixture
def stream(tmp_path):
    path, rng = tmp_path / "stream.parquet", np.random.default_rng(0)
    with StreamWriter(path, StreamInfo(source="t", fps=4.0, width=WIDTH), "float32") as writer:
        for number in range(TAKES):
            x = tokens(rng).astype(np.float32)
            place = np.zeros(len(x), np.int32)
            writer.write(Take(f"t{number}", x, np.arange(len(x)) / 4, place, place))
    return read_stream(path)


GROUPS = {f"t{n}": f"g{n // 2}" for n in range(TAKES)}


def test_new_videos_of_the_set_are_near_and_others_far(stream, tmp_path):
    known = fit_familiar(stream, GROUPS)
    known.save(tmp_path)
    stored = read_familiar(tmp_path)
    assert (stored.takes, stored.limit) == (TAKES, known.limit)
    rng = np.random.default_rng(1)
    new = [stored.distance(tokens(rng)) for _ in range(40)]
    assert np.mean(np.array(new) > stored.limit) < 0.15  # 1 in 31 is to be expected
    # Each channel alone stays in its range: only how channels go together is wrong.
    mixed = tokens(rng)[:, np.random.default_rng(2).permutation(WIDTH)]
    assert stored.distance(mixed) > 2 * stored.limit


def test_the_limit_is_the_largest_distance_from_the_other_groups(stream):
    known = fit_familiar(stream, {take: f"g{n % 5}" for n, take in enumerate(GROUPS)})
    apart = []
    for number, take in enumerate(GROUPS):
        rest = [stream.read(t).features for n, t in enumerate(GROUPS) if n % 5 != number % 5]
        others = Moments.of(np.concatenate(rest))
        apart.append(Familiar.fit(others, 0.0, 0).distance(stream.read(take).features))
    assert known.limit == pytest.approx(max(apart))
    assert fit_familiar(stream, dict.fromkeys(GROUPS, "one")) is None


def test_few_tokens_and_dead_channels_can_be_inverted():
    x = np.random.default_rng(0).normal(size=(5, 20))
    x[:, 3] = 0.0
    assert np.isfinite(Familiar.fit(Moments.of(x), 1.0, 5).distance(x))
