"""Which project files a Python file runs, read from its source."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def is_empty(file: str) -> bool:
    """True for an `__init__.py` that holds at most a docstring."""
    body = tree(file).body
    return not body or (len(body) == 1 and ast.get_docstring(tree(file)) is not None)


def module_file(module: str) -> str | None:
    """The file of a module of this project, relative to its root."""
    path = Path(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if (ROOT / candidate).is_file():
            return candidate.as_posix()
    return None


@cache
def imported(file: str) -> frozenset[str]:
    """Project files that `file` imports when it runs, inside functions too."""
    found: set[str] = set()
    for node in _running(tree(file)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: write relative imports in full"
            base = node.module or ""
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            lazy = [name for name in names[1:] if base == "pjepa" and not module_file(name)]
            assert not lazy, f"{file}: import {lazy[0]} from its own module, so that it is tracked"
        else:
            continue
        for name in names:
            if name.split(".")[0] in ("pjepa", "stages"):
                found |= _with_parents(name)
    return frozenset(found)


def _running(node: ast.AST) -> list[ast.AST]:
    """The nodes of a module without those that only a type checker reads."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        found += [child, *_running(child)]
    return found


def _with_parents(module: str) -> set[str]:
    """The files that importing `module` runs: the module and the packages around it."""
    parts = module.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    files = {file for name in names if (file := module_file(name))}
    return {f for f in files if not (f.endswith("__init__.py") and is_empty(f))}
