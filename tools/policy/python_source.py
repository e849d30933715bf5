"""Reads Python source text: functions, and imports between files."""

import ast
import posixpath
from functools import cache

from rust_source import Function

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def nodes(text):
    """Returns the functions and the imports of `text`."""
    kinds = (*FUNCTIONS, ast.Import, ast.ImportFrom)
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]


def functions(text):
    """Returns the functions of `text`, each with its number of lines from `def` to its end."""
    found = (node for node in nodes(text) if isinstance(node, FUNCTIONS))
    return [Function(it.name, it.lineno, it.end_lineno - it.lineno + 1) for it in found]


def imports(texts):
    """Returns for each file of `texts` the files that it imports, also within functions."""
    return {name: set(imported(name, text, texts)) for name, text in texts.items()}


def imported(name, text, texts):
    folder = posixpath.dirname(name)
    for node in nodes(text):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from file_of(alias.name, ancestors(folder), texts)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            homes = [parent(folder, node.level - 1)] if node.level else ancestors(folder)
            yield from file_of(module, homes, texts)
            for alias in node.names:
                yield from file_of(f"{module}.{alias.name}".strip("."), homes, texts)


def file_of(module, homes, texts):
    """Yields the file of a module: the one in the first of the folders `homes` that has it. Scripts
    add folders above them to the path of modules."""
    for home in homes:
        path = posixpath.join(home, *module.split("."))
        for name in (f"{path}.py", f"{path}/__init__.py"):
            if name in texts:
                yield name
                return


def ancestors(folder):
    """Returns `folder` and all folders above it, the nearest one first."""
    return [folder, *(ancestors(posixpath.dirname(folder)) if folder else ())]


def parent(folder, levels):
    for _ in range(levels):
        folder = posixpath.dirname(folder)
    return folder
