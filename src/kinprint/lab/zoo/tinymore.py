"""Extend the tiny Llama by low-rank adapters, distillation, and a mixture of experts.

Low-rank adapters: Hu et al. 2021 (arXiv:2106.09685). Distillation: Hinton et al. 2015 (arXiv:1503.02531). Experts made
of a dense model's feed-forward blocks: Komatsuzaki et al. 2022 (arXiv:2212.05055), in the layout and with the routing
of Mixtral, Jiang et al. 2024 (arXiv:2401.04088), and the balancing loss of Fedus et al. 2021 (arXiv:2101.03961).
"""

# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False, warn-return-any=False

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinprint.lab.zoo.tinylm import Layer, TinyLlama, TinyShape, token_loss

BALANCE = 0.02


class LoraLinear(nn.Module):
    """A frozen matrix plus a trained product of two thin ones, zero at first."""

    def __init__(self, frozen: nn.Linear, rank: int, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        self.frozen = frozen
        self.scale = scale
        self.down = nn.Parameter(torch.empty(rank, frozen.in_features).normal_(0.0, 0.02, generator=generator))
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of this module."""
        return self.frozen(x) + self.scale * (x @ self.down.T @ self.up.T)


def add_lora(model: TinyLlama, targets: tuple[str, ...], rank: int, scale: float, seed: int) -> None:
    """Freeze the model and put adapters on the modules whose names end in one of ``targets``."""
    generator = torch.Generator().manual_seed(seed)
    model.requires_grad_(False)
    for path, module in list(model.named_modules()):
        parent, _, name = path.rpartition(".")
        if name in targets:
            assert isinstance(module, nn.Linear)
            setattr(model.get_submodule(parent), name, LoraLinear(module, rank, scale, generator))


@torch.no_grad()
def merge_lora(model: TinyLlama) -> None:
    """Add each adapter's product to its matrix and put the plain matrix back."""
    for path, module in list(model.named_modules()):
        if isinstance(module, LoraLinear):
            module.frozen.weight += module.scale * (module.up @ module.down)
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, module.frozen)


def distillation_loss(teacher: TinyLlama) -> Callable[[TinyLlama, Tensor], Tensor]:
    """Return the mean divergence per token of the student's distribution from the teacher's; no label is used."""
    teacher.requires_grad_(False)

    def loss(student: TinyLlama, rows: Tensor) -> Tensor:
        ids = rows[:, :-1]
        wanted = teacher(ids).log_softmax(-1).flatten(0, 1)
        got = student(ids).log_softmax(-1).flatten(0, 1)
        return functional.kl_div(got, wanted, reduction="batchmean", log_target=True)

    return loss


def hidden_loss(teacher: TinyLlama) -> Callable[[TinyLlama, Tensor], Tensor]:
    """Return the loss on the text plus how far embeddings and last hidden states are from the teacher's, over their variance."""
    teacher.requires_grad_(False)

    def states(model: TinyLlama, ids: Tensor) -> list[Tensor]:
        caught = [model.model.embed_tokens(ids)]
        hook = model.model.norm.register_forward_pre_hook(lambda _, args: caught.append(args[0]))
        model(ids)
        hook.remove()
        return caught

    def loss(student: TinyLlama, rows: Tensor) -> Tensor:
        pairs = zip(states(student, rows[:, :-1]), states(teacher, rows[:, :-1]), strict=True)
        apart = [functional.mse_loss(got, wanted) / wanted.var() for got, wanted in pairs]
        return token_loss(student, rows) + torch.stack(apart).sum()

    return loss


def _hidden_states(model: TinyLlama, ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """Return the residual stream after the embeddings and after each layer, and the logits."""
    found: list[Tensor] = []
    parts = [model.model.embed_tokens, *model.model.layers]
    hooks = [part.register_forward_hook(lambda _part, _given, out: found.append(out)) for part in parts]
    logits = model(ids)
    for hook in hooks:
        hook.remove()
    return found, logits


def matching_loss(teacher: TinyLlama) -> Callable[[TinyLlama, Tensor], Tensor]:
    """Return the divergence from the teacher's outputs plus the relative distance of the hidden states to the teacher's.

    As in TinyBERT (Jiao et al. 2019, arXiv:1909.10351), with the states after the embeddings among them, and no projection: the
    student takes over the teacher's residual basis, and no weight.
    """
    teacher.requires_grad_(False)

    def loss(student: TinyLlama, rows: Tensor) -> Tensor:
        (wanted, outputs), (got, own) = _hidden_states(teacher, rows[:, :-1]), _hidden_states(student, rows[:, :-1])
        apart = [functional.mse_loss(x, y) / y.square().mean() for x, y in zip(got, wanted, strict=True)]
        logs = own.log_softmax(-1).flatten(0, 1), outputs.log_softmax(-1).flatten(0, 1)
        return torch.stack(apart).sum() + functional.kl_div(*logs, reduction="batchmean", log_target=True)

    return loss


@dataclass(frozen=True)
class MixtralShape(TinyShape):
    """The sizes of a mixture of experts."""

    experts: int = 4
    per_token: int = 2

    def config(self) -> dict[str, object]:
        """Return the config.json of this shape."""
        return super().config() | {
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_experts_per_tok": self.per_token,
            "num_local_experts": self.experts,
            "output_router_logits": False,
            "router_aux_loss_coef": BALANCE,
            "sliding_window": None,
        }


class Expert(nn.Module):
    """SwiGLU feed-forward block under Mixtral's names: w1 gates, w3 goes up, w2 comes down."""

    def __init__(self, shape: TinyShape) -> None:
        super().__init__()
        self.w1 = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.w2 = nn.Linear(shape.ffn, shape.hidden, bias=False)
        self.w3 = nn.Linear(shape.hidden, shape.ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of this module."""
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class SparseMoe(nn.Module):
    """A router and its experts; every expert sees every token, since at this size gathering costs more than it saves."""

    def __init__(self, shape: MixtralShape) -> None:
        super().__init__()
        self.per_token = shape.per_token
        self.gate = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.experts = nn.ModuleList(Expert(shape) for _ in range(shape.experts))
        self.balance = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of this module."""
        probabilities = self.gate(x).softmax(-1)
        chosen = probabilities.topk(self.per_token, dim=-1).indices
        mask = functional.one_hot(chosen, len(self.experts)).sum(-2).to(x.dtype)
        weights = probabilities * mask
        weights = weights / weights.sum(-1, keepdim=True)
        used, likely = mask.flatten(0, -2).mean(0), probabilities.flatten(0, -2).mean(0)
        self.balance = len(self.experts) * (used * likely).sum()
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return (outputs * weights.unsqueeze(-2)).sum(-1)


class SparseLayer(Layer):
    """One transformer block whose feed-forward part is a mixture of experts."""

    def __init__(self, shape: MixtralShape) -> None:
        super().__init__(shape)
        del self.mlp
        self.block_sparse_moe = SparseMoe(shape)

    def feed_forward(self, x: Tensor) -> Tensor:
        """Apply the mixture of experts."""
        return self.block_sparse_moe(x)


class TinyMixtral(TinyLlama):
    """A Mixtral whose ``state_dict`` has exactly the names of a published Mixtral checkpoint."""

    def __init__(self, shape: MixtralShape) -> None:
        super().__init__(shape)
        self.model.layers = nn.ModuleList(SparseLayer(shape) for _ in range(shape.layers))


def upcycle(dense: TinyLlama, experts: int, seed: int) -> TinyMixtral:
    """Copy each feed-forward block into every expert and draw the routers; the function is at first that of ``dense``."""
    shape = MixtralShape(**asdict(dense.shape), experts=experts)
    result = TinyMixtral(shape)
    old, new = dense.state_dict(), result.state_dict()
    generator = torch.Generator().manual_seed(seed)
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    for name, value in new.items():
        before, found, after = name.partition("block_sparse_moe.")
        if not found:
            value.copy_(old[name])
        elif after == "gate.weight":
            value.normal_(0.0, 0.02, generator=generator)
        else:
            value.copy_(old[f"{before}mlp.{names[after.split('.')[2]]}.weight"])
    return result


def balanced_loss(model: TinyLlama, rows: Tensor) -> Tensor:
    """Return the loss on the text plus the routers' balancing loss, without which most experts would stay idle."""
    loss = token_loss(model, rows)
    routers = [module.balance for module in model.modules() if isinstance(module, SparseMoe)]
    return loss + BALANCE * torch.stack(routers).mean()
