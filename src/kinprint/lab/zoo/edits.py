"""Name the edits that a plan can ask for, and apply one to parents in memory.

An edit is a function that returns a state; or state and config; or state, config and tokenizer. Parameters called as below
are filled in: `state`, `config`, `tokenizer` of the first parent, `other` and `others` (states of the further parents),
`states` and `parents` (all of them), `seed` of the member. All others are arguments that the plan names. A new edit is one
such function, in `kinprint.lab.zoo.derive`, and its name in `EDITS`.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from kinprint.errors import SchemaError
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.members import Edit, Loaded, ZooMember


def _transplant_embeddings(parents: Sequence[Loaded]) -> Loaded:
    host, donor = parents
    config = {**host.config, "vocab_size": donor.config["vocab_size"]}
    return Loaded(derive.replace_tables(host.state, donor.state), config, donor.tokenizer)


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    derive.all_symmetries, derive.dare, derive.drop_layers, derive.extend_vocabulary, derive.flip_signs,
    derive.frankenmerge, derive.low_rank, derive.merge, derive.mix_values, derive.noise, derive.permute_and_flip,
    derive.permute_heads, derive.permute_neurons, derive.permute_residual, derive.prune, derive.prune_neurons,
    derive.prune_vocabulary, derive.quantise, derive.replace_embeddings, derive.rescale_neurons, derive.rescale_values,
    derive.rotate_residual, derive.slerp, derive.stack_layers, derive.ties, derive.turn_rotary, derive.upcycle,
)  # fmt: skip
EDITS: dict[str, Callable[..., Any]] = {
    **{function.__name__: function for function in _FUNCTIONS},
    "copy": lambda state: state,  # the member's dtype does the work
    "transplant_embeddings": _transplant_embeddings,
    "transplant_norms": derive.replace_norms,
}


def apply_edit(member: ZooMember, parents: Sequence[Loaded]) -> Loaded:
    """Make a member from its parents, rounded as stored files round. Raise SchemaError if there is no such edit."""
    assert isinstance(member.how, Edit)
    name = member.how.function
    if name not in EDITS:
        raise SchemaError(f"zoo: {member.name} is made by {name!r}, which is no edit", hint="build the zoo anew")
    return run_edit(EDITS[name], parents, member.seed, member.how.arguments, member.dtype)


def run_edit(
    edit: Callable[..., Any], parents: Sequence[Loaded], seed: int | None, arguments: Mapping[str, Any], dtype: str
) -> Loaded:
    """Apply an edit to parents, filling in what it takes, and round the result to ``dtype``."""
    states = [parent.state for parent in parents]
    known = {**parents[0]._asdict(), "other": states[-1], "others": states[1:], "states": states, "parents": parents}
    known["seed"] = seed
    taken = {key: known[key] for key in signature(edit).parameters if key in known}
    made = edit(**{**taken, **arguments})
    found = made if isinstance(made, tuple) else (made,)
    model = Loaded(*found, *parents[0][len(found) :])
    return Loaded(derive.stored(model.state, dtype), derive.stored_config(model.config, dtype), model.tokenizer)
