"""Run a notebook's cells in its folder, and write what they print, show and draw into it.

    python tools/run_notebook.py docs/notebook.ipynb

One namespace and no kernel: a few lines instead of some forty packages. What a cell ends in is kept as a notebook shows it: a
figure as PNG, what has an HTML form as HTML, all else as text.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def run_cells(notebook: dict[str, Any], folder: Path) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield each cell of code with its outputs, run in `folder`."""
    names: dict[str, Any] = {"__name__": "__main__"}
    here = Path.cwd()
    os.chdir(folder)
    try:
        for number, cell in enumerate(code_cells(notebook), 1):
            yield cell, run("".join(cell["source"]), names, number)
    finally:
        os.chdir(here)


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Return the outputs of one cell: what it prints, and what its last line is worth."""
    tree, printed, value = ast.parse(source, f"cell {number}"), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    text = printed.getvalue()
    said = [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}] if text else []
    if value is None:
        return said
    return [*said, {"data": shown(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"}]


def shown(value: Any) -> dict[str, Any]:
    """Return a value in the forms that a notebook keeps of it."""
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "savefig"):
        drawn = io.BytesIO()
        value.savefig(drawn, format="png", dpi=110, metadata={"Software": None})
        data["image/png"] = base64.b64encode(drawn.getvalue()).decode("ascii")
    elif hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    return data


def main() -> int:
    for path in map(Path, sys.argv[1:]):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for number, (cell, outputs) in enumerate(run_cells(notebook, path.parent), 1):
            cell.update(execution_count=number, outputs=outputs)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
