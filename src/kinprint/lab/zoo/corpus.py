"""Cut the text that ships with CPython into corpora that do not overlap, for training small models."""

import ast
import functools
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

# Test suites, installed packages and generated tables: either not on every machine or hardly text.
SKIPPED_FOLDERS = frozenset({
    "test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "idlelib", "lib2to3",
    "pydoc_data", "ensurepip", "encodings", "turtledemo",
})  # fmt: skip
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


@functools.cache
def _standard_library() -> list[tuple[str, str]]:
    files = []
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py"), key=lambda p: p.relative_to(root).as_posix()):
        relative = path.relative_to(root)
        # _sysconfigdata holds the build machine's paths, which have no business in a model; so does config-3.x-…
        left_out = SKIPPED_FOLDERS.intersection(relative.parts) or relative.name.startswith("_sysconfigdata")
        if not left_out and "-" not in relative.parts[0]:
            files.append((relative.as_posix(), path.read_text(encoding="utf-8", errors="replace")))
    return files


def _in_half(name: str, half: str) -> bool:
    return (name.lstrip("_").lower() < "n") == (half == "am")


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield statements in the order of `ast.walk`, which looks into expressions too and takes twice as long."""
    level: list[ast.AST] = [tree]
    while level:
        yield from level
        level = [inner for node in level for name in node._fields if name in _BLOCKS for inner in getattr(node, name)]


def _docstrings(half: str, every: int) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documents = []
    for name, source in _standard_library()[::every]:
        if _in_half(name, half):
            texts = [ast.get_docstring(node) for node in _statements(ast.parse(source)) if isinstance(node, kinds)]
            documents.append("\n\n".join(text for text in texts if text))
    return [document for document in documents if document]


def _source(half: str, every: int, first: int = 0) -> list[str]:
    # Every third file is as much text as a few hundred steps can use.
    return [source for name, source in _standard_library() if _in_half(name, half)][first :: 3 * every]


def _manual(parity: int, every: int) -> list[str]:
    from pydoc_data import topics

    return [topics.topics[key] for key in sorted(topics.topics)[parity :: 2 * every]]


CORPORA: dict[str, Callable[[int], list[str]]] = {
    "manual-even": lambda every: _manual(0, every),
    "manual-odd": lambda every: _manual(1, every),
    "docstrings-am": lambda every: _docstrings("am", every),
    "docstrings-nz": lambda every: _docstrings("nz", every),
    "source-am": lambda every: _source("am", every),
    "source-am-second": lambda every: _source("am", every, 1),
    "source-nz": lambda every: _source("nz", every),
}


@functools.cache
def read_corpora(names: tuple[str, ...], every: int = 1) -> list[str]:
    """Return the documents of the named corpora, in order; for a trial every few of them are enough."""
    return [document for name in names for document in CORPORA[name](every)]
