"""Changes of a Llama that keep its function; more of them are in `support.red_team.disguises`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinprint.lab.zoo import derive
from kinprint.lab.zoo.derive import Config, State


def negated(
    state: State, config: Config, *, neurons: bool = False, values: bool = False, residual: bool = False
) -> State:
    """Draw signs for the units asked for and put them on everything that reads or writes them."""
    rng, made = np.random.default_rng(3), dict(state)
    kv, heads = config["num_key_value_heads"], config["num_attention_heads"]

    def signs(count: int) -> Any:
        return rng.choice([-1.0, 1.0], size=count).astype(np.float32)

    for name in state:
        if neurons and "up_proj" in name:
            flips, down = signs(len(state[name])), name.replace("up_proj", "down_proj")
            made[name], made[down] = made[name] * flips[:, None], made[down] * flips
        if values and "v_proj" in name:
            flips, out = signs(len(state[name])), name.replace("v_proj", "o_proj")
            made[name] = made[name] * flips[:, None]
            made[out] = made[out] * np.repeat(flips.reshape(kv, -1), heads // kv, axis=0).reshape(-1)
    if residual:
        flips = signs(config["hidden_size"])
        for name, value in made.items():
            writes = "o_proj" in name or "down_proj" in name
            made[name] = value if value.ndim == 1 else value * (flips[:, None] if writes else flips)
    return made


CHANGES = {
    "neurons": lambda s, c: (derive.permute_neurons(s, c, 3), c),
    "heads": lambda s, c: (derive.permute_heads(s, c, 3), c),
    "signs": lambda s, c: (derive.flip_signs(s, c, 3), c),
    "residual": lambda s, c: (derive.permute_residual(s, c, 3), c),
    "neurons, heads and residual": lambda s, c: (derive.random_symmetry(s, c, 3), c),
    "rotated": lambda s, c: derive.rotate_residual(s, c, 3),
    "rotated, neurons reordered": lambda s, c: derive.rotate_residual(derive.permute_neurons(s, c, 5), c, 3),
    "neurons rescaled": lambda s, c: (derive.rescale_neurons(s, c, 3), c),
    "rotary pairs turned": lambda s, c: (derive.turn_rotary(s, c, 3), c),
    "all": lambda s, c: derive.all_symmetries(s, c, 3),
}
