import numpy as np

from benchmarks.surprise import auroc, bayes_surprise, broken_segments
from pjepa.takes.demo.world import build_chain


def test_auroc_counts_ordered_pairs():
    positive, once = np.array([True, True, False, False]), np.ones((1, 4))
    assert auroc(np.array([3.0, 4.0, 1.0, 2.0]), positive, once) == 1.0
    assert auroc(np.array([1.0, 1.0, 1.0, 1.0]), positive, once) == 0.5
    assert auroc(np.array([1.0, 4.0, 2.0, 3.0]), positive, once) == 0.5
    drawn = np.array([[0.0, 2.0, 1.0, 1.0], [3.0, 0.0, 1.0, 1.0]])  # resamples of segments
    assert auroc(np.array([1.0, 4.0, 2.0, 3.0]), positive, drawn).tolist() == [1.0, 0.0]


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


def test_the_filter_never_sees_the_impossible():
    chain = build_chain()
    rng = np.random.default_rng(0)
    state, states = 0, []
    for _ in range(200):
        states.append(state)
        state = int(rng.choice(len(chain.start), p=chain.transition[state]))
    found = bayes_surprise(chain, np.array(states))
    assert np.isfinite(found).all()
    assert found.min() > -1e-9
