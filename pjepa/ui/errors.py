"""The exception whose message is shown to users, and what others say in one line."""

import os
import traceback

from pjepa.ui.plain import plain_text

VERBOSE = "PJEPA_VERBOSE"  # set: the traceback of an error is printed before its one line


class InputError(Exception):
    """Bad input: one line that says what is wrong, where, and what to do next.

    It may hold names from data, so control characters are replaced by blanks.
    """

    def __init__(self, message: str) -> None:
        super().__init__(plain_text(message))


def show_traceback() -> None:
    """Print the traceback of the current error if requested (`-v`)."""
    if os.environ.get(VERBOSE):
        traceback.print_exc()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
