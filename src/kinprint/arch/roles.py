"""Enumerate the roles of tensors in a transformer, and the axes along which their order has no meaning.

A permutation null is valid along an axis only if training from a random initialisation gives the order along that axis
no meaning: permuting it is then a symmetry of initialisation and training alike. Residual dimensions, MLP neurons,
experts and latent channels are such axes. Rows of Q and K inside a head are not (RoPE frequencies order them), token
rows are not (the vocabulary names them), positions are not.
"""

import difflib
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kinprint.errors import BadSelection


class Axis(StrEnum):
    """Kind of unit counted along a tensor's axis."""

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
    """Kind, scope and logical axes (out × in for matrices) of a role."""

    kind: str  # "norm", "bias", "matrix"
    scope: str  # "model", "layer", "expert"
    axes: tuple[Axis, ...]


class Role(StrEnum):
    """Role of a tensor. The value is the name used in reports and in the architecture files."""

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

_AXES: dict[tuple[str, str, tuple[Axis, ...]], tuple[Role, ...]] = {  # kind, scope, axes
    ("matrix", "model", (_T, _R)): (Role.EMBEDDING, Role.HEAD),
    ("matrix", "model", (Axis.POSITION, _R)): (Role.POSITION_EMBEDDING,),
    ("matrix", "model", (Axis.TYPE, _R)): (Role.TYPE_EMBEDDING,),
    ("matrix", "model", (_R, _R)): (Role.HEAD_DENSE,),
    ("matrix", "model", (_L, _R)): (Role.POOLER,),  # its output is a basis of its own
    # of kv_a, latent rows are followed by RoPE rows: only the columns are free
    ("matrix", "layer", (_H, _R)): (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_KV_A),
    ("matrix", "layer", (_R, _H)): (Role.ATTN_O,),
    ("matrix", "layer", (_L, _R)): (Role.ATTN_Q_A,),
    ("matrix", "layer", (_H, _L)): (Role.ATTN_Q_B, Role.ATTN_KV_B),
    ("matrix", "layer", (_N, _R)): (Role.MLP_GATE, Role.MLP_UP, Role.SHARED_GATE, Role.SHARED_UP),
    ("matrix", "layer", (_R, _N)): (Role.MLP_DOWN, Role.SHARED_DOWN),
    ("matrix", "layer", (_E, _R)): (Role.ROUTER, Role.SHARED_ROUTER),
    ("matrix", "expert", (_N, _R)): (Role.EXPERT_GATE, Role.EXPERT_UP),
    ("matrix", "expert", (_R, _N)): (Role.EXPERT_DOWN,),
    ("norm", "model", (_R,)): (Role.EMBEDDING_NORM, Role.FINAL_NORM, Role.HEAD_NORM),
    ("norm", "layer", (_R,)): (
        Role.INPUT_NORM, Role.POST_ATTENTION_NORM, Role.ATTENTION_OUTPUT_NORM, Role.MLP_OUTPUT_NORM,
    ),
    ("norm", "layer", (Axis.HEAD_DIM,)): (Role.Q_NORM, Role.K_NORM),
    ("norm", "layer", (_L,)): (Role.Q_A_NORM, Role.KV_A_NORM),
}  # fmt: skip
BIASES = {Role(role.value.removesuffix("_bias")): role for role in Role if role.value.endswith("_bias")}
"""The bias of each weight that has one."""


for _info, _roles in _AXES.items():
    for _role in _roles:
        _role.info = RoleInfo(*_info)
for _role, _bias in BIASES.items():  # a bias runs along the output axis of its weight
    _bias.info = RoleInfo("bias", _role.info.scope, _role.info.axes[:1])


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
