"""`pjepa`: the tools for people, a module for each kind. The pipeline itself is `dvc repro`.

Importing a module registers its commands; heavy imports stand inside the commands.
"""

from pjepa.tools.cli import data, export, extract, live, results, setup  # noqa: F401
from pjepa.tools.cli.app import app

__all__ = ["app"]
