"""Experts stored as one tensor with three axes: each has its roles, whichever way round the matrices are stored."""

import numpy as np
import pytest

from kinprint.arch import name_tensors
from kinprint.arch.splits import MOST_EXPERTS, MOST_MATRICES
from kinprint.formats.plan import rows, whole
from kinprint.formats.row_maker import by_element
from kinprint.formats.tensors import TensorInfo, Tensors
from kinprint.formats.views import one_of
from kinprint.model.inspection import inspect
from kinprint.model.model import open_model
from kinprint.model.reader import Want
from support.layouts import write_checkpoint

WIDTH, NEURONS, EXPERTS = 16, 12, 3
CONFIG = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 4, "num_experts": EXPERTS}
BLOCK = "model.layers.0."
EXACT = {"gate": "expert_gate", "up": "expert_up", "down": "expert_down"}


def experts(seed=4, neurons=NEURONS):
    """Return gate, up and down of all experts, out × in, in numbers that BF16 can hold."""
    rng = np.random.default_rng(seed)
    shapes = {"gate": (neurons, WIDTH), "up": (neurons, WIDTH), "down": (WIDTH, neurons)}
    return {name: rng.integers(-128, 128, (EXPERTS, *shape)).astype(np.float32) for name, shape in shapes.items()}


def joined(made, *, interleaved=False):
    both = np.stack([made["gate"], made["up"]], axis=2 if interleaved else 1)
    return both.reshape(EXPERTS, -1, WIDTH)


def swapped(stack):
    return np.ascontiguousarray(stack.transpose(0, 2, 1))


def by_name(made, transposed, interleaved=False):
    stacks = {"gate_up_proj": joined(made, interleaved=interleaved), "down_proj": made["down"]}
    return {name: swapped(stack) if transposed else stack for name, stack in stacks.items()}


LAYOUTS = {
    "qwen3_moe as transformers 5 has it": ("qwen3_moe", "mlp.experts.", False, False),
    "qwen3_moe transposed": ("qwen3_moe", "mlp.experts.", True, False),
    "mixtral": ("mixtral", "mlp.experts.", False, False),
    "deepseek_v3": ("deepseek_v3", "mlp.experts.", False, False),
    "qwen3_vl_moe": ("qwen3_vl_moe", "mlp.experts.", True, False),
    "qwen3_vl_moe as transformers 5 has it": ("qwen3_vl_moe", "mlp.experts.", False, False),
    "llama4": ("llama4_text", "feed_forward.experts.", True, False),
    "gpt_oss": ("gpt_oss", "mlp.experts.", True, True),
}


@pytest.fixture
def store(tmp_path, session_for):
    """Write a model with one norm and the given tensors of block 0, and open it."""

    def build(model_type, tensors, **config):
        stored = {BLOCK + name: values for name, values in tensors.items()}
        stored[BLOCK + "input_layernorm.weight"] = np.ones(WIDTH, np.float32)
        write_checkpoint(tmp_path, stored, {**CONFIG, "model_type": model_type, **config}, dtype="BF16")
        return open_model(str(tmp_path), session_for())

    return build


def check(model, made):
    parts = {(part.role.value, part.expert): part for part in model.naming.tensors if part.expert is not None}
    assert len(parts) == 3 * EXPERTS
    for name, role in EXACT.items():
        for expert in range(EXPERTS):
            part, values = parts[role, expert], made[name][expert]
            assert (part.shape, part.layer) == (values.shape, 0)
            whole, some = model.read([Want(*part.key), Want(*part.key, (3, 8), (1, 5))])
            assert np.array_equal(whole.values, values)
            assert np.array_equal(some.values, values[3:8, 1:5])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_expert_has_its_roles(store, layout):
    model_type, prefix, transposed, interleaved = LAYOUTS[layout]
    made = experts()
    tensors = {prefix + name: stack for name, stack in by_name(made, transposed, interleaved).items()}
    model = store(model_type, tensors, intermediate_size=NEURONS)
    assert (model.naming.guessed, model.naming.unmapped, model.naming.excluded) == (False, (), ())
    assert model.naming.experts == EXPERTS
    check(model, made)


def test_the_experts_of_granite(store):
    made = experts()
    stacks = {"input_linear.weight": joined(made), "output_linear.weight": made["down"]}
    model = store("granitemoe", {f"block_sparse_moe.{name}": stack for name, stack in stacks.items()})
    assert model.naming.unmapped == ()
    check(model, made)


@pytest.mark.parametrize("transposed", [True, False])
def test_square_matrices_follow_the_others(store, transposed):
    """As in gpt-oss: down is square, so gate_up shows which way round its model stores experts."""
    made = experts(neurons=WIDTH)
    tensors = {f"mlp.experts.{name}": stack for name, stack in by_name(made, transposed, True).items()}
    check(store("gpt_oss", tensors, intermediate_size=WIDTH), made)


def test_the_same_experts_stored_one_by_one_are_the_same(store):
    made = experts()
    single = {f"mlp.experts.{e}.{name}_proj.weight": made[name][e] for name in made for e in range(EXPERTS)}
    check(store("qwen3_moe", single), made)


def test_rows_of_an_expert_cost_their_bytes(store):
    made = experts()
    model = store("qwen3_moe", {f"mlp.experts.{name}": stack for name, stack in by_name(made, False).items()})
    up = next(part for part in model.naming.tensors if part.role == "expert_up" and part.expert == 2)
    assert up.name == BLOCK + "mlp.experts.gate_up_proj[2]"
    assert model.cost(Want(*up.key, (2, 5))) == 3 * WIDTH * 2


def test_inspection_counts_bytes_once(store, tmp_path, settings_for):
    store("qwen3_moe", {f"mlp.experts.{name}": stack for name, stack in by_name(experts(), False).items()})
    report = inspect(str(tmp_path), settings=settings_for())
    found = {line.role: (line.tensors, line.stored_bytes) for line in report.roles if line.role.startswith("expert")}
    assert found == dict.fromkeys(EXACT.values(), (EXPERTS, EXPERTS * NEURONS * WIDTH * 2))


# -- lists of names alone --------------------------------------------------------------------------------------------------


def named(shapes, **config):
    norm = {BLOCK + "input_layernorm.weight": (WIDTH,)}
    return name_tensors({**CONFIG, "model_type": "qwen3_moe", **config}, {**norm, **shapes})


UP, DOWN = BLOCK + "mlp.experts.gate_up_proj", BLOCK + "mlp.experts.down_proj"


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({UP: (3, 24, 17)}, "matrices of 24 × 17 do not fit a width of 16"),
        ({DOWN: (3, 5, 17)}, "matrices of 5 × 17 do not fit a width of 16"),
        ({UP: (3, 25, 16)}, "do not add up to 25"),
        ({UP: (24, 16)}, "2 axes stored, 3 expected"),
        ({UP: (3, 24, 16, 1)}, "4 axes stored, 3 expected"),
        ({DOWN: (MOST_EXPERTS + 1, 16, 1)}, "more experts than any model has"),
        ({DOWN: (3, 16, 12), DOWN + "[1]": (16, 12)}, "one of its matrices has the name of a stored tensor"),
    ],
)
def test_stacks_that_do_not_fit_stay_unmapped(shapes, reason):
    naming = named(shapes)
    assert set(shapes) <= set(naming.unmapped)
    assert any(reason in note for note in naming.notes)
    assert [tensor for tensor in naming.tensors if tensor.expert is not None] == []


def test_a_config_that_contradicts_the_stack():
    naming = named({UP: (3, 24, 16)}, moe_intermediate_size=10)
    assert naming.unmapped == (UP,)


def test_experts_stored_both_ways():
    single = {f"{BLOCK}mlp.experts.{e}.down_proj.weight": (16, 12) for e in range(3)}
    naming = named({DOWN: (3, 16, 12), **single})
    assert [(each.name, each.reason.partition(" as ")[0]) for each in naming.excluded] == [(DOWN, "same role")]
    assert {tensor.name for tensor in naming.tensors if tensor.expert is not None} == set(single)


def test_a_stack_of_nothing_is_left_out():
    naming = named({DOWN: (0, 16, 12)})
    assert [each.name for each in naming.excluded] == [DOWN]


def test_the_number_of_matrices_is_bounded():
    """A header of a few kilobytes must not become millions of tensors."""
    each = MOST_EXPERTS
    shapes = {f"model.layers.{layer}.mlp.experts.down_proj": (each, 16, 1) for layer in range(60)}
    naming = named(shapes, num_hidden_layers=60)
    assert len(naming.tensors) - 1 == MOST_MATRICES // each * each
    assert len(naming.unmapped) == 60 - MOST_MATRICES // each


def test_blocks_from_the_number_of_layers_on_are_left_out():
    shapes = {DOWN: (3, 16, 12), "model.layers.1.mlp.experts.down_proj": (3, 16, 12)}
    naming = named(shapes, num_nextn_predict_layers=1)
    assert [each.name for each in naming.excluded] == ["model.layers.1.mlp.experts.down_proj"]


# -- matrices of a stack as tensors ----------------------------------------------------------------------------------------


def test_names_of_matrices():
    tensors = Tensors({"x": ("x", "F16", (3, 4, 5), 2, 100, 220), "v": ("v", "F16", (3,), 0, 0, 6)})
    assert tensors["x[1]"] == TensorInfo("x[1]", "F16", (4, 5), 2, 140, 180)
    assert list(tensors) == ["x", "v"]
    for wrong in ("x[3]", "x[-1]", "x[01]", "x[1", "x[]", "y[0]", "v[0]", "x[1][1]", "x[99999]"):
        assert wrong not in tensors
        with pytest.raises(KeyError):
            tensors[wrong]


class Doubled:
    """Twice a stored tensor, as a stand-in for a stack that is made of others."""

    def __init__(self, stored):
        self.stored = stored

    def parts(self, start, stop):
        return [by_element(self.stored, start * 20, stop * 20)]

    def build(self, start, stop, parts):
        return 2 * parts[0].reshape(stop - start, 4, 5)


def test_a_matrix_of_a_stack_that_is_made(tmp_path, session_for):
    values = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    write_checkpoint(tmp_path, {"x": values}, {"model_type": "llama"})
    checkpoint = open_model(str(tmp_path), session_for()).checkpoint
    stored = checkpoint.tensors["x"]
    made = one_of(stored._replace(start=0, end=stored.nbytes, made=Doubled(stored)), 2)
    assert (made.name, made.shape) == ("x[2]", (4, 5))
    assert np.array_equal(checkpoint.read([whole(made)])[0], 2 * values[2])
    assert np.array_equal(checkpoint.read([rows(made, [(1, 3)])])[0], 2 * values[2, 1:3])
