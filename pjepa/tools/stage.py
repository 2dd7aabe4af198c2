"""How every stage starts, and how stages and tools end: in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def one_line_errors() -> Iterator[None]:
    """End on bad input or a failing disk with one line on stderr and exit code 1."""
    try:
        yield
    except BrokenPipeError:  # `| head` has seen enough; typer ends quietly
        raise
    except (InputError, OSError) as error:
        show_traceback()
        file = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        text = (error.strerror or error) if isinstance(error, OSError) else error
        print(f"error: {file}{text}", file=sys.stderr)
        raise SystemExit(1) from None


def stage_main(run: Callable[[], None]) -> None:
    """Run a stage on checked params and machine."""
    try:
        with one_line_errors():
            check_params()
            check_machine()
            run()
    except BrokenPipeError:  # nobody reads what the stage says
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(130) from None
