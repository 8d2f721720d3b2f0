"""Train the test family: tiny models related to the demo's base in the ways that are hard to tell, or not at all.

Usage::

    python demo/make_family.py --out tests/family [--only NAME ...] [--steps-scale 1.0]
    python demo/make_family.py --measure tests/family
    python demo/make_family.py --smoke

Every model has the shape and layout of demo/models/base, which must be there (``--base``). One thread, explicit seeds:
a second run on one machine gives the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers import __version__ as tokenizers_version
from torch import Tensor

from kinprint.lab.zoo.corpus import read_corpora
from kinprint.lab.zoo.derive import all_symmetries, permute_and_flip, rotate_residual, stored
from kinprint.lab.zoo.tinylm import (
    Loss,
    Recipe,
    TinyLlama,
    TinyShape,
    evaluate,
    token_loss,
    tokenise,
    train,
    train_tokenizer,
)
from kinprint.lab.zoo.tinymore import (
    MixtralShape,
    TinyMixtral,
    add_lora,
    balanced_loss,
    distillation_loss,
    matching_loss,
    merge_lora,
    upcycle,
)
from kinprint.lab.zoo.training import model_of, state_of
from make_models import FILES, NOTE, TRIAL, load, norm_std, reporter, save
from make_models import _write_json as write_json

THREADS = 1
BASE = Path(__file__).parent / "models" / "base"
OWN_TEXT = ("manual-even", "docstrings-am")
OTHER_TEXT = ("manual-odd", "docstrings-nz")
ENDS = ("model.embed_tokens.weight", "lm_head.weight")
LORA_TARGETS = ("q_proj", "v_proj", "up_proj", "down_proj")
# A full-length run that misses this has not made the models the family claims to have.
LOSS_SHARE_OF_UNIGRAM = 0.75

Start = Callable[[TinyLlama, int], TinyLlama]


def fresh(base: TinyLlama, seed: int) -> TinyLlama:
    """Return an initialised model of base's shape."""
    model = TinyLlama(base.shape)
    model.initialise(seed)
    return model


def copy(base: TinyLlama, seed: int) -> TinyLlama:  # noqa: ARG001 - every start has this signature
    """Return base itself."""
    return base


def with_norms_of_base(base: TinyLlama, seed: int) -> TinyLlama:
    """Return an initialised model with base's norm gains."""
    model = fresh(base, seed)
    gains = {name: value for name, value in base.state_dict().items() if value.ndim == 1}
    model.load_state_dict(model.state_dict() | gains)
    return model


def with_ends_of_base(base: TinyLlama, seed: int) -> TinyLlama:
    """Return an initialised model with base's embeddings and head, frozen."""
    model = fresh(base, seed)
    for name, parameter in model.named_parameters():
        if name in ENDS:
            parameter.data.copy_(base.get_parameter(name).data)
            parameter.requires_grad_(False)
    return model


def without_norms(base: TinyLlama, seed: int) -> TinyLlama:  # noqa: ARG001 - every start has this signature
    """Return base with every norm gain set to one."""
    ones = {name: torch.ones_like(value) for name, value in base.state_dict().items() if value.ndim == 1}
    base.load_state_dict(base.state_dict() | ones)
    return base


def without_vocabulary(base: TinyLlama, seed: int) -> TinyLlama:
    """Return base with embeddings and head drawn anew."""
    drawn = fresh(base, seed).state_dict()
    base.load_state_dict(base.state_dict() | {name: drawn[name] for name in ENDS})
    return base


def with_lora(base: TinyLlama, seed: int) -> TinyLlama:
    """Return base, frozen, with adapters."""
    add_lora(base, LORA_TARGETS, rank=4, scale=2.0, seed=seed)
    return base


def with_experts(base: TinyLlama, seed: int) -> TinyLlama:
    """Return base with each feed-forward block copied into four experts."""
    return upcycle(base, experts=4, seed=seed)


def rotated(base: TinyLlama, seed: int) -> TinyLlama:
    """Return base with its norms folded and its residual stream rotated, rounded as it would be stored."""
    state, config = rotate_residual(state_of(base), base.shape.config(), seed)
    return model_of(stored(state, "BF16"), config)


def permuted(base: TinyLlama, seed: int) -> TinyLlama:
    """Return base with neurons, heads and residual dimensions reordered, and signs of these flipped."""
    config = base.shape.config()
    return model_of(permute_and_flip(state_of(base), config, seed), config)


def disguised(base: TinyLlama, seed: int) -> TinyLlama:
    """Return base after every symmetry at once, rounded as it would be stored."""
    state, config = all_symmetries(state_of(base), base.shape.config(), seed)
    return model_of(stored(state, "BF16"), config)


@dataclass(frozen=True)
class Member:
    """One model of the family: where it comes from and how it is trained.

    ``shares`` says which of base's weights it started from; ``parent`` is the demo model that stands for base.
    """

    relation: str
    corpora: tuple[str, ...]
    recipe: Recipe
    start: Start
    shares: str
    init_seed: int | None = None
    own_tokenizer: bool = False
    taught: Callable[[TinyLlama], Loss] | None = None  # base as a teacher: its loss
    parent: str = "base"
    notes: dict[str, object] = field(default_factory=dict)


def _recipe(steps: int, learning_rate: float, data_seed: int) -> Recipe:
    return Recipe(steps=steps, learning_rate=learning_rate, data_seed=data_seed)


def _short(steps: int, learning_rate: float, data_seed: int) -> Recipe:
    """Fine-tune on a quarter of the text a step: enough to move the weights, and four times as fast."""
    return Recipe(steps, learning_rate, data_seed, batch=8, sequence=64)


def _distilled(number: int) -> Member:
    return Member(
        relation=f"no weights of base: fresh init {number} of 2, trained on base's logits alone, same text and order",
        corpora=OWN_TEXT,
        recipe=_recipe(700, 4e-3, 1402),
        start=fresh,
        shares="none",
        init_seed=1400 + 10 * number,
        taught=distillation_loss,
    )


# In order of importance, which is the order of training.
FAMILY: dict[str, Member] = {
    "sibling": Member(
        relation="same initial weights as base, then other text in another order; base's tokenizer",
        corpora=OTHER_TEXT,
        recipe=_recipe(1200, 4e-3, 1102),
        start=fresh,
        shares="the initial weights",
        init_seed=101,
    ),
    "continued": Member(
        relation="base pretrained much further on other text at base's own peak learning rate",
        corpora=("source-am", "docstrings-nz"),
        recipe=_recipe(1000, 4e-3, 1202),
        start=copy,
        shares="all",
    ),
    "twin": Member(
        relation="no weights of base: other initial weights, the same text in the same order, same tokenizer",
        corpora=OWN_TEXT,
        recipe=_recipe(1200, 4e-3, 102),
        start=fresh,
        shares="none",
        init_seed=1301,
    ),
    "distilled_1": _distilled(1),
    "distilled_2": _distilled(2),
    "norms_copied": Member(
        relation="only base's norm gains: all else drawn anew, then everything trained on other text",
        corpora=OTHER_TEXT,
        recipe=_recipe(600, 2e-3, 1502),
        start=with_norms_of_base,
        shares="norm gains",
        init_seed=1501,
    ),
    "draft": Member(
        relation="base's embeddings and head, frozen, as a draft model has them: all else drawn anew, then trained on base's text",
        corpora=OWN_TEXT,
        recipe=_recipe(600, 4e-3, 2502),
        start=with_ends_of_base,
        shares="embeddings and head",
        init_seed=2501,
    ),
    "lora": Member(
        relation="base with low-rank adapters trained on other text and merged",
        corpora=("source-am",),
        recipe=_recipe(250, 2e-3, 1602),
        start=with_lora,
        shares="all",
        init_seed=1601,
        notes={"rank": 4, "scale": 2.0, "targets": list(LORA_TARGETS)},
    ),
    "norms_reset": Member(
        relation="base with every norm gain set to one, then everything trained on other text",
        corpora=OTHER_TEXT,
        recipe=_recipe(300, 2e-3, 1702),
        start=without_norms,
        shares="all but norm gains",
    ),
    "revocab": Member(
        relation="base with a tokenizer of other text, embeddings and head drawn anew, then everything trained",
        corpora=OTHER_TEXT,
        recipe=_recipe(400, 2e-3, 1802),
        start=without_vocabulary,
        shares="all but embeddings and head",
        init_seed=1801,
        own_tokenizer=True,
    ),
    "upcycled": Member(
        relation="base with each feed-forward block copied into four experts and a router, then trained",
        corpora=OWN_TEXT,
        recipe=_recipe(150, 1e-3, 1902),
        start=with_experts,
        shares="all, feed-forward blocks four times over",
        init_seed=1901,
        notes={"experts": 4, "experts_per_token": 2, "balancing_loss": 0.02},
    ),
    "indep": Member(
        relation="none: other initial weights, other text, other order; base's tokenizer",
        corpora=("source-am", "manual-odd"),
        recipe=_recipe(800, 4e-3, 2002),
        start=fresh,
        shares="none",
        init_seed=2001,
    ),
    "rotated_tuned": Member(
        relation="base with norms folded and residual stream rotated (the same function), then fine-tuned on other text",
        corpora=("source-am",),
        recipe=_short(300, 1e-3, 2102),
        start=rotated,
        shares="all, in another basis",
        init_seed=2101,
    ),
    "permuted_tuned": Member(
        relation="base with neurons, heads and residual dimensions reordered and signs flipped (the same function), "
        "then fine-tuned on other text",
        corpora=("source-am",),
        recipe=_short(300, 1e-3, 2202),
        start=permuted,
        shares="all, in another order",
        init_seed=2201,
    ),
    "disguised_tuned": Member(
        relation="base after every symmetry at once: reordered, rescaled, turned, rotated (the same function), then "
        "fine-tuned on other text",
        corpora=("source-am",),
        recipe=_short(300, 1e-3, 2302),
        start=disguised,
        shares="all, in another order and basis",
        init_seed=2301,
    ),
    "hidden_matched": Member(
        relation="no weights of base: fresh init, trained on base's logits and hidden states, other text",
        corpora=OTHER_TEXT,
        recipe=_short(500, 4e-3, 2502),
        start=fresh,
        shares="none",
        init_seed=2501,
        taught=matching_loss,
    ),
    "child_of_child": Member(
        relation="the demo's fine-tune of base, fine-tuned again on a third text",
        corpora=OTHER_TEXT,
        recipe=_short(300, 1e-3, 2402),
        start=copy,
        shares="all",
        parent="finetune",
    ),
}


def reload(folder: Path) -> TinyLlama:
    """Read a stored model back, dense or with experts."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "mixtral":
        return load(folder)
    model = TinyMixtral(MixtralShape(layers=config["num_hidden_layers"], experts=config["num_local_experts"]))
    weights = load_file(str(folder / "model.safetensors"))
    model.load_state_dict({name: value.float() for name, value in weights.items()}, strict=True)
    return model


def make(name: str, base: Path, out: Path, steps_scale: float) -> dict[str, object]:
    """Make one model and return its manifest entry."""
    member, began = FAMILY[name], perf_counter()
    documents = read_corpora(member.corpora, 1 if steps_scale >= 1 else TRIAL)
    # From the stored BF16 weights, as anyone deriving from a published model would.
    model = member.start(load(base.parent / member.parent), member.init_seed or 0)
    if member.own_tokenizer:
        tokenizer = train_tokenizer(documents, model.shape.vocab)
    else:
        tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokens = tokenise(documents, tokenizer)
    entropy, before = tokens.unigram_entropy(model.shape.vocab), evaluate(model, tokens)
    print(f"{name}: {member.relation}\n  {len(tokens.train):,} training tokens, unigram entropy {entropy:.3f} nats")
    loss_of = token_loss
    if member.taught:
        loss_of = member.taught(load(base))
    elif isinstance(model, TinyMixtral):
        loss_of = balanced_loss
    recipe = replace(member.recipe, steps=max(2, round(member.recipe.steps * steps_scale)))
    train(model, tokens, recipe, loss_of=loss_of, report=reporter(name, recipe.steps))
    merge_lora(model)
    folder = out / name
    save(folder, model, tokenizer)
    after, spread, seconds = evaluate(reload(folder), tokens), norm_std(folder), perf_counter() - began
    print(f"  held-out loss {before:.3f} -> {after:.3f}, least norm std {spread:.3f}, {seconds:.0f} s", flush=True)
    if steps_scale >= 1 and after > LOSS_SHARE_OF_UNIGRAM * entropy:
        raise RuntimeError(f"{name} did not train: loss {after:.3f} of {entropy:.3f}")
    return {
        "relation": member.relation,
        "shares": member.shares,
        "parents": [] if member.start is fresh else [f"demo/models/{member.parent}"],
        **({"teacher": "demo/models/base"} if member.taught else {}),
        **member.notes,
        "seeds": {"init": member.init_seed},
        "recipe": asdict(recipe),
        "steps": recipe.steps,
        "tokenizer": "own" if member.own_tokenizer else "that of base",
        "corpora": list(member.corpora),
        "corpus_sha256": hashlib.sha256("\0".join(documents).encode()).hexdigest(),
        "training_tokens": len(tokens.train),
        "unigram_entropy_nats": round(entropy, 4),
        "loss_before_nats": round(before, 4),
        "final_loss_nats": round(after, 4),
        "least_norm_std": round(spread, 4),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "tokenizers": tokenizers_version,
            "machine": f"{platform.system()} {platform.machine()}, {THREADS} thread",
        },
        "sha256": {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in FILES},
    }


def _pearson(a: Tensor, b: Tensor) -> float:
    """Mean over rows of the correlation between rows of the same index."""
    a, b = (x.double() - x.double().mean(-1, keepdim=True) for x in (a, b))
    return float(torch.nn.functional.cosine_similarity(a, b, dim=-1).mean())


def _best_index(a: Tensor, b: Tensor) -> float:
    """Share of rows of ``a`` whose most similar row in ``b`` has the same index."""
    cosine = torch.nn.functional.normalize(a.double(), dim=1) @ torch.nn.functional.normalize(b.double(), dim=1).T
    return float((cosine.argmax(dim=1) == torch.arange(len(a))).double().mean())


def compare(base: Path, other: Path) -> dict[str, float]:
    """Compare a stored model with base: means over layers (and experts) of correlations of rows of the same index."""
    a, b = (load_file(str(folder / "model.safetensors")) for folder in (base, other))
    names: dict[str, list[tuple[Tensor, Tensor]]] = {"up": [], "q": [], "input_norm": [], "post_attention_norm": []}
    for layer in range(TinyShape().layers):
        prefix = f"model.layers.{layer}."
        ups = [v for k, v in b.items() if k.startswith(prefix) and k.endswith(("up_proj.weight", "w3.weight"))]
        names["up"] += [(a[f"{prefix}mlp.up_proj.weight"], up) for up in ups]
        for key, tensor in (
            ("q", "self_attn.q_proj"),
            ("input_norm", "input_layernorm"),
            ("post_attention_norm", "post_attention_layernorm"),
        ):
            names[key].append((a[f"{prefix}{tensor}.weight"], b[f"{prefix}{tensor}.weight"]))
    result = {f"{key}_pearson": sum(_pearson(*pair) for pair in pairs) / len(pairs) for key, pairs in names.items()}
    result["up_best_match_same_index"] = sum(_best_index(*pair) for pair in names["up"]) / len(names["up"])
    result["embedding_pearson"] = _pearson(a["model.embed_tokens.weight"], b["model.embed_tokens.weight"])
    rounded = {key: round(value, 4) for key, value in result.items()}
    return rounded | {"bytes": sum((other / file).stat().st_size for file in FILES)}


def measure(base: Path, out: Path) -> dict[str, dict[str, float]]:
    """Read the folders back, print the comparison with base and return it."""
    table = {name: compare(base, out / name) for name in FAMILY if (out / name / "model.safetensors").is_file()}
    for name, row in table.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    print(f"total bytes: {sum(int(row['bytes']) for row in table.values()):,}")
    return table


def build(base: Path, out: Path, names: list[str], steps_scale: float) -> None:
    """Make the named models, writing the manifest after each and keeping the entries of models not remade."""
    out.mkdir(parents=True, exist_ok=True)
    manifest = out / "MANIFEST.json"
    known = json.loads(manifest.read_text(encoding="utf-8"))["models"] if manifest.is_file() else {}
    content = {
        "note": NOTE,
        "generator": "demo/make_family.py",
        "base_sha256": hashlib.sha256((base / "model.safetensors").read_bytes()).hexdigest(),
    }
    for name in names:
        known[name] = make(name, base, out, steps_scale)
        models = {name: known[name] for name in FAMILY if name in known}
        write_json(manifest, content | {"models": models})
    write_json(manifest, content | {"models": models, "measured_against_base": measure(base, out)})


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder to write the model folders and MANIFEST.json to")
    parser.add_argument("--base", type=Path, default=BASE, help="the model all are made from or compared with")
    parser.add_argument("--only", choices=list(FAMILY), nargs="+", help="make these models alone")
    parser.add_argument("--steps-scale", type=float, default=1.0, help="multiply every number of steps by this")
    parser.add_argument("--smoke", action="store_true", help="a few steps each; into a temporary folder unless --out")
    parser.add_argument("--measure", type=Path, metavar="DIR", help="only compare the models of DIR with base")
    arguments = parser.parse_args()
    torch.set_deterministic_debug_mode("error")
    torch.set_num_threads(THREADS)
    names = arguments.only or list(FAMILY)
    if arguments.measure:
        measure(arguments.base, arguments.measure)
    elif arguments.smoke:
        with tempfile.TemporaryDirectory(prefix="kinprint-family-") as temporary:
            build(arguments.base, arguments.out or Path(temporary), names, 0.002)
    elif arguments.out is None:
        parser.error("--out is needed (or --smoke)")
    elif arguments.steps_scale <= 0:
        parser.error(f"--steps-scale must be positive, got {arguments.steps_scale}")
    else:
        build(arguments.base, arguments.out, names, arguments.steps_scale)


if __name__ == "__main__":
    main()
