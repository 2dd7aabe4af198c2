"""`pjepa` and `python -m pjepa`: starts the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends in one line, while packages are imported too."""
    try:
        from pjepa.tools.cli import app

        app(prog_name="pjepa")
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
