"""Read from an adapter_config.json (PEFT) the kind, rank and scale of an adapter, and the model it belongs to.

The config is untrusted. A setting that would change the meaning of the stored matrices and is not known is refused by name;
regular expressions are not run.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kinprint._util.files import is_there, user_path
from kinprint._util.plain import printable
from kinprint.errors import BadReference, FormatError, NotFound
from kinprint.formats.adapters.files import ADAPTER_CONFIG
from kinprint.refs import ModelRef, parse_ref, quotable

GIVE_BASE = "name the model that the adapter belongs to with --base MODEL"
MERGE = "merge the adapter with PEFT and compare the result"
MAX_RANK = 1 << 16
MAX_PATTERNS = 1 << 16
_LIMIT = 1e6  # of alpha: no sound adapter comes near, and products stay finite

# Settings under which W + scale·B·A is not what the model computes with.
_CHANGING = (
    "layer_replication", "target_parameters", "trainable_token_indices", "alora_invocation_tokens",
    "use_qalora", "use_bdlora", "arrow_config", "lora_bias",
)  # fmt: skip
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")  # the others take a part out of the base itself
_LITERAL = re.compile(r"[A-Za-z0-9_.\-]{1,500}")
_REVISION = re.compile(r"[^\s@/]{1,200}")


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Settings of a LoRA adapter."""

    rank: int  # this and alpha: of modules that no pattern names
    alpha: float
    # ends of module paths with values of their own; a leading ``^`` means the whole path. No pattern of ranks (None) stands
    # for regular expressions: the shapes tell the ranks
    rank_pattern: Mapping[str, float] | None = field(default_factory=dict)
    alpha_pattern: Mapping[str, float] = field(default_factory=dict)
    by_root: bool = False  # whether alpha is divided by √rank instead of the rank (rsLoRA, Kalajdzievski 2023)
    transposed: bool = False  # whether the base's matrices are in × out (``fan_in_fan_out``), if shapes do not tell
    magnitudes: bool = False  # whether rows have learned lengths (DoRA, Liu et al. 2024).
    saved: tuple[str, ...] = ()  # names of modules that are replaced whole
    base: str | None = None  # this and its revision: the model that the adapter declares to belong to
    revision: str | None = None

    def rank_of(self, path: str) -> float | None:
        """Return the rank that a module should have, if that is known."""
        return None if self.rank_pattern is None else _looked_up(self.rank_pattern, path, self.rank)

    def alpha_of(self, path: str) -> float:
        """Return a module's alpha."""
        return _looked_up(self.alpha_pattern, path, self.alpha)

    def scale(self, path: str, rank: int) -> float:
        """Return the factor of B·A."""
        return self.alpha_of(path) / (math.sqrt(rank) if self.by_root else rank)


def _looked_up(pattern: Mapping[str, float], path: str, default: float) -> float:
    """Return the value of the first pattern that is an end of the path, as PEFT does."""
    if not pattern:
        return default
    bits = path.split(".")
    ends = {".".join(bits[start:]) for start in range(len(bits))} | {f"^{path}"}
    if ends.isdisjoint(pattern):
        return default
    return next(value for key, value in pattern.items() if key in ends)  # the first as the config lists them


def read_settings(document: Mapping[str, object], label: str) -> LoraSettings:
    """Check an adapter's config. Raise FormatError for a kind that cannot be merged, and for impossible values."""
    where = f"{label}: {ADAPTER_CONFIG}"
    kind = document.get("peft_type")
    if kind != "LORA":
        said = f"adapter type {_short(kind)} is not known" if kind is not None else "the adapter does not say its type"
        raise FormatError(f"{where}: {said}; known: 'LORA'", hint=MERGE)
    for name in _CHANGING:
        if document.get(name):
            raise FormatError(f"{where}: {name} is set, with which adapters are not merged here", hint=MERGE)
    start = document.get("init_lora_weights")
    if not (isinstance(start, bool) or start in _PLAIN_STARTS):
        said = f"{where}: init_lora_weights is {_short(start)}, with which the base's own weights are changed before training"
        raise FormatError(said, hint="convert the adapter to plain LoRA with PEFT, or merge it and compare the result")
    rank = _number(document.get("r"), f"{where}: r", least=1, most=MAX_RANK)
    if rank != int(rank):
        raise FormatError(f"{where}: r is {rank}, expected an integer")
    saved, revision = document.get("modules_to_save"), document.get("revision")
    alphas = _pattern(document.get("alpha_pattern"), f"{where}: alpha_pattern")
    if alphas is None:
        said = f"{where}: alpha_pattern holds regular expressions, which are not run; expected names of modules"
        raise FormatError(said, hint=MERGE)
    return LoraSettings(
        rank=int(rank),
        alpha=_number(document.get("lora_alpha"), f"{where}: lora_alpha"),
        rank_pattern=_pattern(document.get("rank_pattern"), f"{where}: rank_pattern"),
        alpha_pattern=alphas,
        by_root=bool(document.get("use_rslora")),
        transposed=bool(document.get("fan_in_fan_out")),
        magnitudes=bool(document.get("use_dora")),
        saved=tuple(name for name in saved if isinstance(name, str)) if isinstance(saved, list) else (),
        base=declared_base(document),
        revision=revision if isinstance(revision, str) and _REVISION.fullmatch(revision) else None,
    )


def declared_base(document: Mapping[str, object]) -> str | None:
    """Return the model that the adapter names as its base."""
    name = document.get("base_model_name_or_path")
    return name.strip() if isinstance(name, str) and name.strip() else None


def _short(value: object) -> str:
    return printable(repr(value), 60)


def _number(value: object, where: str, *, least: float = -_LIMIT, most: float = _LIMIT) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise FormatError(f"{where} is {_short(value)}, expected a number from {least:g} to {most:g}")


def _pattern(value: object, where: str) -> dict[str, float] | None:
    """Return values by the end of a path, or with ``^`` before it by the whole; None if there are regular expressions."""
    if not value:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_PATTERNS:
        raise FormatError(f"{where} is {_short(value)}, expected at most {MAX_PATTERNS} names with numbers")
    found: dict[str, float] = {}
    for key, number in value.items():
        plain = key.replace("\\.", ".").removesuffix("$")
        if not _LITERAL.fullmatch(plain.removeprefix("^")):
            return None
        found.setdefault(plain, _number(number, f"{where}: {_short(key)}"))
    return found


def base_reference(name: str, revision: str | None, *, here: bool, label: str, endpoint: str) -> ModelRef:
    """Return where an adapter's declared base is; a path of this machine only for an adapter that is on it, too (`here`)."""
    # An address is not followed: it could be any host, chosen by whoever wrote the config.
    if "://" in name and not name.startswith("hf://"):
        said = f"{label}: the adapter declares an address as its base, {_short(quotable(name))}, which is not followed"
        raise BadReference(said, hint=GIVE_BASE)
    if here and not name.startswith("hf://") and is_there(user_path(name)):
        return parse_ref(name, endpoint=endpoint)
    if name.count("/") > 1 and not name.startswith("hf://"):
        said = f"{label}: the adapter declares the base {_short(name)}, a path that is not here"
        raise NotFound(said, hint=GIVE_BASE)
    try:
        ref = parse_ref(name if name.startswith("hf://") else f"hf://{name}", endpoint=endpoint)
    except BadReference as error:
        said = f"{label}: the adapter declares the base {_short(name)}, which is neither here nor a name on the hub"
        raise NotFound(said, hint=GIVE_BASE) from error
    ref = replace(ref, text=ref.text.removeprefix("hf://"))
    return replace(ref, revision=revision) if ref.revision is None and revision else ref
