"""The parts a tensor can play in a transformer, and which of its axes have no order of their own.

A permutation null is valid along an axis only if training from a random initialisation gives the order along that axis
no meaning: permuting it is then a symmetry of initialisation and training alike. Residual dimensions, MLP neurons,
experts and latent channels are such axes. Rows of Q and K inside a head are not (RoPE frequencies order them), token
rows are not (the vocabulary names them), positions are not.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kinprint.errors import BadSelection


class Axis(StrEnum):
    """What an index along a tensor's axis counts."""

    RESIDUAL = "residual"
    NEURON = "neuron"
    EXPERT = "expert"
    LATENT = "latent"  # channels of a low-rank bottleneck (MLA)
    HEAD = "head"  # head-major rows of q, k, v: blocks of head_dim
    HEAD_DIM = "head_dim"  # inside one head
    TOKEN = "token"
    POSITION = "position"
    TYPE = "type"  # segment ids and the like

    @property
    def exchangeable(self) -> bool:
        """Whether permuting this axis is a symmetry of initialisation and training."""
        return self in (Axis.RESIDUAL, Axis.NEURON, Axis.EXPERT, Axis.LATENT)


@dataclass(frozen=True)
class RoleInfo:
    """What a role is: its kind, where it lives, and its logical axes (out × in for matrices)."""

    kind: str  # "norm", "bias", "matrix"
    scope: str  # "model", "layer", "expert"
    axes: tuple[Axis, ...]


class Role(StrEnum):
    """The part a tensor plays. The value is the name used in reports and in the architecture files."""

    # whole model
    EMBEDDING = "embedding"
    POSITION_EMBEDDING = "position_embedding"
    TYPE_EMBEDDING = "type_embedding"
    EMBEDDING_NORM = "embedding_norm"
    FINAL_NORM = "final_norm"
    HEAD = "head"
    HEAD_DENSE = "head_dense"  # the extra dense layer of masked-language-model heads
    HEAD_NORM = "head_norm"
    POOLER = "pooler"
    # norms of a layer. The two that most decoders have come first: before attention, and before the MLP (which Llama
    # and its kin store as post_attention_layernorm). The *_output_norm pair acts on a block's output (Gemma, OLMo 2, BERT).
    INPUT_NORM = "input_norm"
    POST_ATTENTION_NORM = "post_attention_norm"
    ATTENTION_OUTPUT_NORM = "attention_output_norm"
    MLP_OUTPUT_NORM = "mlp_output_norm"
    Q_NORM = "q_norm"
    K_NORM = "k_norm"
    Q_A_NORM = "q_a_norm"
    KV_A_NORM = "kv_a_norm"
    # attention
    ATTN_Q = "attn_q"
    ATTN_K = "attn_k"
    ATTN_V = "attn_v"
    ATTN_O = "attn_o"
    ATTN_Q_A = "attn_q_a"
    ATTN_Q_B = "attn_q_b"
    ATTN_KV_A = "attn_kv_a"
    ATTN_KV_B = "attn_kv_b"
    # dense MLP
    MLP_GATE = "mlp_gate"
    MLP_UP = "mlp_up"
    MLP_DOWN = "mlp_down"
    # mixture of experts
    ROUTER = "router"
    SHARED_ROUTER = "shared_router"
    EXPERT_GATE = "expert_gate"
    EXPERT_UP = "expert_up"
    EXPERT_DOWN = "expert_down"
    SHARED_GATE = "shared_gate"
    SHARED_UP = "shared_up"
    SHARED_DOWN = "shared_down"
    # biases: the role of the weight with _bias
    EMBEDDING_NORM_BIAS = "embedding_norm_bias"
    FINAL_NORM_BIAS = "final_norm_bias"
    HEAD_BIAS = "head_bias"
    HEAD_DENSE_BIAS = "head_dense_bias"
    HEAD_NORM_BIAS = "head_norm_bias"
    POOLER_BIAS = "pooler_bias"
    INPUT_NORM_BIAS = "input_norm_bias"
    POST_ATTENTION_NORM_BIAS = "post_attention_norm_bias"
    ATTENTION_OUTPUT_NORM_BIAS = "attention_output_norm_bias"
    MLP_OUTPUT_NORM_BIAS = "mlp_output_norm_bias"
    Q_NORM_BIAS = "q_norm_bias"
    K_NORM_BIAS = "k_norm_bias"
    ATTN_Q_BIAS = "attn_q_bias"
    ATTN_K_BIAS = "attn_k_bias"
    ATTN_V_BIAS = "attn_v_bias"
    ATTN_O_BIAS = "attn_o_bias"
    ATTN_Q_A_BIAS = "attn_q_a_bias"
    ATTN_KV_A_BIAS = "attn_kv_a_bias"
    MLP_GATE_BIAS = "mlp_gate_bias"
    MLP_UP_BIAS = "mlp_up_bias"
    MLP_DOWN_BIAS = "mlp_down_bias"
    ROUTER_BIAS = "router_bias"

    info: RoleInfo  # kind, scope and axes of this role; set below, on the members themselves


_R, _N, _H, _T, _L, _E = Axis.RESIDUAL, Axis.NEURON, Axis.HEAD, Axis.TOKEN, Axis.LATENT, Axis.EXPERT

_MATRICES: dict[Role, tuple[str, Axis, Axis]] = {
    Role.EMBEDDING: ("model", _T, _R),
    Role.POSITION_EMBEDDING: ("model", Axis.POSITION, _R),
    Role.TYPE_EMBEDDING: ("model", Axis.TYPE, _R),
    Role.HEAD: ("model", _T, _R),
    Role.HEAD_DENSE: ("model", _R, _R),
    Role.POOLER: ("model", _L, _R),  # its output is a basis of its own
    Role.ATTN_Q: ("layer", _H, _R),
    Role.ATTN_K: ("layer", _H, _R),
    Role.ATTN_V: ("layer", _H, _R),
    Role.ATTN_O: ("layer", _R, _H),
    Role.ATTN_Q_A: ("layer", _L, _R),
    Role.ATTN_Q_B: ("layer", _H, _L),
    Role.ATTN_KV_A: ("layer", _H, _R),  # latent rows followed by RoPE rows: only the columns are free
    Role.ATTN_KV_B: ("layer", _H, _L),
    Role.MLP_GATE: ("layer", _N, _R),
    Role.MLP_UP: ("layer", _N, _R),
    Role.MLP_DOWN: ("layer", _R, _N),
    Role.ROUTER: ("layer", _E, _R),
    Role.SHARED_ROUTER: ("layer", _E, _R),
    Role.EXPERT_GATE: ("expert", _N, _R),
    Role.EXPERT_UP: ("expert", _N, _R),
    Role.EXPERT_DOWN: ("expert", _R, _N),
    Role.SHARED_GATE: ("layer", _N, _R),
    Role.SHARED_UP: ("layer", _N, _R),
    Role.SHARED_DOWN: ("layer", _R, _N),
}
_NORMS: dict[Role, tuple[str, Axis]] = {
    Role.EMBEDDING_NORM: ("model", _R),
    Role.FINAL_NORM: ("model", _R),
    Role.HEAD_NORM: ("model", _R),
    Role.INPUT_NORM: ("layer", _R),
    Role.POST_ATTENTION_NORM: ("layer", _R),
    Role.ATTENTION_OUTPUT_NORM: ("layer", _R),
    Role.MLP_OUTPUT_NORM: ("layer", _R),
    Role.Q_NORM: ("layer", Axis.HEAD_DIM),
    Role.K_NORM: ("layer", Axis.HEAD_DIM),
    Role.Q_A_NORM: ("layer", _L),
    Role.KV_A_NORM: ("layer", _L),
}


def _table() -> dict[Role, RoleInfo]:
    table = {role: RoleInfo("matrix", scope, (rows, cols)) for role, (scope, rows, cols) in _MATRICES.items()}
    table |= {role: RoleInfo("norm", scope, (axis,)) for role, (scope, axis) in _NORMS.items()}
    for role in Role:
        if role.value.endswith("_bias"):  # a bias runs along the output axis of its weight
            weight = table[Role(role.value.removesuffix("_bias"))]
            table[role] = RoleInfo("bias", weight.scope, weight.axes[:1])
    return table


for _role, _info in _table().items():
    _role.info = _info


def role_named(name: str) -> Role:
    """Return the role of that name. Raise BadSelection if there is none."""
    known = [role.value for role in Role]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"roles: {', '.join(known)}"
        raise BadSelection(f"no role is called {name!r}", hint=hint)
    return Role(name)


class MlpRoles(NamedTuple):
    """The matrices of one MLP, and which expert stands for all where there are several."""

    gate: Role
    up: Role
    down: Role
    expert: int | None


MLPS = (
    MlpRoles(Role.MLP_GATE, Role.MLP_UP, Role.MLP_DOWN, None),
    MlpRoles(Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN, None),
    MlpRoles(Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_DOWN, 0),
)
"""Dense, shared and routed: in a layer the first that a model has stands for its MLP."""

GATES_AND_UPS = tuple(role for mlp in MLPS for role in (mlp.gate, mlp.up))

DENSE_ROLES = {Role.EXPERT_GATE: Role.MLP_GATE, Role.EXPERT_UP: Role.MLP_UP}
"""The matrices of a dense MLP that an expert's are copies of, if a mixture was made from a dense model (upcycling)."""
