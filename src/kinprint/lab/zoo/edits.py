"""The edits a plan can name: one function each from the parents in memory to the child in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kinprint.errors import SchemaError
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.derive import State
from kinprint.lab.zoo.members import Loaded, ZooMember

Parents = Sequence[Loaded]
Apply = Callable[..., Loaded]


def _edit(function: Callable[..., Any], *, config: bool = False, drawn: bool = False) -> Apply:
    """From the first parent's tensors, its config and the member's seed where the function takes them; the config may change."""

    def apply(parents: Parents, seed: int | None, **arguments: Any) -> Loaded:
        state, settings, tokenizer = parents[0]
        made = function(state, *([settings] if config else []), **({"seed": seed} if drawn else {}), **arguments)
        state, settings = made if isinstance(made, tuple) else (made, settings)
        return Loaded(state, settings, tokenizer)

    return apply


def _blend(merged: Callable[..., State]) -> Apply:
    """From the tensors of all parents, all else being the first parent's; `merged` takes them, the seed and the arguments."""

    def apply(parents: Parents, seed: int | None, **arguments: Any) -> Loaded:
        return parents[0]._replace(state=merged([parent.state for parent in parents], seed, **arguments))

    return apply


def _frankenmerge(parents: Parents, seed: int | None, *, layers: Sequence[Sequence[int]]) -> Loaded:  # noqa: ARG001
    chosen = [(model, layer) for model, layer in layers]
    state, config = derive.frankenmerge([p.state for p in parents], parents[0].config, chosen)
    return Loaded(state, config, parents[0].tokenizer)


def _prune_vocabulary(parents: Parents, seed: int, *, keep: int) -> Loaded:
    state, config, tokenizer = parents[0]
    if tokenizer is None:
        raise SchemaError("zoo: cannot prune the vocabulary of a model without tokenizer.json")
    return Loaded(*derive.prune_vocabulary(state, config, tokenizer, keep, seed))


def _extend_vocabulary(parents: Parents, seed: int, *, extra: int) -> Loaded:
    return Loaded(*derive.extend_vocabulary(*parents[0], extra, seed))


def _transplant_embeddings(parents: Parents, seed: int | None) -> Loaded:  # noqa: ARG001
    host, donor = parents
    config = {**host.config, "vocab_size": donor.config["vocab_size"]}
    return Loaded(derive.replace_tables(host.state, donor.state), config, donor.tokenizer)


_OF_STATE = (derive.prune, derive.quantise)
_OF_STATE_DRAWN = (derive.low_rank, derive.noise, derive.replace_embeddings)
_OF_SHAPE = (derive.drop_layers, derive.stack_layers)
_OF_SHAPE_DRAWN = (
    derive.all_symmetries, derive.flip_signs, derive.mix_values, derive.permute_and_flip, derive.permute_heads,
    derive.permute_neurons, derive.permute_residual, derive.prune_neurons, derive.rescale_neurons,
    derive.rescale_values, derive.rotate_residual, derive.turn_rotary, derive.upcycle,
)  # fmt: skip
EDITS: dict[str, Apply] = {
    **{function.__name__: _edit(function) for function in _OF_STATE},
    **{function.__name__: _edit(function, drawn=True) for function in _OF_STATE_DRAWN},
    **{function.__name__: _edit(function, config=True) for function in _OF_SHAPE},
    **{function.__name__: _edit(function, config=True, drawn=True) for function in _OF_SHAPE_DRAWN},
    "copy": lambda parents, _seed: parents[0],  # the member's dtype does the work
    "dare": _blend(lambda states, seed, drop: derive.dare(states[0], states[1], drop, seed)),
    "merge": _blend(lambda states, _seed, coefficients: derive.merge(states, coefficients)),
    "slerp": _blend(lambda states, _seed, share: derive.slerp(states[0], states[1], share)),
    "ties": _blend(lambda states, _seed, density: derive.ties(states[0], states[1:], density)),
    "transplant_norms": _blend(lambda states, _seed: derive.replace_norms(*states)),
    "extend_vocabulary": _extend_vocabulary,
    "frankenmerge": _frankenmerge,
    "prune_vocabulary": _prune_vocabulary,
    "transplant_embeddings": _transplant_embeddings,
}


def apply_edit(member: ZooMember, parents: Parents, function: str, arguments: dict[str, Any]) -> Loaded:
    """Make a member from its parents, rounded as it would be stored. Raise SchemaError if there is no such edit."""
    if function not in EDITS:
        raise SchemaError(f"zoo: {member.name} is made by {function!r}, which is no edit", hint="build the zoo anew")
    state, config, tokenizer = EDITS[function](parents, member.seed, **arguments)
    return Loaded(derive.stored(state, member.dtype), derive.stored_config(config, member.dtype), tokenizer)
