"""Probes from tensors in memory: what the evidence engine would read of a model, without writing or reading a file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.arch import Axis, Naming, Role, RoleTensor, name_tensors, ordered_axes, residual_width
from kinprint.evidence.probe import Probe
from kinprint.lab.zoo.derive import Config, State
from kinprint.model.reader import Sample

ROWS = 32
TOKENS = 64
EXPERTS = 4


def probe_from_state(tensors: State, config: Config, *, rows: int = ROWS, label: str = "in memory") -> Probe:
    """Return the slices that a comparison at default settings reads of such a model.

    The first ``rows`` rows of each matrix, whole vectors, the first row of each key/value head, and the embeddings of up to
    64 tokens, evenly spaced from a quarter of the vocabulary on. Token rows are paired by number: the two models of a pair
    are taken to have one vocabulary.
    """
    shapes = tuple((name, value.shape) for name, value in tensors.items())
    naming, hidden = _named(shapes, tuple(sorted((k, v) for k, v in config.items() if isinstance(v, (int, str)))))
    probe = Probe(
        label=label,
        layers=naming.layers,
        experts=naming.experts,
        hidden=hidden,
        kv_heads=config.get("num_key_value_heads") or config.get("num_attention_heads"),
        mean_free="rms_norm_eps" in config,
        ordered=ordered_axes(config),
    )
    for part in naming.tensors:
        if part.expert is not None and part.expert >= EXPERTS:
            continue
        values = _logical(tensors[part.name], part)
        key = part.key
        cut = (0, min(rows, len(values))) if values.ndim == 2 else None
        probe.samples[key] = Sample(
            np.ascontiguousarray(values[:rows] if cut else values), "F32", values.shape, part.offset, cut
        )
        if part.role is Role.EMBEDDING:
            probe.tokens[key] = Sample(values[_tokens(len(values))], "F32", values.shape)
        elif part.role in (Role.ATTN_K, Role.ATTN_V) and (probe.kv_heads or 0) > 1:
            step = probe.head_size(probe.samples[key])
            if step is not None:
                probe.heads[key] = Sample(values[::step], "F32", values.shape)
    return probe


def free_orders(tensors: State, config: Config, rng: np.random.Generator, *, residual: bool = True) -> State:
    """Draw every order that has no meaning uniformly anew: neurons, heads, value dimensions and residual dimensions.

    `kinprint.lab.zoo.derive.random_symmetry` never draws the order that is there, which is right for an edit and wrong for
    a null: with two heads it would always swap them. With ``residual=False`` the residual stream keeps its order.
    """
    naming, hidden = _named(
        tuple((name, value.shape) for name, value in tensors.items()),
        tuple(sorted((k, v) for k, v in config.items() if isinstance(v, (int, str)))),
    )
    kv_heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    stream = rng.permutation(hidden or 0) if residual else np.arange(hidden or 0)
    drawn: dict[object, NDArray[np.intp]] = {}
    result: State = {}
    for part in naming.tensors:
        values = tensors[part.name]
        for position, axis in enumerate(part.role.info.axes):
            order = stream if axis is Axis.RESIDUAL else None
            if axis is Axis.NEURON:
                place = (part.layer, part.expert)
                if place not in drawn:
                    drawn[place] = rng.permutation(values.shape[position])
                order = drawn[place]
            elif axis is Axis.HEAD:
                if ("heads", part.layer) not in drawn:
                    _draw_heads(drawn, part.layer, config["num_attention_heads"], kv_heads, config["head_dim"], rng)
                order = drawn[_HEADED[part.role], part.layer]
            if order is not None:
                values = np.take(values, order, axis=position)
        result[part.name] = values
    return result


_HEADED = {Role.ATTN_Q: "queries", Role.ATTN_K: "keys", Role.ATTN_V: "values", Role.ATTN_O: "outputs"}


def _draw_heads(
    drawn: dict[object, NDArray[np.intp]],
    layer: int | None,
    heads: int,
    kv_heads: int,
    width: int,
    rng: np.random.Generator,
) -> None:
    """Draw a layer's orders of key/value groups, of query heads inside them, and of value dimensions inside a head."""
    group = heads // kv_heads
    groups = rng.permutation(kv_heads)
    queries = np.concatenate([g * group + rng.permutation(group) for g in groups])
    inside = {int(g): rng.permutation(width) for g in groups}
    each = np.arange(width)
    drawn["heads", layer] = groups
    drawn["queries", layer] = (queries[:, None] * width + each).ravel()
    drawn["keys", layer] = (groups[:, None] * width + each).ravel()
    drawn["values", layer] = np.concatenate([g * width + inside[int(g)] for g in groups])
    drawn["outputs", layer] = np.concatenate([q * width + inside[int(q) // group] for q in queries])


@lru_cache(maxsize=64)
def _named(
    shapes: tuple[tuple[str, tuple[int, ...]], ...], config: tuple[tuple[str, Any], ...]
) -> tuple[Naming, int | None]:
    plain: Mapping[str, object] = dict(config)
    naming = name_tensors(plain, dict(shapes))
    return naming, residual_width(naming, plain)


def _logical(values: NDArray[np.float32], part: RoleTensor) -> NDArray[np.float32]:
    if part.rows is not None:
        chosen = np.concatenate([np.arange(start, stop) for start, stop in part.rows])
        values = np.take(values, chosen, axis=part.axis)
    return values.T if part.transposed else values


def _tokens(vocabulary: int) -> NDArray[np.intp]:
    late = np.arange(vocabulary // 4, vocabulary)
    count = min(TOKENS, late.size)
    return late[np.arange(count) * late.size // count]
