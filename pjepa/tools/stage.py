"""How every stage starts: params checked, one-line errors, threads set."""

from __future__ import annotations

import sys
from collections.abc import Callable

from pjepa.core.machine import device_kind, machine_values
from pjepa.core.section import read_params
from pjepa.tools.params import check_params
from pjepa.ui.console import InputError, show_traceback


def check_machine() -> None:
    """Refuse a missing device before any work; a Ray cluster has its own."""
    machine = machine_values(read_params())
    if device_kind(str(machine.get("device"))) == "cuda" and machine.get("executor") != "ray":
        from pjepa.ui.device import check_cuda

        check_cuda(str(machine["device"]))


def stage_main(run: Callable[[], None]) -> None:
    """Run a stage; bad input ends in one line on stderr and exit code 1, not a traceback."""
    try:
        check_params()
        check_machine()
        run()
    except InputError as error:
        show_traceback()
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(130) from None
