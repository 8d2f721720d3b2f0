"""The edits a plan can name: one function each from the parents in memory to the child in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kinprint.errors import SchemaError
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.derive import Config, State
from kinprint.lab.zoo.members import Loaded, ZooMember

Parents = Sequence[Loaded]
Apply = Callable[..., Loaded]


def _of_state(function: Callable[..., State]) -> Apply:
    """From the first parent's tensors."""

    def apply(parents: Parents, seed: int | None, **arguments: Any) -> Loaded:  # noqa: ARG001 - nothing is drawn
        return parents[0]._replace(state=function(parents[0].state, **arguments))

    return apply


def _drawn(function: Callable[..., State]) -> Apply:
    """From the first parent's tensors and a seed."""

    def apply(parents: Parents, seed: int | None, **arguments: Any) -> Loaded:
        return parents[0]._replace(state=function(parents[0].state, seed=seed, **arguments))

    return apply


def _symmetry(function: Callable[..., State | tuple[State, Config]]) -> Apply:
    """From the first parent's tensors, its config and a seed; the config may change."""

    def apply(parents: Parents, seed: int | None, **arguments: Any) -> Loaded:
        made = function(parents[0].state, parents[0].config, seed=seed, **arguments)
        state, config = made if isinstance(made, tuple) else (made, parents[0].config)
        return Loaded(state, config, parents[0].tokenizer)

    return apply


def _reshaped(function: Callable[..., tuple[State, Config]]) -> Apply:
    """From the first parent's tensors and config, nothing drawn."""

    def apply(parents: Parents, seed: int | None, **arguments: Any) -> Loaded:  # noqa: ARG001 - nothing is drawn
        return Loaded(*function(parents[0].state, parents[0].config, **arguments), parents[0].tokenizer)

    return apply


def _merge(parents: Parents, seed: int | None, *, coefficients: Sequence[float]) -> Loaded:  # noqa: ARG001
    return parents[0]._replace(state=derive.merge([p.state for p in parents], coefficients))


def _slerp(parents: Parents, seed: int | None, *, share: float) -> Loaded:  # noqa: ARG001
    return parents[0]._replace(state=derive.slerp(parents[0].state, parents[1].state, share))


def _ties(parents: Parents, seed: int | None, *, density: float) -> Loaded:  # noqa: ARG001
    return parents[0]._replace(state=derive.ties(parents[0].state, [p.state for p in parents[1:]], density))


def _dare(parents: Parents, seed: int, *, drop: float) -> Loaded:
    return parents[0]._replace(state=derive.dare(parents[0].state, parents[1].state, drop, seed))


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


def _transplant_norms(parents: Parents, seed: int | None) -> Loaded:  # noqa: ARG001
    return parents[0]._replace(state=derive.replace_norms(parents[0].state, parents[1].state))


def _copy(parents: Parents, seed: int | None) -> Loaded:  # noqa: ARG001 - the member's dtype does the work
    return parents[0]


EDITS: dict[str, Apply] = {
    "all_symmetries": _symmetry(derive.all_symmetries),
    "copy": _copy,
    "dare": _dare,
    "drop_layers": _reshaped(derive.drop_layers),
    "extend_vocabulary": _extend_vocabulary,
    "flip_signs": _symmetry(derive.flip_signs),
    "frankenmerge": _frankenmerge,
    "low_rank": _drawn(derive.low_rank),
    "merge": _merge,
    "mix_values": _symmetry(derive.mix_values),
    "noise": _drawn(derive.noise),
    "permute_and_flip": _symmetry(derive.permute_and_flip),
    "permute_heads": _symmetry(derive.permute_heads),
    "permute_neurons": _symmetry(derive.permute_neurons),
    "permute_residual": _symmetry(derive.permute_residual),
    "prune": _of_state(derive.prune),
    "prune_neurons": _symmetry(derive.prune_neurons),
    "prune_vocabulary": _prune_vocabulary,
    "quantise": _of_state(derive.quantise),
    "replace_embeddings": _drawn(derive.replace_embeddings),
    "rescale_neurons": _symmetry(derive.rescale_neurons),
    "rescale_values": _symmetry(derive.rescale_values),
    "rotate_residual": _symmetry(derive.rotate_residual),
    "slerp": _slerp,
    "stack_layers": _reshaped(derive.stack_layers),
    "ties": _ties,
    "transplant_embeddings": _transplant_embeddings,
    "transplant_norms": _transplant_norms,
    "turn_rotary": _symmetry(derive.turn_rotary),
    "upcycle": _symmetry(derive.upcycle),
}


def apply_edit(member: ZooMember, parents: Parents, function: str, arguments: dict[str, Any]) -> Loaded:
    """Make a member from its parents, rounded as it would be stored. Raise SchemaError if there is no such edit."""
    if function not in EDITS:
        raise SchemaError(f"zoo: {member.name} is made by {function!r}, which is no edit", hint="build the zoo anew")
    state, config, tokenizer = EDITS[function](parents, member.seed, **arguments)
    return Loaded(derive.stored(state, member.dtype), derive.stored_config(config, member.dtype), tokenizer)
