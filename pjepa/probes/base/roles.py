"""The takes that probes are fitted on, chosen on and reported on.

Probes fit on train takes without hold-out, choose on the hold-out, and are reported on `test`
where it has labels, else on `val`. Published habits are other roles.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pjepa.probes.base.config import SelectOn
from pjepa.ui.errors import InputError

Labels = Mapping[str, NDArray[np.int32]]


@dataclass(frozen=True)
class Roles:
    """Take ids by role, in table order; `groups` of the reported takes.

    `holdout` are the takes that choices are made on, whatever split they come from.
    """

    fit: tuple[str, ...]
    holdout: tuple[str, ...]
    reported: tuple[str, ...]
    split: str
    groups: Mapping[str, str]


def take_roles(takes: pd.DataFrame, labels: Labels) -> Roles:
    """Return the roles of the labelled takes of the takes table."""
    table = labelled(takes, labels)
    train, held = table["split"] == "train", table["holdout"].astype(bool)
    split = "test" if (table["split"] == "test").any() else "val"
    reported = table[table["split"] == split]
    for what, rows in (("train", table[train & ~held]), ("test or val", reported)):
        if rows.empty:
            raise InputError(f"no {what} take has labels; a probe needs some")
    groups = dict(zip(_ids(reported), reported["group"].astype(str), strict=True))
    fit, holdout = _ids(table[train & ~held]), _ids(table[train & held])
    return Roles(fit, holdout, _ids(reported), split, groups)


def habit_roles(roles: Roles, takes: pd.DataFrame, labels: Labels, select_on: SelectOn) -> Roles:
    """Return the roles under a published habit: fit on all of train, choose on another split.

    `holdout` changes nothing; with `last` there is nothing to choose on.
    """
    if select_on == "holdout":
        return roles
    table = labelled(takes, labels)
    chosen = () if select_on == "last" else _ids(table[table["split"] == select_on])
    if select_on != "last" and not chosen:
        raise InputError(f"probe.common.select_on {select_on}: no {select_on} take has labels")
    return replace(roles, fit=_ids(table[table["split"] == "train"]), holdout=chosen)


def labelled(takes: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Return the rows of the takes that have a label."""
    known = [bool((labels.get(take, np.zeros(0)) >= 0).any()) for take in takes["take_id"]]
    return takes[known]


def _ids(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(str(take) for take in rows["take_id"])
