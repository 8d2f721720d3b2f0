"""Run a Llama or Mixtral that is in memory, to prove that edits keep a function."""

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.arch import name_tensors
from kinprint.lab.zoo.derive.states import Config, State
from kinprint.model.decoder import Decoder, Ids


def logits(state: State, config: Config, ids: Ids) -> FloatArray:
    """Return the logits at every position of one sequence of token ids: positions × vocabulary."""
    config = {"model_type": "mixtral" if "num_local_experts" in config else "llama", **config}
    naming = name_tensors(config, {name: value.shape for name, value in state.items()})
    tensors = {part.key: state[part.name].astype(np.float64) for part in naming.tensors}
    found: FloatArray = Decoder(naming, config).logits(tensors.get, ids[None])[0]
    return found
