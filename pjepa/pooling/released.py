"""V-JEPA's released attentive probes as modules (facts/vjepa21.md, Sec. 6)."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from pjepa.errors import InputError
from pjepa.pooling.attentive import AttentiveClassifier

HEADS = 16  # of all released probes; tensor shapes do not show it


def released_classifier(path: Path, place: int = 0, heads: int = HEADS) -> AttentiveClassifier:
    """One of the classifiers in a released probe file, in eval mode.

    The file holds a list under `classifiers`, one per learning rate that was tried; the keys carry
    `module.`. The number of heads must be known: a wrong one loads and is silently wrong.
    """
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        states = stored["classifiers"]
        state = {key.replace("module.", ""): value for key, value in states[place].items()}
        model = _like(state, heads)
        model.load_state_dict(state, strict=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IndexError:
        raise InputError(f"{path}: holds {len(states)} classifiers, there is no {place}") from None
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not a released attentive probe ({reason})") from None
    return model.eval()


def _like(state: dict[str, Tensor], heads: int) -> AttentiveClassifier:
    """An untrained classifier of the sizes that a state dict shows."""
    width = state["pooler.query_tokens"].shape[2]
    hidden = state["pooler.cross_attention_block.mlp.fc1.weight"].shape[0]
    blocks = {found[1] for key in state if (found := re.match(r"pooler\.blocks\.(\d+)\.", key))}
    classes = state["linear.weight"].shape[0]
    return AttentiveClassifier(width, heads, len(blocks) + 1, classes, hidden / width)
