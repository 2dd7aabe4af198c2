"""The label-sparsity study (paper Table 4): probes that see the labels of fewer train takes.

The paper keeps 15, 33 or 50 % of the training takes "while maintaining full class coverage". Unlike
the paper, the takes that choices are made on are thinned as well: their labels are paid for too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pjepa.probes.base.scoring import Labels, Roles
from pjepa.streams.provenance import Provenance
from pjepa.ui.console import InputError


@dataclass(frozen=True)
class Budget:
    """How many labelled takes a probe was given, and what the budget does not reach."""

    label_fraction: float
    takes: int
    of: int
    variant: str  # full | honest | paper
    why: str


def budgeted_roles(
    roles: Roles, labels: Labels, fraction: float, seed: int, thin_choice: bool = True
) -> Roles:
    """Return roles whose fitted takes are `fraction` of what they were, every class kept.

    `thin_choice` thins the takes that choices are made on alike; the published habit of choosing
    on val or test never counted those labels. The reported takes are untouched.
    """
    if fraction == 1.0:
        return roles
    classes_of = {take: set(np.unique(labels[take]).tolist()) - {-1} for take in roles.fit}
    random = np.random.default_rng([seed, 0x5A25])
    fit = covering_takes(classes_of, round(fraction * len(roles.fit)), random)
    if not thin_choice:
        return replace(roles, fit=fit)
    count = max(1, round(fraction * len(roles.holdout)))
    drawn = sorted(random.permutation(len(roles.holdout))[:count].tolist())
    return replace(roles, fit=fit, holdout=tuple(roles.holdout[number] for number in drawn))


def covering_takes(
    classes_of: Mapping[str, set[int]], budget: int, random: np.random.Generator
) -> tuple[str, ...]:
    """Return `budget` takes that together show every class, in the order of `classes_of`.

    Greedy: the take with most classes still missing first (ties: a random order), then any.
    """
    order = [list(classes_of)[number] for number in random.permutation(len(classes_of))]
    cover = greedy_cover({take: classes_of[take] for take in order})
    if len(cover) > budget:
        count = len(set().union(*classes_of.values()))
        raise InputError(
            f"probe.common.label_fraction keeps {budget} of {len(classes_of)} train takes, but "
            f"showing all {count} classes takes {len(cover)}; "
            f"set it to at least {np.ceil(100 * len(cover) / len(classes_of)) / 100:g}"
        )
    rest = [take for take in order if take not in cover]
    chosen = {*cover, *rest[: budget - len(cover)]}
    return tuple(take for take in classes_of if take in chosen)


def greedy_cover(classes_of: Mapping[str, set[int]]) -> Sequence[str]:
    """Return takes that together show every class, each the best addition to those before it."""
    missing: set[int] = set().union(*classes_of.values())
    cover: list[str] = []
    while missing:
        best = max(classes_of, key=lambda take: len(classes_of[take] & missing))
        cover.append(best)
        missing -= classes_of[best]
    return cover


def label_budget(before: Roles, after: Roles, fraction: float, upstream: Provenance) -> Budget:
    """Return what the budget was, and whether labels it does not limit went in upstream."""
    used = ["the labels of every train take"] if upstream.train_labels else []
    if upstream.boundaries_train == "annotated":
        used.append("the annotated boundaries of every take")
    if fraction == 1.0:
        variant, why = "full", "every train take"
    elif used:
        variant = "paper"
        why = f"the budget limits the probe only; upstream used {' and '.join(used)}"
    else:
        variant, why = "honest", "nothing upstream used a label or a boundary"
    return Budget(fraction, len(after.fit), len(before.fit), variant, why)
