"""Enumerate the roles of tensors in a transformer, and the axes along which their order has no meaning.

A permutation null is valid along an axis only if training from a random initialisation gives the order along that axis
no meaning: permuting it is then a symmetry of initialisation and training alike. Residual dimensions, MLP neurons,
experts and latent channels are such axes. Rows of Q and K inside a head are not (RoPE frequencies order them), token
rows are not (the vocabulary names them), positions are not.

What mixes tokens other than by softmax attention (linear attention, Mamba 2, gated recurrences, short convolutions) has the
roles `mixer_*`. Its channels go by heads, groups or parts of a fused input (Mamba 2: z, x, B, C and dt), each head with one
decay, so that permuting single channels is no symmetry: `CHANNEL` and `KERNEL` (taps of a convolution, with its input
channels) are not permuted, and what reads the residual stream is compared along that. Inside one head of Mamba 2 the channels of
x are alike: each has its row of z and x, its taps, its norm and its column of the output, all drawn alike, while step, decay and
skip belong to the head. So rows of x within a head (`MIXER_VALUE`) may be matched one by one, as those of values in attention.
Heads are not exchanged: some recipes start their decays in an order (A = 1 … n). In Mamba 1 (`ssm_*`) every channel has
its own gate, taps, step, decays and skip, and all start alike: channels are units like neurons, while its states start in an
order (A = 1 … n), so `STATE` is not permuted.

Diffusion (`arch/nested_blocks.py` counts its blocks). In a UNet a group norm reads every stream of convolutions, so what may change
places is channels within a group, and groups as a whole: no free order of single channels (`STREAM`). The channels between the two
convolutions of a residual block are its own, and one of each group are free among each other: `conv_up` holds these,
`conv_up_rest` the others. Streams between blocks meet several groupings (those of concatenated skips), and nothing is permuted
along them. Inside the attention blocks a LayerNorm reads a stream of their own, whose dimensions are `RESIDUAL`; every such stack
has its own, and one order for all of equal width is among the symmetries. What conditions a model (`SIGNAL`: the output of a
text encoder, sinusoids of the time step) has an order that strangers share: k and v of cross-attention are not permuted along
it. Hidden units of the MLPs that embed time and text are neurons. Modulation (shifts, scales and gates of every dimension, one
after the other) is not permuted.

Encoders of pictures in stages (Swin, Hiera, ConvNeXt, SegFormer): every stage has a stream of its own width, which layer norms,
batch norms and depthwise convolutions take channel by channel, so its dimensions are `RESIDUAL`, and units inside an MLP or a wide
block are neurons. One order for all stages of a width is among the symmetries; tests take the width that most layers have. The same
holds for the narrow stream inside the layers of MobileBERT. Where convolutions or norms go by groups (RegNet, BiT, SqueezeBERT), or
every convolution makes another stream (MobileNet 1), no single channel is free. Of a ResNet's block the first convolution's
output channels are its own (`conv_up`).

An encoder-decoder has one stack of layers, the encoder's first. Both streams start from one embedding or from one each; one
order for both is in either case among the symmetries of the pair.
"""

import difflib
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from kinprint._util.records import dataclass
from kinprint.errors import BadSelection
from kinprint.text import Text, joined


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
    CHANNEL = "channel"  # inside a mixer that is no softmax attention
    STATE = "state"  # of a recurrence
    KERNEL = "kernel"  # taps of a convolution, with its input channels
    STREAM = "stream"  # channels that group norms or modulation tie together
    SIGNAL = "signal"  # what conditions a model: outputs of a text encoder, sinusoids of the time step
    UNKNOWN = "unknown"

    @property
    def exchangeable(self) -> bool:
        """Whether permuting this axis is a symmetry of initialisation and training."""
        return self in (Axis.RESIDUAL, Axis.NEURON, Axis.EXPERT, Axis.LATENT)


@dataclass(frozen=True)
class RoleInfo:
    """Kind, scope and logical axes (out × in for matrices) of a role."""

    kind: str  # "norm", "bias", "matrix", "vector"
    scope: str  # "model", "layer", "expert"
    axes: tuple[Axis, ...]


class Role(StrEnum):
    """Role of a tensor. The value is the name used in reports and in the architecture files."""

    _ignore_ = "weight"
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
    EMBEDDING_PROJECTION = (
        "embedding_projection"  # from narrow embeddings to the residual stream (ALBERT, ELECTRA, OPT 350M)
    )
    HEAD_PROJECTION = "head_projection"  # and back
    PATCH_EMBEDDING = "patch_embedding"  # of pictures
    CONV_STEM = "conv_stem"  # the first convolution of two, of sound
    RELATIVE_EMBEDDING = "relative_embedding"  # a table of distances that projections of a layer read (DeBERTa)
    RELATIVE_EMBEDDING_NORM = "relative_embedding_norm"
    # of an encoder, beside those of its decoder; one embedding for both is `embedding`
    ENCODER_EMBEDDING = "encoder_embedding"
    ENCODER_POSITION_EMBEDDING = "encoder_position_embedding"
    ENCODER_EMBEDDING_NORM = "encoder_embedding_norm"
    ENCODER_FINAL_NORM = "encoder_final_norm"
    # norms of a layer. The two that most decoders have come first: before attention, and before the MLP (which Llama
    # and its kin store as post_attention_layernorm). The *_output_norm pair acts on a block's output (Gemma, OLMo 2, BERT).
    INPUT_NORM = "input_norm"
    POST_ATTENTION_NORM = "post_attention_norm"
    ATTENTION_OUTPUT_NORM = "attention_output_norm"
    MLP_OUTPUT_NORM = "mlp_output_norm"
    CROSS_NORM = "cross_norm"  # before cross-attention
    CROSS_OUTPUT_NORM = "cross_output_norm"
    MIXER_INPUT_NORM = "mixer_input_norm"  # before a mixer that stands beside attention (convolutions of a Conformer)
    SECOND_MLP_INPUT_NORM = "second_mlp_input_norm"  # before the second MLP of a layer that has two (Conformer)
    SECOND_MLP_OUTPUT_NORM = "second_mlp_output_norm"
    LAYER_OUTPUT_NORM = "layer_output_norm"  # of the residual stream, at the end of a layer that has other norms too
    MIXER_NORM = "mixer_norm"  # of what a mixer or attention hands to its output projection
    MLP_NORM = "mlp_norm"  # of neurons (BitNet)
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
    ATTN_POSITION_Q = "attn_position_q"  # projections of relative positions (DeBERTa, XLNet)
    ATTN_POSITION_K = "attn_position_k"
    ATTN_DISTANCES = "attn_distances"  # for each distance and head (T5)
    CROSS_Q = "cross_q"
    CROSS_K = "cross_k"
    CROSS_V = "cross_v"
    CROSS_O = "cross_o"
    # mixers of tokens other than softmax attention
    MIXER_IN = "mixer_in"
    MIXER_GATE = "mixer_gate"
    MIXER_VALUE = "mixer_value"  # x of Mamba 2: channels by head
    MIXER_KEYS = "mixer_keys"  # B and C of Mamba 2: states by group
    MIXER_QUERIES = "mixer_queries"
    MIXER_RATES = "mixer_rates"  # step sizes, decays and the like, from the residual stream
    MIXER_DECAYS = "mixer_decays"  # a second input of that kind
    MIXER_OUT = "mixer_out"
    MIXER_CONV = "mixer_conv"
    MIXER_PARAMETERS = "mixer_parameters"  # from channels to channels
    MIXER_STEP = "mixer_step"
    MIXER_DECAY = "mixer_decay"  # a decay for each channel or head
    MIXER_SKIP = "mixer_skip"
    # Mamba 1, whose channels are alike
    SSM_IN = "ssm_in"
    SSM_GATE = "ssm_gate"
    SSM_OUT = "ssm_out"
    SSM_CONV = "ssm_conv"
    SSM_PARAMETERS = "ssm_parameters"  # B, C and the step's latent, from channels
    SSM_STEP = "ssm_step"
    SSM_STATES = "ssm_states"  # a decay for each channel and state
    SSM_SKIP = "ssm_skip"
    # dense MLP
    MLP_GATE = "mlp_gate"
    MLP_UP = "mlp_up"
    MLP_DOWN = "mlp_down"
    MLP_SECOND_GATE = "mlp_second_gate"  # a linear gate beside the usual one (Hunyuan 4)
    MLP_RECEPTANCE = "mlp_receptance"  # a gate for each residual dimension of what the MLP adds (RWKV)
    SECOND_MLP_GATE = "second_mlp_gate"  # of a layer that has two, before and after attention
    SECOND_MLP_UP = "second_mlp_up"
    SECOND_MLP_DOWN = "second_mlp_down"
    # factors for each residual dimension of what a block adds to it (LayerScale)
    ATTENTION_SCALE = "attention_scale"
    MLP_SCALE = "mlp_scale"
    # mixture of experts
    ROUTER = "router"
    SHARED_ROUTER = "shared_router"
    EXPERT_GATE = "expert_gate"
    EXPERT_UP = "expert_up"
    EXPERT_DOWN = "expert_down"
    SHARED_GATE = "shared_gate"
    SHARED_UP = "shared_up"
    SHARED_DOWN = "shared_down"
    SHARED_SECOND_GATE = "shared_second_gate"
    # diffusion: the whole model
    TIME_UP = "time_up"
    TIME_DOWN = "time_down"
    GUIDANCE_UP = "guidance_up"
    GUIDANCE_DOWN = "guidance_down"
    CONDITION_UP = "condition_up"  # of pooled text, sizes and the like
    CONDITION_DOWN = "condition_down"
    CONTEXT_EMBEDDING = "context_embedding"  # of text, into the residual stream
    MODULATION_BASE = "modulation_base"  # from time, one for all layers (PixArt)
    FINAL_MODULATION = "final_modulation"
    FINAL_SHIFTS = "final_shifts"  # a table of these, beside the one above
    FINAL_STREAM_NORM = "final_stream_norm"
    PATCH_HEAD = "patch_head"  # to patches of a picture
    CONV_HEAD = "conv_head"
    # diffusion: residual blocks of convolutions
    CONV_UP = "conv_up"  # the first convolution: one of its output channels for each group
    CONV_UP_REST = "conv_up_rest"
    CONV_DOWN = "conv_down"
    CONV_SHORTCUT = "conv_shortcut"
    CONV_SAMPLE = "conv_sample"  # to another resolution
    CONV_TIME = "conv_time"
    CONV_INPUT_NORM = "conv_input_norm"
    CONV_HIDDEN_NORM = "conv_hidden_norm"
    # diffusion: blocks of attention
    STREAM_NORM = "stream_norm"
    STREAM_IN = "stream_in"  # from convolutions to the residual stream of attention blocks
    STREAM_OUT = "stream_out"
    CONDITION_K = "condition_k"  # of a text encoder's output
    CONDITION_V = "condition_v"
    MODULATION = "modulation"
    MODULATION_TABLE = "modulation_table"
    CONTEXT_MODULATION = "context_modulation"
    CONTEXT_Q = "context_q"  # of the stream of text beside that of the picture
    CONTEXT_K = "context_k"
    CONTEXT_V = "context_v"
    CONTEXT_O = "context_o"
    CONTEXT_Q_NORM = "context_q_norm"
    CONTEXT_K_NORM = "context_k_norm"
    CONTEXT_UP = "context_up"
    CONTEXT_DOWN = "context_down"
    ATTN_MLP_OUT = "attn_mlp_out"  # from attention and MLP, which stand side by side
    # without a role: compared by name (comparison/by_name.py), and never part of a verdict
    UNNAMED_IN = "unnamed_in"  # columns run along the residual stream, by their number
    UNNAMED_OUT = "unnamed_out"  # rows do
    UNNAMED = "unnamed"
    UNNAMED_VECTOR = "unnamed_vector"
    # biases: the role of the weight with _bias
    for weight in (
        EMBEDDING_PROJECTION, HEAD_PROJECTION, RELATIVE_EMBEDDING_NORM, PATCH_EMBEDDING, CONV_STEM,
        ENCODER_EMBEDDING_NORM, ENCODER_FINAL_NORM, CROSS_NORM, CROSS_OUTPUT_NORM, MIXER_NORM, ATTN_POSITION_Q,
        ATTN_POSITION_K, CROSS_Q, CROSS_K, CROSS_V, CROSS_O, MIXER_IN, MIXER_GATE, MIXER_RATES, MIXER_DECAYS,
        MIXER_OUT, MIXER_CONV, MIXER_STEP, SSM_IN, SSM_GATE, SSM_OUT, SSM_CONV, SSM_STEP, EMBEDDING_NORM,
        FINAL_NORM, HEAD, HEAD_DENSE, HEAD_NORM, POOLER, INPUT_NORM, POST_ATTENTION_NORM, ATTENTION_OUTPUT_NORM,
        MLP_OUTPUT_NORM, Q_NORM, K_NORM, ATTN_Q, ATTN_K, ATTN_V, ATTN_O, ATTN_Q_A, ATTN_KV_A, MLP_GATE, MLP_UP,
        MLP_DOWN, ROUTER, MIXER_INPUT_NORM, SECOND_MLP_INPUT_NORM, SECOND_MLP_OUTPUT_NORM, LAYER_OUTPUT_NORM,
        SECOND_MLP_GATE, SECOND_MLP_UP, SECOND_MLP_DOWN, EXPERT_GATE, EXPERT_UP, EXPERT_DOWN,
        MIXER_VALUE, MIXER_KEYS, MIXER_QUERIES,
        TIME_UP, TIME_DOWN, GUIDANCE_UP, GUIDANCE_DOWN, CONDITION_UP, CONDITION_DOWN,
        CONTEXT_EMBEDDING, MODULATION_BASE, FINAL_MODULATION, FINAL_STREAM_NORM, PATCH_HEAD, CONV_HEAD, CONV_UP,
        CONV_UP_REST, CONV_DOWN, CONV_SHORTCUT, CONV_SAMPLE, CONV_TIME, CONV_INPUT_NORM, CONV_HIDDEN_NORM,
        STREAM_NORM, STREAM_IN, STREAM_OUT, MODULATION, CONTEXT_MODULATION, CONTEXT_Q, CONTEXT_K, CONTEXT_V,
        CONTEXT_O, CONTEXT_UP, CONTEXT_DOWN, ATTN_MLP_OUT, CONDITION_K, CONDITION_V,
    ):  # fmt: skip
        vars()[f"{weight}_bias".upper()] = f"{weight}_bias"

    info: RoleInfo  # kind, scope and axes of this role; set below, on the members themselves


_R, _N, _H, _T, _L, _E = Axis.RESIDUAL, Axis.NEURON, Axis.HEAD, Axis.TOKEN, Axis.LATENT, Axis.EXPERT
_C, _P, _K, _S, _I, _U = Axis.CHANNEL, Axis.POSITION, Axis.KERNEL, Axis.STREAM, Axis.SIGNAL, Axis.UNKNOWN

_INFOS: dict[tuple[str, str, tuple[Axis, ...]], tuple[Role, ...]] = {  # kind, scope, axes
    ("matrix", "model", (_T, _R)): (Role.EMBEDDING, Role.HEAD, Role.ENCODER_EMBEDDING),
    ("matrix", "model", (_P, _R)): (Role.POSITION_EMBEDDING, Role.ENCODER_POSITION_EMBEDDING, Role.RELATIVE_EMBEDDING),
    ("matrix", "model", (_R, _L)): (Role.EMBEDDING_PROJECTION,),  # narrow embeddings have a basis of their own
    ("matrix", "model", (_R, _K)): (Role.PATCH_EMBEDDING,),
    ("matrix", "model", (_C, _K)): (Role.CONV_STEM,),
    ("matrix", "model", (Axis.TYPE, _R)): (Role.TYPE_EMBEDDING,),
    ("matrix", "model", (_R, _R)): (Role.HEAD_DENSE,),
    ("matrix", "model", (_L, _R)): (Role.POOLER, Role.HEAD_PROJECTION),  # its output is a basis of its own
    # of kv_a, latent rows are followed by RoPE rows: only the columns are free
    ("matrix", "layer", (_H, _R)): (
        Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_KV_A, Role.CROSS_Q, Role.CROSS_K, Role.CROSS_V,
        Role.ATTN_POSITION_Q, Role.ATTN_POSITION_K, Role.CONTEXT_Q, Role.CONTEXT_K, Role.CONTEXT_V,
    ),
    ("matrix", "layer", (_R, _H)): (Role.ATTN_O, Role.CROSS_O, Role.CONTEXT_O),
    ("matrix", "layer", (_R, _R)): (Role.MLP_RECEPTANCE,),
    ("matrix", "layer", (_P, _H)): (Role.ATTN_DISTANCES,),
    ("matrix", "layer", (_C, _R)): (
        Role.MIXER_IN, Role.MIXER_GATE, Role.MIXER_VALUE, Role.MIXER_KEYS, Role.MIXER_QUERIES, Role.MIXER_RATES,
        Role.MIXER_DECAYS,
    ),
    ("matrix", "layer", (_R, _C)): (Role.MIXER_OUT,),
    ("matrix", "layer", (_C, _K)): (Role.MIXER_CONV,),
    ("matrix", "layer", (_C, _C)): (Role.MIXER_PARAMETERS, Role.MIXER_STEP),
    ("matrix", "layer", (_C, _N)): (Role.SSM_PARAMETERS,),
    ("matrix", "layer", (_N, _C)): (Role.SSM_STEP,),
    ("matrix", "layer", (_N, Axis.STATE)): (Role.SSM_STATES,),
    ("vector", "layer", (_N,)): (Role.SSM_SKIP,),
    ("vector", "layer", (_R,)): (Role.ATTENTION_SCALE, Role.MLP_SCALE),
    ("vector", "layer", (_C,)): (Role.MIXER_DECAY, Role.MIXER_SKIP),
    ("norm", "layer", (_C,)): (Role.MIXER_NORM,),
    ("norm", "layer", (_N,)): (Role.MLP_NORM,),
    ("matrix", "layer", (_L, _R)): (Role.ATTN_Q_A,),
    ("matrix", "layer", (_H, _L)): (Role.ATTN_Q_B, Role.ATTN_KV_B),
    ("matrix", "layer", (_N, _R)): (
        Role.MLP_GATE, Role.MLP_UP, Role.SHARED_GATE, Role.SHARED_UP, Role.SSM_IN, Role.SSM_GATE,
        Role.SECOND_MLP_GATE, Role.SECOND_MLP_UP, Role.MLP_SECOND_GATE, Role.SHARED_SECOND_GATE,
        Role.CONTEXT_UP,
    ),
    ("matrix", "layer", (_R, _N)): (Role.MLP_DOWN, Role.SHARED_DOWN, Role.SSM_OUT, Role.SECOND_MLP_DOWN, Role.CONTEXT_DOWN),
    ("matrix", "layer", (_E, _R)): (Role.ROUTER, Role.SHARED_ROUTER),
    ("matrix", "expert", (_N, _R)): (Role.EXPERT_GATE, Role.EXPERT_UP),
    ("matrix", "expert", (_R, _N)): (Role.EXPERT_DOWN,),
    ("norm", "model", (_R,)): (
        Role.EMBEDDING_NORM, Role.FINAL_NORM, Role.HEAD_NORM, Role.ENCODER_EMBEDDING_NORM, Role.ENCODER_FINAL_NORM,
        Role.RELATIVE_EMBEDDING_NORM,
    ),
    ("norm", "layer", (_R,)): (
        Role.INPUT_NORM, Role.POST_ATTENTION_NORM, Role.ATTENTION_OUTPUT_NORM, Role.MLP_OUTPUT_NORM,
        Role.CROSS_NORM, Role.CROSS_OUTPUT_NORM, Role.MIXER_INPUT_NORM, Role.SECOND_MLP_INPUT_NORM,
        Role.SECOND_MLP_OUTPUT_NORM, Role.LAYER_OUTPUT_NORM,
    ),
    ("norm", "layer", (Axis.HEAD_DIM,)): (Role.Q_NORM, Role.K_NORM, Role.CONTEXT_Q_NORM, Role.CONTEXT_K_NORM),
    ("norm", "layer", (_L,)): (Role.Q_A_NORM, Role.KV_A_NORM),
    ("matrix", "model", (_N, _I)): (Role.TIME_UP, Role.GUIDANCE_UP, Role.CONDITION_UP),
    ("matrix", "model", (_S, _N)): (Role.TIME_DOWN, Role.GUIDANCE_DOWN, Role.CONDITION_DOWN),
    ("matrix", "model", (_R, _I)): (Role.CONTEXT_EMBEDDING,),
    ("matrix", "model", (_S, _S)): (Role.MODULATION_BASE, Role.FINAL_MODULATION),
    ("matrix", "model", (Axis.TYPE, _S)): (Role.FINAL_SHIFTS,),
    ("matrix", "model", (_K, _R)): (Role.PATCH_HEAD,),
    ("matrix", "model", (_I, _K)): (Role.CONV_HEAD,),
    ("norm", "model", (_S,)): (Role.FINAL_STREAM_NORM,),
    ("matrix", "layer", (_N, _K)): (Role.SSM_CONV, Role.CONV_UP),
    ("matrix", "layer", (_S, _K)): (Role.CONV_UP_REST, Role.CONV_DOWN, Role.CONV_SHORTCUT, Role.CONV_SAMPLE),
    ("matrix", "layer", (_S, _S)): (Role.CONV_TIME, Role.MODULATION, Role.CONTEXT_MODULATION),
    ("matrix", "layer", (Axis.TYPE, _S)): (Role.MODULATION_TABLE,),
    ("norm", "layer", (_S,)): (Role.CONV_INPUT_NORM, Role.CONV_HIDDEN_NORM, Role.STREAM_NORM),
    ("matrix", "layer", (_R, _K)): (Role.STREAM_IN,),
    ("matrix", "layer", (_S, _R)): (Role.STREAM_OUT,),
    ("matrix", "layer", (_R, _S)): (Role.ATTN_MLP_OUT,),
    ("matrix", "layer", (_H, _I)): (Role.CONDITION_K, Role.CONDITION_V),
    ("matrix", "model", (_U, _R)): (Role.UNNAMED_IN,),
    ("matrix", "model", (_R, _U)): (Role.UNNAMED_OUT,),
    ("matrix", "model", (_U, _U)): (Role.UNNAMED,),
    ("vector", "model", (_U,)): (Role.UNNAMED_VECTOR,),
}  # fmt: skip
BIASES = {Role(role.value.removesuffix("_bias")): role for role in Role if role.value.endswith("_bias")}
"""The bias of each weight that has one."""


for _info, _roles in _INFOS.items():
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
    MlpRoles(Role.SECOND_MLP_GATE, Role.SECOND_MLP_UP, Role.SECOND_MLP_DOWN, None),
)
"""Dense, shared, routed, and the second of a Conformer: in a layer the first that a model has stands for its MLP."""

UNIT_SETS = (*MLPS, MlpRoles(Role.SSM_GATE, Role.SSM_IN, Role.SSM_OUT, None))
"""All that units without an order stand in, the channels of Mamba 1 last: what a search for reordered units goes through."""

GATES_AND_UPS = tuple(role for mlp in MLPS for role in (mlp.gate, mlp.up))

DENSE_ROLES = {Role.EXPERT_GATE: Role.MLP_GATE, Role.EXPERT_UP: Role.MLP_UP}
"""The matrices of a dense MLP that an expert's are copies of, if a mixture was made from a dense model (upcycling)."""

AXES = {
    Axis.RESIDUAL: Text("residual"),
    Axis.NEURON: Text("neuron"),
    Axis.EXPERT: Text("expert"),
    Axis.LATENT: Text("latent"),
    Axis.HEAD: Text("head row"),
    Axis.HEAD_DIM: Text("head dimension"),
    Axis.TOKEN: Text("token"),
    Axis.POSITION: Text("position"),
    Axis.TYPE: Text("segment type"),
    Axis.CHANNEL: Text("mixer channel"),
    Axis.STATE: Text("state"),
    Axis.KERNEL: Text("kernel tap"),
    Axis.STREAM: Text("stream channel"),
    Axis.SIGNAL: Text("conditioning"),
    Axis.UNKNOWN: Text("unknown"),
}
"""How reports name the axes."""

ORDERED = {
    Axis.HEAD: Text("rows of a head may have an order (rotary frequencies give them one)"),
    Axis.HEAD_DIM: Text("dimensions of a head may have an order (rotary frequencies give them one)"),
    Axis.TOKEN: Text("tokens are named by the vocabulary"),
    Axis.POSITION: Text("positions have an order"),
    Axis.TYPE: Text("segment types have names"),
    Axis.CHANNEL: Text("channels of a mixer go by heads and groups, so single ones have no free order"),
    Axis.STATE: Text("states of a recurrence start in an order"),
    Axis.KERNEL: Text("taps of a convolution have an order"),
    Axis.STREAM: Text("group norms or modulation tie channels together, so single ones have no free order"),
    Axis.SIGNAL: Text("what conditions the model (text, time) has an order that strangers share"),
    Axis.UNKNOWN: Text("nothing is known of the order of its units"),
}


def permuted_axis(role: Role, ordered: Mapping[Axis, Text]) -> tuple[int | None, Text]:
    """Return which axis (0 rows, 1 columns) has no order of its own, with its name, or (None, the reason)."""
    # Columns first: every row slice holds all of them, while rows are a sample. `ordered` names axes that have an order in
    # these models although they have none in general. A square matrix from the residual stream to itself has one order for
    # rows and columns: permuting either alone would destroy a diagonal that is there from the start.
    axes = role.info.axes
    if axes[0] is Axis.POSITION:
        return None, Text("a table of positions may be a fixed pattern, which every model shares")
    if axes.count(Axis.RESIDUAL) > 1:
        return None, Text("rows and columns are one axis, so neither may be permuted alone")
    for position in range(len(axes) - 1, -1, -1):
        if axes[position].exchangeable and axes[position] not in ordered:
            return position, AXES[axes[position]]
    reasons = {**ORDERED, **ordered}
    return None, joined(reasons[axis] for axis in axes if axis in reasons)
