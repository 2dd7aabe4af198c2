"""How every stage starts: params checked, one-line errors, threads set."""

from __future__ import annotations

import sys
from collections.abc import Callable

from pjepa.config.params import check_params
from pjepa.errors import InputError


def stage_main(run: Callable[[], None]) -> None:
    """Runs a stage; bad input ends in one line on stderr and exit code 1, not a traceback."""
    try:
        check_params()
        run()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        raise SystemExit(130) from None
