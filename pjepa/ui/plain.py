"""Text from data made safe to print: no control characters."""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]+")


def plain_text(text: str) -> str:
    """Return the text as one line without control characters.

    XML cannot hold them and terminals obey them.
    """
    return CONTROL.sub(" ", text).strip()
