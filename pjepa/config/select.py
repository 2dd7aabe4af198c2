"""`select`: which snapshot becomes the encoder."""

from __future__ import annotations

from typing import Literal

from pjepa.config.section import Section


class SelectConfig(Section):
    """`last` needs no labels. Unlike the paper, which keeps the best probe on validation."""

    by: Literal["last"] = "last"
