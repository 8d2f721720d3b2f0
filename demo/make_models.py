"""Train the bundled demo family: five tiny Llama-shaped models whose relations are known by construction.

Usage::

    python demo/make_models.py --out demo/models [--only NAME] [--steps-scale 1.0]
    python demo/make_models.py --measure demo/models
    python demo/make_models.py --smoke

The models are really trained, on a small corpus; they are not language models of any use.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers import __version__ as tokenizers_version
from torch import Tensor

from kinprint.lab.zoo.corpus import read_corpora
from kinprint.lab.zoo.tinylm import (
    BOS,
    EOS,
    Recipe,
    TinyLlama,
    TinyShape,
    Tokens,
    evaluate,
    tokenise,
    train,
    train_tokenizer,
)

NOTE = (
    "Tiny models, really trained on a small corpus (text that ships with CPython) so that relations between weights "
    "are those training makes. They are not language models of any use."
)
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
GROWN_LAYERS = (0, 1, 2, 1, 2, 3)
THREADS = 2
# A full-length run that misses these has not made the models the demo claims to have.
LOSS_SHARE_OF_UNIGRAM = 0.75
NORM_STD_FLOOR = 0.03
TRIAL = 8  # of so many documents a trial reads one: nobody looks at its loss


@dataclass(frozen=True)
class Member:
    """One model of the family: where it comes from and how it is trained."""

    relation: str
    corpora: tuple[str, ...]
    parent: str | None = None
    init_seed: int | None = None
    permutation_seed: int | None = None
    source_layers: tuple[int, ...] | None = None
    recipe: Recipe | None = None


FAMILY: dict[str, Member] = {
    "base": Member(
        relation="trained from scratch",
        corpora=("manual-even", "docstrings-am"),
        init_seed=101,
        recipe=Recipe(steps=1600, learning_rate=4e-3, data_seed=102),
    ),
    "finetune": Member(
        relation="full fine-tune of base on another corpus",
        corpora=("source-am",),
        parent="base",
        recipe=Recipe(steps=600, learning_rate=1e-3, data_seed=202),
    ),
    "unrelated": Member(
        relation="none: same config, other init, other text, other data order, own tokenizer",
        corpora=("manual-odd", "docstrings-nz"),
        init_seed=301,
        recipe=Recipe(steps=1600, learning_rate=4e-3, data_seed=302),
    ),
    "permuted": Member(
        relation="base with MLP neurons, query heads and KV groups reordered; computes the same function",
        corpora=("manual-even", "docstrings-am"),
        parent="base",
        permutation_seed=401,
    ),
    "grown": Member(
        relation="base grown from 4 to 6 layers (copies of 0,1,2,1,2,3), then trained briefly",
        corpora=("manual-even", "docstrings-am"),
        parent="base",
        source_layers=GROWN_LAYERS,
        recipe=Recipe(steps=200, learning_rate=1e-3, data_seed=502),
    ),
}


def reporter(name: str, steps: int) -> Callable[[int, float], None]:
    """Return a function that prints how far the training of a model is."""
    return lambda step, loss: print(f"  {name}: step {step}/{steps}, training loss {loss:.3f}", flush=True)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def save(folder: Path, model: TinyLlama, tokenizer: Tokenizer) -> None:
    """Write a model folder in Hugging Face layout, weights in BF16."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().to(torch.bfloat16).contiguous() for name, value in model.state_dict().items()}
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # save_file leaves it readable by its owner only
    _write_json(folder / "config.json", model.shape.config())
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "add_prefix_space": False,
            "bos_token": BOS,
            "clean_up_tokenization_spaces": False,
            "eos_token": EOS,
            "model_max_length": model.shape.positions,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


def load(folder: Path, dtype: torch.dtype = torch.float32) -> TinyLlama:
    """Read a model folder back; missing or surplus tensors are an error."""
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise SystemExit(f"{weights} does not exist; make that model first (run without --only).")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = TinyLlama(TinyShape(layers=config["num_hidden_layers"])).to(dtype)
    model.load_state_dict({name: value.to(dtype) for name, value in load_file(str(weights)).items()}, strict=True)
    return model


def _shuffle(count: int, generator: torch.Generator) -> Tensor:
    """Draw a permutation that is not the identity."""
    while True:
        order = torch.randperm(count, generator=generator)
        if not torch.equal(order, torch.arange(count)):
            return order


def permute(model: TinyLlama, seed: int) -> TinyLlama:
    """Reorder MLP neurons, KV groups, and query heads within their groups, leaving the function unchanged."""
    shape, generator = model.shape, torch.Generator().manual_seed(seed)
    group = shape.heads // shape.kv_heads
    state = dict(model.state_dict())
    for i in range(shape.layers):
        prefix = f"model.layers.{i}."
        neurons = _shuffle(shape.ffn, generator)
        groups = _shuffle(shape.kv_heads, generator)
        heads = torch.cat([g * group + _shuffle(group, generator) for g in groups])
        lanes = torch.arange(shape.head_dim)
        query = (heads[:, None] * shape.head_dim + lanes).flatten()
        key = (groups[:, None] * shape.head_dim + lanes).flatten()
        rows = {"mlp.gate_proj": neurons, "mlp.up_proj": neurons}
        rows |= {"self_attn.q_proj": query, "self_attn.k_proj": key, "self_attn.v_proj": key}
        columns = {"mlp.down_proj": neurons, "self_attn.o_proj": query}
        for name, order in rows.items():
            state[f"{prefix}{name}.weight"] = state[f"{prefix}{name}.weight"][order]
        for name, order in columns.items():
            state[f"{prefix}{name}.weight"] = state[f"{prefix}{name}.weight"][:, order]
    result = TinyLlama(shape)
    result.load_state_dict(state)
    return result


def check_same_function(first: Path, second: Path, tokens: Tokens) -> float:
    """Return the largest logit difference of two stored models, in float64; raise if it is more than rounding."""
    rows = tokens.held_out[:8, :-1]
    with torch.no_grad():
        difference = (load(first, torch.float64)(rows) - load(second, torch.float64)(rows)).abs().max()
    if float(difference) > 1e-9:
        raise RuntimeError(
            f"reordering changed the function: logits of {first} and {second} differ by {difference:.3g}"
        )
    return float(difference)


def grow(model: TinyLlama, source_layers: tuple[int, ...]) -> TinyLlama:
    """Stack copies of the layers, as SOLAR 10.7B does (Kim et al. 2023, arXiv:2312.15166)."""
    state = {k: v for k, v in model.state_dict().items() if not k.startswith("model.layers.")}
    for new, old in enumerate(source_layers):
        prefix = f"model.layers.{old}."
        for name, value in model.state_dict().items():
            if name.startswith(prefix):
                state[f"model.layers.{new}.{name.removeprefix(prefix)}"] = value
    result = TinyLlama(replace(model.shape, layers=len(source_layers)))
    result.load_state_dict(state)
    return result


def _start(member: Member, out: Path, documents: list[str]) -> tuple[TinyLlama, Tokenizer]:
    """Return the untrained starting point and the tokenizer."""
    if member.parent is None:
        assert member.init_seed is not None
        model = TinyLlama(TinyShape())
        model.initialise(member.init_seed)
        return model, train_tokenizer(documents, model.shape.vocab)
    # From the stored BF16 weights, as anyone deriving from a published model would.
    parent = load(out / member.parent)
    tokenizer = Tokenizer.from_file(str(out / member.parent / "tokenizer.json"))
    if member.permutation_seed is not None:
        return permute(parent, member.permutation_seed), tokenizer
    if member.source_layers is not None:
        return grow(parent, member.source_layers), tokenizer
    return parent, tokenizer


def norm_std(folder: Path) -> float:
    """Return the least standard deviation found among the norm gain vectors."""
    gains = [v.float() for k, v in load_file(str(folder / "model.safetensors")).items() if v.ndim == 1]
    return min(float(g.std()) for g in gains)


def make(name: str, out: Path, steps_scale: float) -> dict[str, object]:
    """Make one model and return its manifest entry."""
    member, began = FAMILY[name], perf_counter()
    documents = read_corpora(member.corpora, 1 if steps_scale >= 1 else TRIAL)
    model, tokenizer = _start(member, out, documents)
    tokens = tokenise(documents, tokenizer)
    entropy, before = tokens.unigram_entropy(model.shape.vocab), evaluate(model, tokens)
    print(f"{name}: {member.relation}\n  {len(tokens.train):,} training tokens, unigram entropy {entropy:.3f} nats")
    recipe = member.recipe
    if recipe is not None:
        recipe = replace(recipe, steps=max(2, round(recipe.steps * steps_scale)))
        train(model, tokens, recipe, report=reporter(name, recipe.steps))
    folder = out / name
    save(folder, model, tokenizer)
    after, spread = evaluate(load(folder), tokens), norm_std(folder)
    print(f"  held-out loss {before:.3f} -> {after:.3f}, least norm std {spread:.3f}, {perf_counter() - began:.0f} s")
    if steps_scale >= 1 and (after > LOSS_SHARE_OF_UNIGRAM * entropy or spread < NORM_STD_FLOOR):
        raise RuntimeError(f"{name} did not train: loss {after:.3f} of {entropy:.3f}, norm std {spread:.3f}")
    entry: dict[str, object] = {
        "relation": member.relation,
        "parents": [member.parent] if member.parent else [],
        "seeds": {"init": member.init_seed, "permutation": member.permutation_seed},
        "recipe": asdict(recipe) if recipe else None,
        "steps": recipe.steps if recipe else 0,
        "corpora": list(member.corpora),
        "corpus_sha256": hashlib.sha256("\0".join(documents).encode()).hexdigest(),
        "training_tokens": len(tokens.train),
        "unigram_entropy_nats": round(entropy, 4),
        "loss_before_nats": round(before, 4),
        "final_loss_nats": round(after, 4),
        "least_norm_std": round(spread, 4),
    }
    if member.source_layers is not None:
        entry["source_layers"] = list(member.source_layers)
    if member.permutation_seed is not None and member.parent is not None:
        difference = check_same_function(out / member.parent, folder, tokens)
        entry["largest_logit_difference"] = difference
        print(f"  same function as {member.parent}: largest logit difference {difference:.1e} in float64")
    entry["versions"] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tokenizers": tokenizers_version,
        "machine": f"{platform.system()} {platform.machine()}, {THREADS} threads",
    }
    entry["sha256"] = {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in FILES}
    return entry


def _rows(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Share of rows of ``a`` whose best match in ``b`` has the same index, and the mean best cosine."""
    cosine = torch.nn.functional.normalize(a, dim=1) @ torch.nn.functional.normalize(b, dim=1).T
    best, where = cosine.max(dim=1)
    return float((where == torch.arange(len(a))).double().mean()), float(best.mean())


def compare(base: Path, other: Path) -> dict[str, float]:
    """Compare a stored model with base, layer by layer (grown layers with the layer they were copied from)."""
    a, b = (load_file(str(folder / "model.safetensors")) for folder in (base, other))
    origin = FAMILY[other.name].source_layers or range(TinyShape().layers)
    result: dict[str, float] = {}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        raw, centred = [], []
        for new, old in enumerate(origin):
            x, y = a[f"model.layers.{old}.{norm}.weight"].double(), b[f"model.layers.{new}.{norm}.weight"].double()
            raw.append(torch.nn.functional.cosine_similarity(x, y, dim=0))
            centred.append(torch.nn.functional.cosine_similarity(x - x.mean(), y - y.mean(), dim=0))
        result[f"{norm}_cosine"] = round(float(torch.stack(raw).mean()), 4)
        result[f"{norm}_pearson"] = round(float(torch.stack(centred).mean()), 4)
    up = "model.layers.{}.mlp.up_proj.weight"
    pairs = [_rows(a[up.format(old)].double(), b[up.format(new)].double()) for new, old in enumerate(origin)]
    result["up_rows_same_index"] = round(sum(p[0] for p in pairs) / len(pairs), 4)
    result["up_rows_best_cosine"] = round(sum(p[1] for p in pairs) / len(pairs), 4)
    result["bytes"] = sum((other / file).stat().st_size for file in FILES)
    return result


def measure(out: Path) -> dict[str, dict[str, float]]:
    """Read the folders back, print the comparison with base and return it."""
    table = {name: compare(out / "base", out / name) for name in FAMILY if (out / name / "model.safetensors").is_file()}
    for name, row in table.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    print(f"total bytes: {sum(int(row['bytes']) for row in table.values()):,}")
    return table


def build(out: Path, names: list[str], steps_scale: float) -> None:
    """Make the named models and write the manifest, keeping the entries of models not remade."""
    out.mkdir(parents=True, exist_ok=True)
    manifest = out / "MANIFEST.json"
    known = json.loads(manifest.read_text(encoding="utf-8"))["models"] if manifest.is_file() else {}
    for name in names:
        known[name] = make(name, out, steps_scale)
    _write_json(
        manifest,
        {
            "note": NOTE,
            "generator": "demo/make_models.py",
            "models": {name: known[name] for name in FAMILY if name in known},
            "measured_against_base": measure(out),
        },
    )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder to write the model folders and MANIFEST.json to")
    parser.add_argument("--only", choices=list(FAMILY), help="make this model alone (its parent must be there)")
    parser.add_argument("--steps-scale", type=float, default=1.0, help="multiply every number of steps by this")
    parser.add_argument("--smoke", action="store_true", help="a few steps each; into a temporary folder unless --out")
    parser.add_argument("--measure", type=Path, metavar="DIR", help="only compare the models of DIR with base")
    arguments = parser.parse_args()
    torch.set_deterministic_debug_mode("error")
    torch.set_num_threads(1 if arguments.smoke else THREADS)
    if arguments.measure:
        measure(arguments.measure)
        return
    names = [arguments.only] if arguments.only else list(FAMILY)
    if arguments.smoke:
        with tempfile.TemporaryDirectory(prefix="kinprint-demo-") as temporary:
            build(arguments.out or Path(temporary), names, 0.002)
        return
    if arguments.out is None:
        parser.error("--out is needed (or --smoke)")
    if arguments.steps_scale <= 0:
        parser.error(f"--steps-scale must be positive, got {arguments.steps_scale}")
    build(arguments.out, names, arguments.steps_scale)


if __name__ == "__main__":
    main()
