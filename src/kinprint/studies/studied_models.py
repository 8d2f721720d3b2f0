"""Name the models of the published studies and how each is drawn; any other model can take their place."""

from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal

from kinprint.errors import BadSelection

Kind = Literal["moe", "dense", "?"]


@dataclass(frozen=True)
class KnownModel:
    """A studied model: its hub id, and its look in every figure (colours after Okabe & Ito 2008, with markers beside them)."""

    name: str
    repo: str
    kind: Kind
    colour: str
    marker: str


_MODELS = (
    KnownModel("Solar", "upstage/Solar-Open-100B", "moe", "#D55E00", "o"),
    KnownModel("GLM", "zai-org/GLM-4.5-Air", "moe", "#0072B2", "s"),
    KnownModel("INTELLECT", "PrimeIntellect/INTELLECT-3", "moe", "#56B4E9", "^"),
    KnownModel("Phi", "microsoft/Phi-3.5-MoE-instruct", "moe", "#009E73", "D"),
    KnownModel("Mixtral", "mistralai/Mixtral-8x7B-Instruct-v0.1", "moe", "#CC79A7", "v"),
    KnownModel("Mistral", "mistralai/Mistral-7B-Instruct-v0.3", "dense", "#882255", "<"),
    KnownModel("Yi-6B", "01-ai/Yi-1.5-6B-Chat", "dense", "#999933", ">"),
    KnownModel("Yi-9B", "01-ai/Yi-1.5-9B-Chat", "dense", "#E69F00", "P"),
    KnownModel("InternLM2", "internlm/internlm2-chat-7b", "dense", "#332288", "X"),
    KnownModel("Qwen1.5", "Qwen/Qwen1.5-7B-Chat", "dense", "#777777", "*"),
    KnownModel("Qwen3-4B", "Qwen/Qwen3-4B", "dense", "#44AA99", "p"),
    KnownModel("Qwen3-14B", "Qwen/Qwen3-14B", "dense", "#117733", "h"),
    KnownModel("Mixtral-8x22B", "mistralai/Mixtral-8x22B-Instruct-v0.1", "moe", "#AA4499", "d"),
    KnownModel("DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V2-Lite", "moe", "#661100", "8"),
    KnownModel("Qwen2.5-72B", "Qwen/Qwen2.5-72B-Instruct", "dense", "#000000", "H"),
)
KNOWN = {item.name: item for item in _MODELS}
_BY_REPO = {item.repo.lower(): item for item in _MODELS}
SPARE = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"))


@dataclass(frozen=True)
class ModelChoice:
    """A model given to a study: its name in tables and figures, and where it is."""

    name: str
    reference: str
    known: KnownModel | None


def choose_models(
    models: tuple[str, ...], default: tuple[str, ...], *, replicas: bool = False
) -> tuple[ModelChoice, ...]:
    """Return the models of a study: those given (``NAME=REFERENCE``, a known name, or a reference), else its own.

    A replica stands for the model whose name it bears, wherever it lies; any other model is known by its repository alone.
    `BadSelection` if two models would have the same name.
    """
    if not models:
        return tuple(ModelChoice(name, KNOWN[name].repo, KNOWN[name]) for name in default)
    chosen = [_one(text) for text in models]
    if replicas:
        chosen = [replace(item, known=KNOWN.get(item.name)) for item in chosen]
    names = [item.name for item in chosen]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        hint = f"name one of them: {twice}-2=REFERENCE"
        raise BadSelection(f"two models are called {twice!r}: expected different names", hint=hint)
    return tuple(chosen)


def _one(text: str) -> ModelChoice:
    name, equals, reference = text.partition("=")
    if equals and name and "/" not in name and ":" not in name:
        return ModelChoice(name, reference, _BY_REPO.get(_repo(reference)))
    if text in KNOWN:
        return ModelChoice(text, KNOWN[text].repo, KNOWN[text])
    known = _BY_REPO.get(_repo(text))
    return ModelChoice(known.name if known else PurePath(text.split("@")[0]).name or text, text, known)


def _repo(reference: str) -> str:
    return reference.removeprefix("hf://").partition("@")[0].lower()


def look(name: str, position: int = 0) -> tuple[str, str]:
    """Return colour and marker of a model; one that is not known gets the next spare."""
    known = KNOWN.get(name)
    return (known.colour, known.marker) if known else SPARE[position % len(SPARE)]
