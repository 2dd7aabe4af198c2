"""A label budget keeps every class, its size, and nothing that it should not touch."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.probes.base.scoring import Roles, habit_roles, take_roles
from pjepa.probes.base.sparsity import budgeted_roles, covering_takes, label_budget
from pjepa.streams.provenance import Provenance
from pjepa.ui.console import InputError

shown_sets = st.lists(st.sets(st.integers(0, 8), min_size=1), min_size=1, max_size=15)


@settings(max_examples=200, deadline=None)
@given(shown_sets, st.integers(0, 15), st.integers(0, 3))
def test_budget_covers_every_class_or_says_so(sets: list[set[int]], budget: int, seed: int) -> None:
    shown = {f"t{i}": classes for i, classes in enumerate(sets)}
    budget = min(budget, len(shown))
    try:
        kept = covering_takes(shown, budget, np.random.default_rng(seed))
    except InputError as error:
        needed = float(str(error).split("at least ")[1])
        again = covering_takes(
            shown, round(needed * len(shown)), np.random.default_rng(seed)
        )  # what the message asks for is enough
        assert len(again) > budget
        return
    assert len(kept) == len(set(kept)) == budget
    assert set().union(*(shown[take] for take in kept)) == set().union(*sets)
    assert list(kept) == [take for take in shown if take in kept]
    assert kept == covering_takes(shown, budget, np.random.default_rng(seed))


def some_roles() -> tuple[Roles, dict[str, np.ndarray], pd.DataFrame]:
    names, holdout = [f"t{i}" for i in range(27)], [i < 4 for i in range(27)]
    splits = ["train"] * 20 + ["val"] * 3 + ["test"] * 4
    columns = {"take_id": names, "split": splits, "holdout": holdout, "group": "g"}
    labels = {name: np.array([i % 3, -1], np.int32) for i, name in enumerate(names)}
    takes = pd.DataFrame(columns)
    return take_roles(takes, labels), labels, takes


def test_fitted_and_choosing_takes_are_thinned_alike() -> None:
    roles, labels, _ = some_roles()
    half = budgeted_roles(roles, labels, 0.5, seed=0)
    assert (len(half.fit), len(half.holdout)) == (8, 2)
    assert set(half.fit) < set(roles.fit)
    assert half.reported == roles.reported
    assert budgeted_roles(roles, labels, 0.5, seed=1).fit != half.fit
    assert budgeted_roles(roles, labels, 1.0, seed=0) is roles
    kept = budgeted_roles(roles, labels, 0.5, seed=0, thin_choice=False)
    assert kept.holdout == roles.holdout
    with pytest.raises(InputError, match=r"all 3 classes takes 3; set it to at least 0\.19"):
        budgeted_roles(roles, labels, 0.1, seed=0)


def test_published_habits_fit_on_all_of_train() -> None:
    roles, labels, takes = some_roles()
    assert habit_roles(roles, takes, labels, "holdout") is roles
    for select_on, chosen in (("val", 3), ("test", 4), ("last", 0)):
        habit = habit_roles(roles, takes, labels, select_on)  # type: ignore[arg-type]
        assert (len(habit.fit), len(habit.holdout)) == (20, chosen)
        assert habit.reported == roles.reported
    labels |= {f"t{i}": np.array([-1]) for i in (20, 21, 22)}
    with pytest.raises(InputError, match="no val take has labels"):
        habit_roles(roles, takes, labels, "val")


def test_variant_is_told() -> None:
    roles, labels, _ = some_roles()
    half = budgeted_roles(roles, labels, 0.5, seed=0)
    assert label_budget(roles, half, 0.5, Provenance()).variant == "honest"
    annotated = Provenance(boundaries_train="annotated")
    assert label_budget(roles, half, 0.5, annotated).variant == "paper"
    pooled = label_budget(roles, half, 0.5, Provenance(train_labels=True))
    assert (pooled.variant, pooled.takes, pooled.of) == ("paper", 8, 16)
    assert "labels of every train take" in pooled.why
    assert label_budget(roles, roles, 1.0, annotated).variant == "full"
