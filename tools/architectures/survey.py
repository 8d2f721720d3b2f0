"""Survey the model types of transformers: whether their tensors are named, and whether the axes of the roles are right.

    python tools/architectures/survey.py --only t5 bart mamba      # some, on the screen
    python tools/architectures/survey.py --keep rows.json --write docs/architectures.md    # all, or what is missing; half an hour
    python tools/architectures/survey.py --keep rows.json --only t5 --write docs/architectures.md    # one of them anew

Of each type a tiny random model is saved by the library (tiny_models.py). Then: which tensors have a role; the verdict on a copy
with 5 % noise (must be derived), on another seed (must be no evidence), on a copy with reordered neurons, heads, experts and
residual dimensions (permuted_copies.py), and whether that copy computes the same logits, which proves the axes right. What is
surveyed is kept in a file, so that a run can be continued.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from name_lists import name_list, write_lists
from permuted_copies import along_residual, reordered, residual_widths
from safetensors.numpy import load_file, save_file
from tiny_models import ENCODERS, TOKENS, all_types, logits, model_class, save, tiny_model

import kinprint
from kinprint.arch import Axis, residual_width
from kinprint.arch.configs import flattened, kv_heads_of, mixer_head_of, ordered_axes

SAME = 2e-3  # largest relative difference of logits; a wrong order leaves some 1, float32 sums in another order 1e-6 to 1e-4
# As published models have one: shared tokens tell which residual dimension is which.
TOKENIZER = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {f"token{i}": i for i in range(TOKENS)}}}


@dataclass
class Row:
    """What was found of one model type."""

    type: str
    kind: str
    built: str = ""  # why not, if it could not be built
    file: str = ""
    guessed: bool = False
    tensors: int = 0
    unmapped: list[str] = field(default_factory=list)
    excluded: dict[str, int] = field(default_factory=dict)
    roles: int = 0
    noisy: str = ""
    other: str = ""
    reordered: str = ""
    function: str = ""
    seconds: float = 0.0
    names: dict[str, Any] = field(default_factory=dict)  # what tests keep of it (name_lists.py)


def survey(model_type: str, kind: str, home: Path, depth: int) -> Row:
    """Survey one type: its names (depth 0), function of a reordered copy (1), verdicts on two copies (2) and on that (3)."""
    row, begun, folder = Row(model_type, kind), time.perf_counter(), home / model_type
    try:
        if not (folder / "two" / "config.json").exists():
            save(tiny_model(model_type, kind, 1), folder / "one")
            save(tiny_model(model_type, kind, 2), folder / "two")
            for side in ("one", "two"):
                (folder / side / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    except Exception as error:  # noqa: BLE001 - whatever a config that nobody made for this size leads to
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        row.built = f"{type(error).__name__}: {' '.join(said)[:110]}"
        return row
    arrays = load_file(folder / "one" / "model.safetensors")
    with kinprint.open(folder / "one") as opened:
        naming, config = opened.naming, opened.config
    row.file, row.guessed, row.tensors = naming.architecture, naming.guessed, len(arrays)
    row.unmapped = list(naming.unmapped)
    left_out = {item.name: str(item.reason) for item in naming.excluded}
    row.excluded = dict(Counter(left_out.values()))
    row.names = name_list(config, naming, {name: values.shape for name, values in arrays.items()})
    row.roles = len({tensor.role for tensor in naming.tensors})
    if depth > 0:
        try:
            row.function = _reordering(folder, arrays, naming, config, row)
        except Exception as error:  # noqa: BLE001 - a model that cannot be run on the plain input
            row.function = f"not run: {type(error).__name__}: {str(error)[:90]}"
            if os.environ.get("SURVEY_TRACE"):
                traceback.print_exc()
    if depth > 1:
        rng = np.random.default_rng(3)
        _write(folder, "noisy", {name: _noisy(values, rng) for name, values in arrays.items()})
        row.noisy = _verdict(folder, "one", "noisy")
        row.other = _verdict(folder, "one", "two")
        if depth > 2 and row.function.startswith("same"):
            row.reordered = _verdict(folder, "one", "moved", deep=True)
    row.seconds = round(time.perf_counter() - begun, 2)
    return row


def _noisy(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if values.dtype.kind != "f":
        return values
    return (values + 0.05 * values.std() * rng.standard_normal(values.shape)).astype(values.dtype)


def _write(folder: Path, name: str, arrays: dict[str, np.ndarray]) -> None:
    (folder / name).mkdir(exist_ok=True)
    contiguous = {key: np.array(values, order="C") for key, values in arrays.items()}
    save_file(contiguous, folder / name / "model.safetensors", metadata={"format": "pt"})
    for file in ("config.json", "generation_config.json", "tokenizer.json"):
        if (folder / "one" / file).exists():
            (folder / name / file).write_text((folder / "one" / file).read_text())


def _verdict(folder: Path, one: str, two: str, *, deep: bool = False) -> str:
    try:
        verdict = kinprint.compare(folder / one, folder / two, deep=deep).verdict
    except Exception as error:  # noqa: BLE001 - what is known of the type is kept
        return f"failed: {type(error).__name__}"
    return "none" if verdict is None else verdict.class_


def _reordering(folder: Path, arrays: Any, naming: Any, config: Any, row: Row) -> str:
    """Write a reordered copy, and return whether it computes the same."""
    if not naming.tensors:
        return "nothing to move"
    made = model_class(row.type, row.kind)
    expected = logits(made.from_pretrained(folder / "one").eval().float(), row.kind, row.type)
    flat, ordered = flattened(config), ordered_axes(config)
    heads = kv_heads_of(flat)
    for moved, word in (
        ((heads, "same"), (None, "same, heads in place")) if heads else ((None, "same, heads in place"),)
    ):
        copy, orders = reordered(arrays, naming, ordered, moved, 5, mixer_head_of(flat))
        _write(folder, "moved", copy)
        found = logits(made.from_pretrained(folder / "moved").eval().float(), row.kind, row.type)
        wanted = [expected]
        if row.kind in ENCODERS:  # these hand out the residual stream itself, which then is in the new order
            for width in residual_widths(naming) | {residual_width(naming) or 1}:
                wanted += _in_new_order(expected, orders.of("residual", width))
        difference = min(float((found - each).abs().max()) / float(each.abs().max()) for each in wanted)
        if difference < SAME:
            return word if Axis.RESIDUAL not in ordered else f"{word}, residual dimensions in place"
    return f"differs by {difference:.2g}"


def _in_new_order(values: torch.Tensor, order: np.ndarray) -> list[torch.Tensor]:
    """Reorder the axes that may hold the residual stream: once, or several of its places side by side or interleaved."""
    found = []
    for axis, size in enumerate(values.shape):
        if size % len(order) == 0:
            found.append(torch.as_tensor(along_residual(values.numpy(), axis, order)))
            apart = values.unflatten(axis, (len(order), size // len(order)))
            found.append(apart.index_select(axis, torch.as_tensor(order)).flatten(axis, axis + 1))
    return found


def _with_limit(model_type: str, kind: str, home: Path, depth: int, seconds: int) -> Row:
    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return survey(model_type, kind, home, depth)
    except Exception as error:  # noqa: BLE001 - the next type
        if os.environ.get("SURVEY_TRACE"):
            traceback.print_exc()
        return Row(model_type, kind, built=f"survey failed: {type(error).__name__}: {str(error)[:120]}")
    finally:
        signal.alarm(0)


def shown(row: Row) -> str:
    """One line of the table."""
    if row.built:
        needed = re.search(r"requires the (\w+) library", row.built)
        why = f"needs {needed[1]}, which is not among the packages of this project" if needed else _plain(row.built)
        return f"| {row.type} | {row.kind} | not built: {why} | | | | |"
    file = f"guessed ({row.file})" if row.guessed else row.file
    mapped = f"{row.tensors - len(row.unmapped) - sum(row.excluded.values())} of {row.tensors}"
    mapped += f", {sum(row.excluded.values())} left out" if row.excluded else ""
    return f"| {row.type} | {row.kind} | {file} | {mapped} | {row.noisy} / {row.other} | {row.reordered} | {_plain(row.function)} |"


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ").replace("<", "‹").replace(">", "›")


HEADER = (
    "| type | kind | file | tensors named | noisy copy / another seed | reordered copy | logits of that |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)
BEGIN, END = "<!-- survey: begin -->", "<!-- survey: end -->"


def summed(rows: list[Row]) -> str:
    """Sum the table up in a few lines."""
    built = [row for row in rows if not row.built]
    lines = [
        f"{len(rows)} model types, {len(built)} of which could be built so small.",
        f"Every tensor named or left out with a reason: {sum(not row.unmapped for row in built)}.",
        f"By a file of their own: {sum(not row.guessed for row in built)}.",
        f"Noisy copy: {_counted(row.noisy or 'not compared' for row in built)}.",
        f"Another seed: {_counted(row.other or 'not compared' for row in built)}.",
        f"Reordered copy: {_counted(row.reordered or 'not compared' for row in built)}.",
        f"Its logits: {_counted((row.function or 'not run').split(' by ')[0].split(':')[0] for row in built)}.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _counted(words: Any) -> str:
    return ", ".join(f"{word} {count}" for word, count in Counter(words).most_common())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="TYPE", help="these types, anew if they are kept; default: all")
    parser.add_argument(
        "--kinds", nargs="+", default=["causal", "masked", "seq2seq", "speech", "audio", "image", "tower", "towers"]
    )
    parser.add_argument("--keep", type=Path, help="file in which rows are kept; those in it are not surveyed again")
    parser.add_argument("--write", type=Path, help="page whose table is written anew")
    parser.add_argument("--limit", type=int, default=300, metavar="SECONDS", help="for one type")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so many, to be continued with --keep")
    parser.add_argument("--names", type=Path, help="file for the names of every type that is named in full, for tests")
    parser.add_argument("--zoo", type=Path, help="folder in which the models are kept")
    parser.add_argument(
        "--depth", type=int, default=3, choices=(0, 1, 2, 3), help="names; function; verdicts; the slow one too"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(options.keep.read_text()) if options.keep and options.keep.exists() else {}
    wanted = {name: kind for name, kind in all_types().items() if kind in options.kinds}
    if options.only:
        wanted = {name: kind for name, kind in wanted.items() if name in options.only}
    begun = time.monotonic()
    made = tempfile.TemporaryDirectory() if options.zoo is None else None
    home = options.zoo or Path(made.name)
    for name, kind in wanted.items():
        if (options.only or name not in kept) and time.monotonic() - begun < 60 * options.minutes:
            kept[name] = asdict(_with_limit(name, kind, home, options.depth, options.limit))
            print(shown(Row(**kept[name])), kept[name]["seconds"], flush=True)
            if options.only:
                print(*(f"    {each}" for each in kept[name]["unmapped"]), sep="\n")
            if options.keep:
                options.keep.write_text(json.dumps(kept, indent=1))
    rows = sorted((Row(**row) for row in kept.values()), key=lambda row: row.type)
    print(summed(rows))
    if made is not None:
        made.cleanup()
    if options.names:
        write_lists(
            options.names, {row.type: row.names for row in rows if row.names and not row.unmapped and not row.guessed}
        )
    if options.write:
        page = options.write.read_text()
        head, tail = page.partition(BEGIN)[0], page.partition(END)[2]
        table = "\n".join(map(shown, rows))
        options.write.write_text(f"{head}{BEGIN}\n{summed(rows)}\n\n{HEADER}\n{table}\n{END}{tail}")
    return int(any(row.other not in ("", "no_evidence", "not_testable") or row.unmapped for row in rows))


if __name__ == "__main__":
    sys.exit(main())
