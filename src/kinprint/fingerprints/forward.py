"""Run a model on the prompts that ship, and return the outputs of its layers and the activations of its neurons.

Models come from local safetensors files or from memory, through transformers; no code of the model's own is run, nothing is
unpickled, and nothing is fetched. The tokenizer is read by the tokenizers library from tokenizer.json alone. torch and
transformers come with the extra `torch` and are loaded on first use.
"""

import hashlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from kinprint.errors import DegenerateInput, NeedsExtra
from kinprint.model.tokens import TOKENIZER_FILE
from kinprint.model.weights import Matrix, Weights
from kinprint.text import Text

EXTRA = "torch"
BATCH = 20
SMALL = 512  # width below which a model is run on one thread
_FAILURES = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, IndexError, ImportError)
"""What transformers raises on models it cannot load or run."""


@dataclass(frozen=True)
class Prompt:
    """Prompt as cut by a model's tokenizer: token ids, and for each its end in the text (0: not of the text)."""

    ids: tuple[int, ...]
    ends: tuple[int, ...]


@cache
def prompts() -> tuple[str, ...]:
    """Return the 200 statements that ship, some true and some false."""
    text = files("kinprint.fingerprints").joinpath("data", "prompts.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line)


@cache
def prompts_digest() -> str:
    """Return a hash of the prompts: representations of different prompts cannot be compared."""
    return hashlib.sha256("\n".join(prompts()).encode()).hexdigest()[:16]


class Runner:
    """A model that can be run by transformers without code of its own, with its tokenizer; its files are on this machine."""

    def __init__(self, model: Weights) -> None:
        self.label = model.label
        self._weights = model
        self._torch = _needed("torch")
        self._tokenizer = _tokenizer(model)

    def prompts(self) -> list[Prompt]:
        """Cut all prompts into tokens."""
        encoded = [self._tokenizer.encode(text) for text in prompts()]
        for text, cut in zip(prompts(), encoded, strict=True):
            if not cut.ids:
                raise DegenerateInput("{name}: its tokenizer makes nothing of {text}", name=self.label, text=repr(text))
        return [Prompt(tuple(cut.ids), tuple(end for _, end in cut.offsets)) for cut in encoded]

    def last_tokens(self) -> Iterator[NDArray[np.float32]]:
        """Return for each layer its output (before the final norm, which does not turn) at the last token of every prompt."""
        cut = self.prompts()
        with self._loaded(cut) as module:
            watched = {str(number): block for number, block in enumerate(_blocks(module, self.label))}
            kept = self._run(module, cut, watched, [(number, len(prompt.ids) - 1) for number, prompt in enumerate(cut)])
        return (np.concatenate(rows) for rows in kept.values())

    def neurons(self, places: Sequence[tuple[int, int]]) -> dict[int, tuple[Matrix, Matrix]]:
        """Return for each layer what gate and up maps give, before they meet, at these (prompt, position): neurons × places."""
        cut = self.prompts()
        with self._loaded(cut) as module:
            watched, fused = _gated(_blocks(module, self.label), self.label)
            kept = self._run(module, cut, watched, places)
        values = {name: np.ascontiguousarray(np.concatenate(rows).T) for name, rows in kept.items()}
        if fused:  # the first half of the rows is the gate's
            return {int(name): (rows[: len(rows) // 2], rows[len(rows) // 2 :]) for name, rows in values.items()}
        layers = sorted({int(name.split()[0]) for name in values})
        return {layer: (values[f"{layer} gate"], values[f"{layer} up"]) for layer in layers}

    @contextmanager
    def _loaded(self, cut: Sequence[Prompt]) -> Iterator[Any]:
        with _quiet():
            module = self._load()
        name, longest, largest = self.label, max(len(one.ids) for one in cut), max(max(one.ids) for one in cut)
        rows = module.get_input_embeddings().weight.shape[0]
        if largest >= rows:
            raise DegenerateInput(
                "{name}: its tokenizer uses number {n}, its embedding has {m} rows", name=name, n=largest, m=rows
            )
        most = getattr(module.config.get_text_config(), "max_position_embeddings", None)
        if isinstance(most, int) and longest > most:
            raise DegenerateInput("{name}: a prompt has {n} tokens: expected at most {m}", name=name, n=longest, m=most)
        yield module

    def _load(self) -> Any:
        transformers = _needed("transformers")
        model = self._weights
        # A config may name code to fetch for its attention; here it may not.
        options = {"dtype": self._torch.float32, "attn_implementation": "eager", "output_loading_info": True}
        try:
            if model.state is not None:
                module, info = _from_memory(model, model.state, transformers, self._torch, options)
            else:
                safe = {"trust_remote_code": False, "use_safetensors": True, "local_files_only": True}
                module, info = transformers.AutoModel.from_pretrained(_weights_folder(model), **safe, **options)
        except _FAILURES as error:
            raise DegenerateInput(
                "{name} cannot be loaded by transformers: {why}", name=model.label, why=_first_line(error)
            ) from error
        missing = [name for name in info["missing_keys"] if "pooler" not in name]
        if missing:  # transformers would fill them with random numbers
            n, one = len(missing), min(missing)
            raise DegenerateInput(
                "{name}: {n} weights are missing, such as {example}", name=model.label, n=n, example=one
            )
        if module.config.is_encoder_decoder:
            raise DegenerateInput("{name} has an encoder and a decoder: expected one stack of layers", name=model.label)
        return module.eval()

    def _run(
        self, module: Any, cut: Sequence[Prompt], watched: Mapping[str, Any], places: Sequence[tuple[int, int]]
    ) -> dict[str, list[Any]]:
        """Run all prompts; return the outputs of each watched part at these (prompt, position), batch by batch."""
        kept: dict[str, list[Any]] = {name: [] for name in watched}
        wanted: list[Any] = []

        def keep(name: str) -> Any:
            def hook(_part: object, _given: object, result: Any) -> None:
                output = result[0] if isinstance(result, tuple) else result
                kept[name].append(output[wanted[0], wanted[1]].float().numpy())

            return hook

        hooks = [part.register_forward_hook(keep(name)) for name, part in watched.items()]
        try:
            with self._torch.inference_mode(), self._threads(module):
                for start in range(0, len(cut), BATCH):
                    some = cut[start : start + BATCH]
                    picked = [(number - start, position) for number, position in places if 0 <= number - start < BATCH]
                    wanted[:] = [[row for row, _ in picked], [position for _, position in picked]]
                    # padded on the right, where no token of a decoder looks, and masked for those that look both ways
                    width = max(len(prompt.ids) for prompt in some)
                    ids = [[*prompt.ids, *[0] * (width - len(prompt.ids))] for prompt in some]
                    mask = [[1] * len(prompt.ids) + [0] * (width - len(prompt.ids)) for prompt in some]
                    tensor = self._torch.tensor
                    module(input_ids=tensor(ids), attention_mask=tensor(mask), use_cache=False)
        except _FAILURES as error:
            why = _first_line(error)
            raise DegenerateInput("{name} cannot be run on text: {why}", name=self.label, why=why) from error
        finally:
            for hook in hooks:
                hook.remove()
        for at, rows in kept.items():
            if not all(np.isfinite(part).all() for part in rows):
                raise DegenerateInput(
                    "{name}: layer {layer} gives values that are not finite", name=self.label, layer=at
                )
        return kept

    @contextmanager
    def _threads(self, module: Any) -> Iterator[None]:
        """Run a small model on one thread: waiting for others takes ten times as long as its products."""
        before = self._torch.get_num_threads()
        small = module.get_input_embeddings().weight.shape[1] < SMALL
        self._torch.set_num_threads(1 if small else before)
        try:
            yield
        finally:
            self._torch.set_num_threads(before)


def common_places(a: Sequence[Prompt], b: Sequence[Prompt]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the places (prompt, position) in A and in B of tokens that end at the same character."""
    found = []
    for number, (left, right) in enumerate(zip(a, b, strict=True)):
        where = {end: position for position, end in enumerate(right.ends) if end > 0}
        last = {end: position for position, end in enumerate(left.ends) if end > 0}
        found += [((number, position), (number, where[end])) for end, position in last.items() if end in where]
    return found


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NeedsExtra(Text("running a model"), extra=EXTRA) from error


def _folder(model: Weights) -> Path:
    if model.folder is None:
        raise DegenerateInput("{name}: needs the model's files on this machine", name=model.label)
    return model.folder


def _weights_folder(model: Weights) -> Path:
    folder = _folder(model)
    if (folder / "adapter_config.json").exists():
        raise DegenerateInput("{name} is an adapter: merge it into its base to run it", name=model.label)
    model.bytes_read += sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return folder


def _from_memory(
    model: Weights, held: Mapping[str, Matrix], transformers: Any, torch: Any, options: Mapping[str, object]
) -> tuple[Any, Any]:
    config = transformers.AutoConfig.for_model(**model.config)
    kind = transformers.models.auto.modeling_auto.MODEL_MAPPING[type(config)]
    state = {name: torch.from_numpy(np.array(value, dtype=np.float32)) for name, value in held.items()}
    model.bytes_read += sum(value.numel() * 2 for value in state.values())
    return kind.from_pretrained(None, config=config, state_dict=state, **options)  # type: ignore[no-any-return]


def _tokenizer(model: Weights) -> Any:
    library = _needed("tokenizers")
    if model.state is not None:
        if not model.tokenizer:
            raise DegenerateInput("{name} has no tokenizer", name=model.label)
        text = orjson.dumps(dict(model.tokenizer)).decode()
    else:
        path = _folder(model) / TOKENIZER_FILE
        if not path.is_file():
            raise DegenerateInput("{name} has no {file}", name=model.label, file=TOKENIZER_FILE)
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        tokenizer = library.Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.no_truncation()
    except Exception as error:
        if type(error) is not Exception:  # tokenizers raises the base class itself
            raise
        why = _first_line(error)
        raise DegenerateInput("{name}: its tokenizer cannot be read: {why}", name=model.label, why=why) from error
    return tokenizer


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from writing to the terminal while it loads."""
    logging = _needed("transformers").utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _blocks(module: Any, label: str) -> list[Any]:
    """Return the blocks of the one stack that has as many as the config says."""
    torch = _needed("torch")
    count = getattr(module.config.get_text_config(), "num_hidden_layers", None)
    for part in module.modules():
        if isinstance(part, torch.nn.ModuleList) and len(part) == count:
            return list(part)
    raise DegenerateInput("{name}: no stack of {n} layers was found in it", name=label, n=count)


def _gated(blocks: Sequence[Any], label: str) -> tuple[dict[str, Any], bool]:
    """Return the gate and up maps of every block that has them, and whether one map makes both."""
    found: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        parts = {name.rsplit(".", 1)[-1]: part for name, part in reversed(list(block.named_modules()))}
        if "gate_up_proj" in parts:
            found[str(number)] = parts["gate_up_proj"]
        elif "gate_proj" in parts and "up_proj" in parts:
            found[f"{number} gate"], found[f"{number} up"] = parts["gate_proj"], parts["up_proj"]
    fused = [" " not in name for name in found]
    if not found or any(fused) != all(fused):
        raise DegenerateInput("{name} has no gate and up maps that can be watched", name=label)
    return found, fused[0]
