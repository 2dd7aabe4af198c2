import numpy as np

from benchmarks.surprise import bayes_surprise, broken_segments
from pjepa.takes.demo.world import build_chain


def test_a_skipped_step_breaks_the_order_and_surprises_the_filter():
    chain = build_chain()
    straight = np.array([0, 1, -1, 2, 3, 4])  # normal states of the first procedure, a pause
    skipped = np.array([0, 1, -1, 3, 4, 5])
    assert not broken_segments(chain, straight)[0].any()
    broken, scored = broken_segments(chain, skipped)
    assert broken.tolist() == [False, False, False, True, False, False]
    assert scored.tolist() == [False, True, False, True, True, True]
    usual, odd = bayes_surprise(chain, straight), bayes_surprise(chain, skipped)
    assert odd[3] > usual[3] + 1
    assert usual[2] == 0
