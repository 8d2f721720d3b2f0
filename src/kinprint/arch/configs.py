"""Read sizes from a model's config, under whatever names they have there.

Configs come from strangers: a value of the wrong type, negative or absurdly large counts as absent, and a note says so.
"""

import math
from collections.abc import Mapping, Sequence

from kinprint.arch.roles import Axis
from kinprint.arch.templates import Condition, DimRule, Formula
from kinprint.text import Text, Value

_NESTED = ("text_config", "llm_config", "language_config")  # where multimodal wrappers keep the language model's config
_LIMITS = {"layers": 9_999, "experts": 9_999, "mtp": 9_999}  # more have no place in a name (see templates)
_LIMIT = 1 << 30
_MAY_BE_ZERO = frozenset({"experts", "mtp"})


def flattened(config: Mapping[str, object]) -> dict[str, object]:
    """Merge the nested config of the language model, whose entries take precedence, into the outer one."""
    inner = next((part for key in _NESTED if isinstance(part := config.get(key), Mapping)), {})
    return {**config, **{name: value for name, value in inner.items() if value is not None}}


def selecting_names(config: Mapping[str, object]) -> list[str]:
    """List what a config calls its architecture, the most specific first; one made from GGUF metadata is marked as that."""
    if config.get("gguf") is True:
        return [f"gguf:{str(config.get('model_type', '')).lower()}", "gguf"]
    names: list[str] = []
    for part in [*(inner for key in _NESTED if isinstance(inner := config.get(key), Mapping)), config]:
        classes, kind = part.get("architectures"), part.get("model_type")
        names += [kind.lower()] if isinstance(kind, str) else []
        names += [name for name in classes if isinstance(name, str)] if isinstance(classes, (list, tuple)) else []
        names += [name] if isinstance(name := part.get("_class_name"), str) else []  # of diffusers
    return names


class Dims:
    """The sizes of a model, by an architecture's rules from its config; `measured` sizes stand in where that says nothing."""

    def __init__(
        self,
        rules: Mapping[str, tuple[DimRule, ...]],
        config: Mapping[str, object],
        measured: Mapping[str, int] | None = None,
    ) -> None:
        self._measured = measured or {}
        self._rules = rules
        self._config = config
        self._busy: set[str] = set()
        self.notes: dict[Text, None] = {}  # in order, without repetition
        self.values: dict[str, int] = {}
        for name in rules:
            self._resolve(name)

    def _resolve(self, name: str) -> int | None:
        if name in self.values or name in self._busy:
            return self.values.get(name)
        self._busy.add(name)
        found = self._first(name, self._rules.get(name, ()))
        self._busy.discard(name)
        value = self._measured.get(name) if found is None else found
        if value is not None:
            self.values[name] = value
        return value

    def _first(self, name: str, rules: tuple[DimRule, ...]) -> int | None:
        for rule in rules:
            if isinstance(rule, Condition):
                flag = self._config.get(rule.flag)
                if flag if isinstance(flag, bool) else rule.default:
                    return self._first(name, rule.then)
            elif (value := self._value(name, rule)) is not None:
                return value
        return None

    def _value(self, name: str, rule: str | int | Formula) -> int | None:
        if isinstance(rule, int):
            return rule
        if isinstance(rule, str):
            return self._entry(name, rule)
        result = 1
        for operator, dim in rule.terms:
            term = self._resolve(dim)
            if term is None or (operator == "/" and result % term):
                return None
            result = result * term if operator == "*" else result // term
        return result if result <= _LIMIT else None

    def _entry(self, name: str, key: str) -> int | None:
        value = self._config.get(key)
        if value is None:  # configs write null for "as usual"
            return None
        limit = _LIMITS.get(name, _LIMIT)
        if (count := _count(value, limit)) is not None:
            return count
        if not (value == 0 and name in _MAY_BE_ZERO):
            told: dict[str, Value] = {"key": key, "value": _shown(value), "n": limit}
            self.notes[Text("config: {key} is {value}, not a number from 1 to {n}; taken as absent", **told)] = None
        return None


def _shown(value: object) -> str:
    """Describe a value of unknown type and size in a few characters."""
    if isinstance(value, int):
        return str(value) if abs(value) < 10**12 else Text("beyond all measure")  # str() of a huge int may raise
    if isinstance(value, (str, float)):
        return repr(value[:24] if isinstance(value, str) else value)
    return Text("of type {name}", name=type(value).__name__)


_FIXED_POSITIONS = (
    "whisper", "marian", "m2m_100", "nllb-moe", "speech_to_text", "fsmt", "pegasus", "pegasus_x", "informer", "xglm", "ctrl",
    "seamless_m4t", "seamless_m4t_v2", "musicgen", "musicgen_melody", "musicgen_decoder", "musicgen_melody_decoder",
    "speecht5", "trocr", "vit_mae", "videomae", "ijepa",
    "pixio", "kimi_k25_vision", "audioflamingo3_encoder", "qwen2_audio_encoder", "qwen3_asr_encoder", "voxtral_encoder",
    "moss_transcribe_diarize_audio", "qwen2_5_omni_audio_encoder", "fun_asr_nano_encoder", "canary", "cohere_asr",
)  # fmt: skip


_GROUPED_POSITIONS = (
    "wav2vec2", "hubert", "unispeech", "unispeech-sat", "sew", "sew-d", "data2vec-audio", "wavlm", "wav2vec2-conformer",
)  # fmt: skip


def ordered_axes(config: Mapping[str, object]) -> dict[Axis, Text]:
    """Return the axes that have an order of their own in a model with this config, with the reason."""
    # Fixed sinusoidal positions are added to the residual stream of every such model in the same dimensions: two separately
    # trained Whisper encoders show a norm correlation of 0.19. Experts routed in groups are alike within a group.
    flat = flattened(config)
    found: dict[Axis, Text] = {}
    if flat.get("sinusoidal_pos_embds") is True or str(flat.get("model_type")) in _FIXED_POSITIONS:
        found[Axis.RESIDUAL] = Text("fixed sinusoidal positions give residual dimensions an order")
    if str(flat.get("model_type")) in _GROUPED_POSITIONS:
        found[Axis.RESIDUAL] = Text(
            "a grouped convolution of positions ties residual dimensions together, group by group"
        )
    if flat.get("model_type") == "squeezebert":
        found[Axis.RESIDUAL] = Text("grouped convolutions tie residual dimensions together, group by group")
    if flat.get("model_type") == "reformer":
        found[Axis.RESIDUAL] = Text("positions as a sum of two tables, each with a part of the residual dimensions")
    if flat.get("model_type") == "pop2piano":
        found[Axis.RESIDUAL] = Text("bands of a spectrogram are the residual dimensions, in their order")
    if flat.get("model_type") == "fnet":
        found[Axis.RESIDUAL] = Text("a Fourier transform over residual dimensions gives them an order")
    if (groups := _count(flat.get("n_group"))) is not None and groups > 1:
        found[Axis.EXPERT] = Text("experts are routed in {n} groups, so their order has a meaning", n=groups)
    if flat.get("model_type") == "deepseek_v4":
        found[Axis.EXPERT] = Text("a fixed table sends tokens to experts by their numbers")
    if _count(flat.get("zero_expert_num")) is not None:
        found[Axis.EXPERT] = Text("experts that hand their input through come last")
    return found


_KV_HEADS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_heads", "n_head",
)  # fmt: skip
MAX_HEADS = 1024


def kv_heads_of(config: Mapping[str, object]) -> int | None:
    """Return the number of key/value heads, if a config says it."""
    return 1 if config.get("multi_query") is True else first_count(config, _KV_HEADS, MAX_HEADS)


_MIXER_HEADS = ("mamba_head_dim", "mamba_d_head", "mamba_headdim")


def mixer_head_of(config: Mapping[str, object]) -> int | None:
    """Return the channels of one head of Mamba 2, if a config says it."""
    keys = (*_MIXER_HEADS, "head_dim") if config.get("model_type") == "mamba2" else _MIXER_HEADS
    return first_count(config, keys, MAX_HEADS)


def first_count(config: Mapping[str, object], keys: Sequence[str], most: int) -> int | None:
    """Return the first of some entries that is a number from 1 to `most`."""
    return next((count for key in keys if (count := _count(config.get(key), most)) is not None), None)


def _count(value: object, most: float = math.inf) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most else None
