"""Train models that share a random start, a part of one, or training, and say what kinprint reads: a held-out check.

Usage::

    python demo/make_starts.py --out FOLDER [--only SHAPE ...]     # trains; needs torch; some minutes a shape
    python demo/make_starts.py --measure FOLDER                    # compares the pairs; needs no torch

No threshold of `kinprint.evidence.common_start` was set on these models: shapes, texts, tokenizers, seeds, lengths, batches and
optimisers are others than those of the demo, the family and the zoo. Docs/verdicts.md has the table that ``--measure`` prints.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file, save_file

from kinprint.comparison.pipeline import compare
from kinprint.lab.zoo import derive
from kinprint.results.options import Options

if TYPE_CHECKING:
    from kinprint.lab.zoo.tinylm import Recipe, TinyLlama, Tokens

ONE, OTHER, THIRD = ("source-nz",), ("source-am",), ("manual-even", "docstrings-nz")
SHAPES: dict[str, dict[str, int]] = {
    "narrow": {"hidden": 64, "layers": 6, "heads": 4, "kv_heads": 4, "head_dim": 16, "ffn": 176, "vocab": 384},
    "deep": {"hidden": 64, "layers": 12, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 160, "vocab": 384},
    "deeper": {"hidden": 64, "layers": 24, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 144, "vocab": 384},
}
SEEDS = {"narrow": 9100, "deep": 9300, "deeper": 9400}
DEEP = ("deep", "deeper")
LONG, MIDDLE = 1000, (40, 80, 120, 300)  # steps of the base, and of others
EMBEDDINGS = "model.embed_tokens.weight"


@dataclass(frozen=True)
class Run:
    """One training: where it starts (``start`` names a model of the shape, None is random), on what, how long."""

    text: tuple[str, ...]
    steps: int
    rate: float = 3e-3
    start: str | None = None
    other_start: bool = False  # another random start than that of the shape
    batch: int = 8
    optimiser: str = "adamw"
    edit: str | None = None  # what is done before training
    teacher: str | None = None  # whose hidden states are matched


def runs(shape: str) -> dict[str, Run]:
    """List the models of a shape, each after those it starts from."""
    if shape in DEEP:
        long = 250 if shape == "deep" else 150
        return {
            "base": Run(ONE, long),
            "sibling": Run(OTHER, long),
            "tuned": Run(OTHER, 60, 5e-4, start="base"),
            "continued": Run(OTHER, long // 2, start="base"),
        }
    found = {"base": Run(ONE, LONG)}
    for steps in MIDDLE:
        found[f"one-{steps}"] = Run(ONE, steps)
    for steps in (*MIDDLE, LONG):
        found[f"other-{steps}"] = Run(OTHER, steps)
        found[f"order-{steps}"] = Run(ONE, steps)
    found["large-one-120"] = Run(ONE, 120, batch=64)
    found |= {
        "tuned-heavy": Run(OTHER, 200, 2e-3, start="base"),
        "continued": Run(THIRD, LONG // 2, start="base"),
        "embeddings-start": Run(OTHER, 300, other_start=True, edit="embeddings"),
        "hidden-matched": Run(OTHER, 300, other_start=True, teacher="base"),
        "embeddings-trained": Run(OTHER, 200, other_start=True, edit="embeddings_of_base"),
        "tuned-light": Run(OTHER, 80, 3e-4, start="base"),
        "lora": Run(OTHER, 100, 2e-3, start="base", edit="lora"),
        "norms-reset": Run(OTHER, 150, 1e-3, start="base", edit="norms"),
        "large-order-120": Run(ONE, 120, batch=64),
        "tuned-of-300": Run(OTHER, 80, 1e-3, start="one-300"),
        "tuned-of-120": Run(OTHER, 80, 1e-3, start="one-120"),
        "sgd-one": Run(ONE, 200, 0.3, optimiser="sgd"),
        "sgd-other": Run(OTHER, 200, 0.3, optimiser="sgd"),
        "rms-one": Run(ONE, 150, 2e-3, optimiser="rmsprop"),
        "rms-other": Run(OTHER, 150, 2e-3, optimiser="rmsprop"),
        "slow-one": Run(ONE, 60, 5e-4, batch=32),
        "slow-order": Run(ONE, 60, 5e-4, batch=32),
        "tuned-sgd": Run(OTHER, 100, 0.1, start="base", optimiser="sgd"),
        "embeddings-start-120": Run(OTHER, 120, other_start=True, edit="embeddings"),
        "norms-reset-long": Run(OTHER, 200, 3e-3, start="base", edit="norms"),
        "stranger": Run(OTHER, 200, other_start=True),
    }
    return found


MOVES = {
    "neurons": lambda state, config: (derive.permute_neurons(state, config, 7), config),
    "reordered": lambda state, config: (derive.permute_and_flip(state, config, 7), config),
    "rotated": lambda state, config: derive.rotate_residual(state, config, 7),
    "disguised": lambda state, config: derive.all_symmetries(state, config, 7),
    "folded": derive.fold_norms,
}


def pairs(shape: str) -> Iterator[tuple[str, str, str]]:
    """List what is compared, with what the pair shares: a start, training, the start or the training of a part, nothing."""
    if shape in DEEP:
        for move in ("", "+neurons", "+reordered", "+rotated", "+disguised"):
            yield "base", f"sibling{move}", "start"
            yield "base", f"tuned{move}", "training"
            yield "base", f"continued{move}", "training"
        return
    for steps in MIDDLE:
        yield f"one-{steps}", f"other-{steps}", "start"
        yield f"one-{steps}", f"order-{steps}", "start"
        yield "base", f"other-{steps}", "start"
        yield "base", f"one-{steps}", "start"
    yield "base", f"other-{LONG}", "start"
    yield "base", f"order-{LONG}", "start"
    yield "one-300", "one-120", "start"
    yield "large-one-120", "large-order-120", "start"
    yield "large-one-120", "base", "start"
    yield "sgd-one", "sgd-other", "start"
    yield "rms-one", "rms-other", "start"
    yield "sgd-one", "rms-other", "start"
    yield "slow-one", "slow-order", "start"
    for name in ("tuned-light", "tuned-heavy", "tuned-sgd", "continued", "lora", "norms-reset", "norms-reset-long"):
        yield "base", name, "training"
    for name in ("merge-70", "merge-50", "soup", "base+folded", "tuned-heavy+folded"):
        yield "base", name, "training"
    yield "one-300", "tuned-of-300", "training"
    yield "one-120", "tuned-of-120", "training"
    yield "tuned-heavy", "continued", "training"
    for move in ("neurons", "reordered", "rotated", "disguised"):
        yield "base", f"other-{LONG}+{move}", "start"
        yield "one-120", f"other-120+{move}", "start"
        yield "base", f"tuned-heavy+{move}", "training"
        yield "base", f"continued+{move}", "training"
    yield "base", "embeddings-start", "start of a part"
    yield "base", "embeddings-start-120", "start of a part"
    yield "base", "embeddings-trained", "training of a part"
    yield "base", "hidden-matched", "nothing"
    yield "base", "stranger", "nothing"


def train_shape(shape: str, out: Path) -> None:
    """Train every model of a shape that is not there yet."""
    import torch

    from kinprint.lab.zoo import tinylm
    from kinprint.lab.zoo.corpus import read_corpora
    from kinprint.lab.zoo.tinymore import add_lora, matching_loss, merge_lora
    from kinprint.lab.zoo.training import LORA_TARGETS, model_of, state_of

    torch.set_num_threads(1)
    sizes = tinylm.TinyShape(**SHAPES[shape])
    tokenizer = tinylm.train_tokenizer(read_corpora(ONE + THIRD), sizes.vocab)
    seed = SEEDS[shape]

    def fresh(offset: int) -> tinylm.TinyLlama:
        model = tinylm.TinyLlama(sizes)
        model.initialise(seed + offset)
        return model

    for number, (name, run) in enumerate(runs(shape).items()):
        folder = out / shape / name
        if folder.exists():
            continue
        began = perf_counter()
        tokens = tinylm.tokenise(read_corpora(run.text), tokenizer, 64)
        if run.start:
            model = model_of(read(out / shape / run.start), sizes.config())
        else:
            model = fresh(50 + number if run.other_start else 0)
        state = model.state_dict()
        if run.edit == "norms":
            model.load_state_dict(state | {key: torch.ones_like(x) for key, x in state.items() if x.ndim == 1})
        elif run.edit == "embeddings":
            model.load_state_dict(state | {EMBEDDINGS: fresh(0).state_dict()[EMBEDDINGS]})
        elif run.edit == "embeddings_of_base":
            model.load_state_dict(state | {EMBEDDINGS: torch.from_numpy(read(out / shape / "base")[EMBEDDINGS])})
        elif run.edit == "lora":
            add_lora(model, LORA_TARGETS, rank=4, scale=2.0, seed=seed + number)
        loss_of = tinylm.token_loss
        if run.teacher:
            loss_of = matching_loss(model_of(read(out / shape / run.teacher), sizes.config()))
        recipe = tinylm.Recipe(run.steps, run.rate, seed + 500 + number, batch=run.batch, sequence=64)
        if run.optimiser == "adamw":
            tinylm.train(model, tokens, recipe, loss_of=loss_of)
        else:
            plain_train(model, tokens, recipe, run.optimiser)
        merge_lora(model)
        write(folder, derive.stored(state_of(model), "BF16"), sizes.config(), tokenizer.to_str())
        loss, seconds = tinylm.evaluate(model, tokens), perf_counter() - began
        print(f"{shape}/{name}: {run.steps} steps, held-out loss {loss:.3f}, {seconds:.0f} s", flush=True)


def plain_train(model: TinyLlama, tokens: Tokens, recipe: Recipe, optimiser: str) -> None:
    """Train with SGD (momentum 0.9) or RMSprop at a constant rate, without weight decay."""
    import torch

    from kinprint.lab.zoo.tinylm import token_loss

    make = {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop}[optimiser]
    steps = make(model.parameters(), lr=recipe.learning_rate, **({"momentum": 0.9} if optimiser == "sgd" else {}))
    generator = torch.Generator().manual_seed(recipe.data_seed)
    window = torch.arange(recipe.sequence + 1)
    for _ in range(recipe.steps):
        starts = torch.randint(len(tokens.train) - recipe.sequence - 1, (recipe.batch, 1), generator=generator)
        loss = token_loss(model, tokens.train[starts + window])
        steps.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()


def read(folder: Path) -> derive.State:
    """Return a stored model's tensors in float32."""
    bits = load_file(folder / "model.safetensors")
    return {name: np.asarray(value, dtype=np.float32) for name, value in bits.items()}


def write(folder: Path, state: derive.State, config: dict[str, object], tokenizer: str) -> None:
    """Write a model that any reader takes for a checkpoint; values are BF16's, stored as F32."""
    folder.mkdir(parents=True)
    save_file({name: np.ascontiguousarray(value) for name, value in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")


def made(out: Path, shape: str, name: str) -> Path:
    """Return a model's folder; what no training makes (merges, moved bases) is made when it is asked for."""
    folder = out / shape / name
    if folder.exists():
        return folder
    parent, _, move = name.partition("+")
    source = out / shape / (parent if move else "base")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    tokenizer = (source / "tokenizer.json").read_text(encoding="utf-8")
    if move:
        state, config = MOVES[move](read(source), config)
    else:
        kind, _, share = name.partition("-")
        if kind not in ("merge", "soup"):
            raise FileNotFoundError(f"{folder}: not trained")
        others = ("tuned-light", "tuned-heavy") if kind == "soup" else ("base", "stranger")
        first = int(share or 50) / 100
        state = derive.merge([read(out / shape / other) for other in others], [first, 1.0 - first])
    write(folder, derive.stored(state, "BF16"), config, tokenizer)
    return folder


def measure(out: Path, shapes: list[str]) -> None:
    """Print a row for every pair that can be made: what it shares, the verdict, and the figures that the origin rests on."""
    print(
        "| shape | A | B | shares | verdict | kept of learned / rest, directions a slice | norms: r, spread |\n"
        + "|---" * 7
        + "|"
    )
    for shape in shapes:
        for a, b, truth in pairs(shape):
            try:
                folders = made(out, shape, a), made(out, shape, b)
            except FileNotFoundError:
                continue
            report = compare(*map(str, folders), Options(metrics=("cosine",), deep="+" in b and "folded" not in b))
            verdict, lines = report.verdict, {}
            for text in next((rule.inputs for rule in verdict.rules if rule.name == "initialisation"), verdict.reasons):
                lines[text.key] = text.values
            kept, norms, n = (
                next((v for k, v in lines.items() if start in k), {}) for start in ("what wa", "norms v", "learned d")
            )
            said = verdict.class_ + (f" ({verdict.variant})" if verdict.variant and not verdict.kind else "")
            said += f", {verdict.kind}" if verdict.kind else ""
            figures = f"{kept['x']:.2f} / {kept['y']:.2f}" if kept else "–"
            figures += f", {n['n'] / n['m']:.1f}" if n else ""
            scales = f"{norms['r']:.2f}, {norms['x']:.1%}" if norms else "–"
            print(f"| {shape} | {a} | {b} | {truth} | {said} | {figures} | {scales} |", flush=True)


def main() -> None:
    """Train, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=list(SHAPES))
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.only)
    if arguments.out:
        for shape in arguments.only:
            train_shape(shape, arguments.out)


if __name__ == "__main__":
    main()
