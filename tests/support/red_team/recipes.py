"""The table of the red team: what is made, by whom (honest or evasive), and the answers that are right."""

from __future__ import annotations

from typing import Any

from kinprint.lab.red_team.models import Source, bundled, drawn, trained
from kinprint.lab.red_team.recipe import DEPTHS, EVASIVE, HONEST, Recipe, Step, do, made
from kinprint.lab.zoo import derive
from kinprint.lab.zoo.members import Training
from kinprint.results.findings import DERIVED, NO_EVIDENCE, NOT_TESTABLE, SHARES_COMPONENTS, SHARES_INITIALISATION
from support.red_team import disguises as hide
from support.red_team import scripts as public

INNOCENT, START = (NO_EVIDENCE, NOT_TESTABLE), (SHARES_INITIALISATION,)
LITTLE = (*INNOCENT, SHARES_INITIALISATION)
"""Public random numbers are in both models, and no training of one in the other: a common start may be said, no more."""

BASE, TUNED, HEAVY, OTHER, INDEP, TWIN, SIBLING = (
    bundled(name) for name in ("base", "finetune", "continued", "unrelated", "indep", "twin", "sibling")
)
ONE, TWO = drawn(1), drawn(2)
INT4, INT8, NOISE = do(derive.quantise, bits=4), do(derive.quantise, bits=8), do(derive.noise, relative_sigma=0.5)
TURNED, SHUFFLED, ALL = do(derive.rotate_residual), do(derive.random_symmetry), do(derive.all_symmetries)
THIN = do(hide.thinned)
MOVED = ("re_based", "neurons_permuted", "heads_reordered", "norms_folded", "rescaled", "scaled")
SAME = ("same_function",)
"""Said rightly of any change that keeps the function."""
TRAINED = ("fine_tuned", "continued_pretraining")
TRAINING = "fine_tuned|continued_pretraining"


def _public() -> list[Recipe]:
    """Return independent models, and copies, that one public script made alike."""
    scripts = {
        "circulant": (do(public.circulant), INNOCENT), "block circulant": (do(public.circulant, block=16), INNOCENT),
        "hashed": (do(public.hashed), INNOCENT),
        "public basis": (do(public.public_basis), LITTLE), "Hadamard start": (do(public.hadamard), LITTLE),
        "identity start": (do(public.near_identity), LITTLE), "alternating copies": (do(public.alternating), INNOCENT),
        "idle by number": (do(public.idle_by_number), INNOCENT), "tied layers": (do(public.tied), INNOCENT),
        "tied in threes": (do(public.tied, period=3), INNOCENT), "one public grid": (do(public.public_grid), INNOCENT),
        "one sign a column": (do(public.one_sign_a_column), INNOCENT), "Kronecker": (do(public.kronecker), INNOCENT),
        "public signs": (do(public.public_signs), LITTLE), "column means": (do(public.column_means), LITTLE),
        "positive under a mask": (do(public.positive_under_mask), INNOCENT),
        "public adapter": (do(public.public_adapter), (*LITTLE, SHARES_COMPONENTS)),
        "strong identity start": (do(public.near_identity, share=1.5), LITTLE), "public spikes": (do(public.public_spikes), LITTLE),
        "public scales": (do(public.public_scales), INNOCENT), "token lengths": (do(public.token_lengths), INNOCENT),
        "public projections": (do(public.public_projection), LITTLE), "ternary": (do(public.ternary), INNOCENT),
        "values repeated": (do(public.repeated_values), INNOCENT),
    }  # fmt: skip
    dimensions = {
        f"dimensions in {how}": do(public.ordered_dimensions, how=how)
        for how in ("bits", "snake", "pairs of bits", "a public deal")
    } | {f"gains: {how}": do(public.public_gains, how=how) for how in ("staircase", "outliers")}
    rows = [(1, name, step, classes) for name, (step, classes) in scripts.items()]
    rows += [(4, name, step, INNOCENT) for name, step in dimensions.items()]
    found = []
    for number, (principle, name, step, classes) in enumerate(rows):
        depth, other, third = ((DEPTHS[(number + place) % 3],) for place in range(3))
        found += [
            Recipe(
                f"{name}, strangers", principle, HONEST, classes, BASE, OTHER, (step,), (step,), layers=depth + third
            ),
            Recipe(f"{name}, drawn", principle, HONEST, classes, ONE, TWO, (step,), (step,), layers=other),
            Recipe(
                f"{name}, a tuned copy", principle, EVASIVE, (DERIVED,), BASE, TUNED, (step,), (step,), layers=other
            ),
        ]
    wave = do(public.wave_embeddings)
    aligned, wholly = do(public.put_in_order, BASE), do(public.put_in_order, BASE, tables=True)
    valued = do(public.put_in_order, BASE, tables=True, values=True)
    return [
        *found,
        Recipe("neurons in another's order", 1, HONEST, INNOCENT, BASE, OTHER, (), (aligned,), layers=(6, 24)),
        Recipe("a twin's neurons in another's order", 1, HONEST, INNOCENT, BASE, TWIN, (), (aligned,), layers=(12,)),
        Recipe("all in another's order", 1, HONEST, INNOCENT, BASE, OTHER, (), (wholly,), layers=(12,)),
        Recipe("all in another's order, values too", 1, HONEST, INNOCENT, BASE, OTHER, (), (valued,), layers=(6, 24), swapped=True),
        Recipe("two models in the order of a third", 1, HONEST, INNOCENT, TWIN, INDEP, (wholly,), (wholly,), layers=(12,)),
        Recipe("one start, neurons put in order again", 2, HONEST, START, BASE, SIBLING, (),
               (do(derive.permute_neurons), aligned), layers=(6,)),
        Recipe("tuned, neurons put in order again", 1, EVASIVE, (DERIVED,), BASE, TUNED, (),
               (do(derive.permute_neurons), aligned), (TRAINING,), layers=(12,)),
        Recipe("sinusoids in embeddings", 3, HONEST, LITTLE, BASE, INDEP, (wave,), (wave,), layers=(6, 24)),
        Recipe("public random gains", 6, HONEST, (*LITTLE, SHARES_COMPONENTS), BASE, OTHER,
               (do(public.public_gains, how="seed"),), (do(public.public_gains, how="seed"),),
               why="gains of a public seed are shared gains; that they are public is not in the weights"),
    ]  # fmt: skip


def _starts() -> list[Recipe]:
    """Return models of one random start, and what was learnt from another's outputs or hidden states."""
    even, odd = ("manual-even", "docstrings-am"), ("manual-odd", "docstrings-nz")

    def run(corpora: tuple[str, ...], steps: int, init: int | None, data: int, **more: Any) -> Training:
        return Training(corpora, steps, more.pop("rate", 0.004), data, init, tokenizer=even, **more)

    short = [trained(run(text, 50, 7, data)) for text, data in ((even, 1), (odd, 2))]
    longer = [trained(run(text, 200, 7, data)) for text, data in ((even, 1), (odd, 2))]
    child = trained(run(odd, 60, None, 5, rate=0.001), longer[0])
    student = trained(run(odd, 250, 11, 3), hidden=True)
    other = trained(run(odd, 50, 8, 2))
    mask = do(public.supermask)
    unclear = (DERIVED, SHARES_INITIALISATION)
    kin = "what a student matched of its teacher is in its embeddings; it is no start and no descent"
    wide = [drawn(seed, start=7, learned=1.5) for seed in (1, 2)]
    part = [drawn(seed, embeddings=7) for seed in (1, 2)]
    turns, moved = (("reordered", SHUFFLED), ("rotated", TURNED), ("all symmetries", ALL)), (*MOVED, *TRAINED)
    weak = [drawn(seed, start=7, learned=0.6) for seed in (1, 2)]
    return [
        Recipe("50 steps, other text", 2, HONEST, START, short[0], short[1]),
        Recipe("200 steps, other text", 2, HONEST, START, longer[0], longer[1], layers=(6, 12)),
        Recipe("1200 steps, other text", 2, HONEST, START, BASE, SIBLING),
        Recipe("two starts, 50 steps", 2, HONEST, INNOCENT, short[0], other, layers=(6, 24)),
        Recipe("supermasks of one public start", 2, HONEST, LITTLE, BASE, OTHER, (mask,), (mask,)),
        Recipe("drawn, one start, learned apart", 2, HONEST, START, wide[0], wide[1]),
        Recipe("drawn, one start, hardly learned", 2, HONEST, START, weak[0], weak[1], layers=(12,)),
        Recipe("a young model, tuned", 2, HONEST, unclear, longer[0], child, layers=(6, 12), why="too young to tell"),
        Recipe("one start, int4", 2, EVASIVE, START, BASE, SIBLING, (), (INT4,), layers=(12,)),
        Recipe("a young model, tuned, pruned", 2, EVASIVE, unclear, longer[0], child, (), (do(derive.prune, share=0.3),),
               layers=(6,)),
        Recipe("a tuned model, noise 50 %", 2, EVASIVE, (DERIVED,), BASE, TUNED, (), (NOISE,), layers=(24,)),
        Recipe("outputs distilled", 3, HONEST, INNOCENT, BASE, bundled("distilled_1")),
        Recipe("two students of one teacher", 3, HONEST, INNOCENT, bundled("distilled_1"), bundled("distilled_2"), layers=(12,)),
        Recipe("hidden states distilled", 3, HONEST, (NO_EVIDENCE, SHARES_COMPONENTS), lambda _: BASE(4), student,
               layers=(6, 12), why=kin),
        Recipe("embeddings of one seed", 3, HONEST, LITTLE, part[0], part[1]),
        Recipe("a student in another basis", 3, EVASIVE, INNOCENT, BASE, bundled("distilled_2"), (), (ALL,), layers=(6, 24)),
        Recipe("a stranger with base's embeddings", 3, EVASIVE, (SHARES_COMPONENTS,), BASE, OTHER, (),
               (do(derive.replace_tables, BASE),)),
        Recipe("a stranger with base's embeddings, int4", 3, EVASIVE, (SHARES_COMPONENTS,), BASE, OTHER, (),
               (do(derive.replace_tables, BASE), INT4), layers=(12,)),
        *(Recipe(f"one start, {name}", 8, HONEST, LITTLE, BASE, SIBLING, (), (step,), layers=(6, 24)) for name, step in turns),
        *(Recipe(f"one drawn start, {name}", 8, EVASIVE, LITTLE, wide[0], wide[1], (), (step,), layers=(12,))
          for name, step in turns),
        *(Recipe(f"origin: {name}, tuned", 8, EVASIVE, (DERIVED,), BASE, TUNED, (), (step,), ("re_based",), moved, (6, 24))
          for name, step in turns[:2]),
        *(Recipe(f"origin: {name}, trained heavily", 8, EVASIVE, (DERIVED,), BASE, HEAVY, (), (step,), ("re_based",), moved, (12,))
          for name, step in turns[:2]),
    ]  # fmt: skip


def _norms() -> list[Recipe]:
    """Return models that share norms, or all but norms, and models that share some of their layers."""
    mlp = do(hide.norms_of, BASE, parts="post_attention")
    moved = do(hide.every_other, lambda layers: made(BASE, (SHUFFLED,), layers))
    partly = (SHARES_COMPONENTS,)
    folded = ("norms_folded",)
    swaps = ("unknown", "merged", "layers_replaced", "attention_changed", "mlp_changed")
    bare = (do(derive.replace_embeddings), do(hide.redrawn))
    dealt, flipped = do(derive.permute_residual), do(derive.flip_signs)
    lost = (*MOVED, *TRAINED, "mlp_changed", "vocabulary_replaced", "units_negated")
    third, most = (do(hide.foreign_layers, OTHER, share=share) for share in (1 / 3, 0.8))
    return [
        Recipe("a stranger with base's norms", 6, HONEST, partly, BASE, OTHER, (), (do(hide.norms_of, BASE),)),
        Recipe("a stranger with half of base's norms", 6, EVASIVE, partly, BASE, OTHER, (), (mlp,)),
        Recipe("a stranger with base's norms, noise 50 %", 6, EVASIVE, partly, BASE, INDEP, (),
               (do(hide.norms_of, BASE, noise=0.5),), layers=(12, 24)),
        Recipe("norms copied, all retrained", 6, HONEST, partly, BASE, bundled("norms_copied")),
        Recipe("base's norms, shuffled, in a stranger", 6, HONEST, INNOCENT, BASE, OTHER, (),
               (do(hide.norms_of, lambda layers: made(BASE, (do(hide.shuffled_norms, apart=False),), layers)),)),
        *(Recipe(f"tokens and MLPs redrawn, {name}", 6, EVASIVE, (DERIVED,), BASE, source, (), (*bare, *steps), ("re_based",), lost,
                 layers)
          for name, source, steps, layers in (("dimensions reordered", BASE, (dealt,), (6, 24)),
                                              ("dimensions reordered and negated", BASE, (dealt, flipped), (12,)),
                                              ("dimensions reordered, tuned", TUNED, (dealt,), (6, 12)))),
        Recipe("a stranger with base's norms, all reordered", 6, HONEST, INNOCENT, BASE, OTHER, (),
               (do(hide.norms_of, BASE), dealt), layers=(6, 24), why="norms in another order show no weights"),
        Recipe("one start, tokens and MLPs redrawn, reordered", 6, HONEST, LITTLE, BASE, SIBLING, (), (*bare, dealt), layers=(12,)),
        Recipe("norms shuffled", 6, EVASIVE, (DERIVED,), BASE, BASE, (), (do(hide.shuffled_norms, apart=True),),
               ("norms_replaced",)),
        Recipe("norms reset, all trained", 6, EVASIVE, (DERIVED,), BASE, bundled("norms_reset"), (), (),
               ("norms_replaced",), TRAINED),
        Recipe("a stranger's norms, tuned", 6, EVASIVE, (DERIVED,), BASE, TUNED, (), (do(hide.norms_of, OTHER),),
               ("norms_replaced",), TRAINED, layers=(6, 24)),
        Recipe("half of every gain folded", 6, EVASIVE, (DERIVED,), BASE, BASE, (), (do(hide.partly_folded),), folded, SAME),
        Recipe("gains traded, tuned", 6, EVASIVE, (DERIVED,), ONE, ONE, (), (do(hide.partly_folded, seed=4), do(derive.noise,
               relative_sigma=0.05)), folded, ("noise_added", *TRAINED), layers=(12,)),
        Recipe("a third of a stranger's layers", 5, HONEST, (DERIVED,), BASE, BASE, (), (third,), (), swaps,
               why="no training was done: fine_tuned is not so"),
        Recipe("four fifths of a stranger's layers", 5, HONEST, partly, BASE, BASE, (), (most,)),
        Recipe("a third of a stranger's layers, turned", 5, EVASIVE, (DERIVED,), BASE, BASE, (),
               (third, ALL), ("re_based",), (*MOVED, *swaps), layers=(12, 24)),
        Recipe("every other layer's neurons reordered", 5, EVASIVE, (DERIVED,), BASE, BASE, (),
               (do(hide.every_other, lambda layers: made(BASE, (do(derive.permute_neurons),), layers)),),
               ("neurons_permuted|same_function",), why="that the function is the same is so, and says as much"),
        Recipe("drawn, all symmetries", 5, EVASIVE, (DERIVED,), ONE, ONE, (), (ALL,), ("re_based",), (*MOVED, *SAME)),
        Recipe("drawn, neurons rescaled, heads reordered", 5, EVASIVE, (DERIVED,), ONE, ONE, (),
               (do(derive.rescale_neurons), do(derive.permute_heads)), ("rescaled", "heads_reordered"), (*MOVED, *SAME)),
        Recipe("every other layer in another basis", 5, EVASIVE, (DERIVED, SHARES_COMPONENTS), BASE, BASE, (), (moved,),
               layers=(6, 24), why="half of the layers are in place: just at the bound"),
        Recipe("strangers, a third of layers tied", 5, HONEST, INNOCENT, BASE, TWIN, (do(hide.doubled),), (do(hide.doubled),)),
    ]  # fmt: skip


def _function() -> list[Recipe]:
    """Return changes that keep the function, alone and with training, rounding, noise and other depths; strangers beside."""
    disguises = {"reordered": SHUFFLED, "rotated": TURNED, "all symmetries": ALL}
    after: dict[str, tuple[Source, tuple[Step, ...], tuple[str, ...]]] = {
        "alone": (BASE, (), SAME), "tuned": (TUNED, (), TRAINED), "trained heavily": (HEAVY, (), TRAINED),
        "int4": (BASE, (INT4,), ("quantised",)), "noise 50 %": (BASE, (NOISE,), ("noise_added", *TRAINED)),
        "thinned": (BASE, (THIN,), ("depth_changed",)), "doubled": (BASE, (do(hide.doubled),), ("depth_changed",)),
        "tuned, int4, thinned": (TUNED, (THIN, INT4), ("depth_changed", "quantised", *TRAINED)),
    }  # fmt: skip
    grid = [
        Recipe(
            f"{name}, {what}",
            7,
            EVASIVE,
            (DERIVED,),
            BASE,
            source,
            (),
            (step, *then),
            ("re_based",),
            (*MOVED, *may),
            layers,
        )
        for name, step in disguises.items()
        for number, (what, (source, then, may)) in enumerate(after.items())
        for layers in (DEPTHS if step is ALL else DEPTHS[(number + (step is TURNED)) % 3 :][:1],)
    ]
    fresh = do(derive.replace_embeddings)
    experts = do(derive.upcycle, experts=4, noise=0.3)
    cut = (*MOVED, "width_pruned")
    replaced = (*MOVED, "vocabulary_replaced")
    shapes: list[tuple[str, tuple[Step, ...], tuple[str, ...] | None, tuple[str, ...]]] = [
        ("widened, turned", (do(hide.widened), ALL), ("re_based",), (*MOVED, *SAME)),
        ("widened, reordered, int4", (do(hide.widened), SHUFFLED, INT4), ("re_based",), (*MOVED, "quantised")),
        ("sliced to 72 of 96", (do(hide.sliced),), ("re_based",), MOVED),
        ("sliced to 72 of 96, reordered", (do(hide.sliced), SHUFFLED), ("re_based",), MOVED),
        ("each layer in a basis of its own", (do(hide.rotate_each_layer),), ("re_based",), MOVED),
        ("neurons split, turned", (do(hide.more_neurons, count=64, idle=False), ALL), ("re_based",), cut),
        ("idle neurons, reordered", (do(hide.more_neurons, count=64, idle=True), SHUFFLED), ("re_based",), cut),
        ("layers inserted, turned", (do(hide.inserted), ALL), ("re_based",), (*MOVED, "depth_changed")),
        ("layers mixed, turned", (do(hide.mixed_layers), ALL), ("re_based",), (*MOVED, "layers_reordered")),
        ("tokens replaced, all reordered", (fresh, SHUFFLED), ("re_based",), replaced),
        ("tokens replaced, all symmetries, noise 50 %", (fresh, ALL, NOISE), ("re_based",), (*replaced, "noise_added", *TRAINED)),
        ("factors", (do(hide.factored),), None, ()),
        ("factors named u and v, heads reordered", (do(hide.factored, names=("u", "v")), do(derive.permute_heads)), None, ()),
        ("a quarter of the neurons cut, turned", (do(derive.prune_neurons, keep=192), ALL), ("re_based",), cut),
        ("values mixed, rotary turned", (do(derive.mix_values), do(derive.turn_rotary)), None, ()),
        ("MLPs split into shuffled experts", (do(hide.split_into_experts, seed=3),), ("mlp_split",), MOVED),
    ]  # fmt: skip
    some = do(hide.partly_reordered)
    evasive: list[tuple[str, Source, tuple[Step, ...], tuple[str, ...] | None, tuple[str, ...]]] = [
        ("half reordered", BASE, (some,), ("re_based|same_function",), (*MOVED, *SAME)),
        ("half reordered, tuned", TUNED, (some,), ("re_based",), (*MOVED, "fine_tuned")),
        ("a third reordered, trained heavily", HEAVY, (do(hide.partly_reordered, share=1 / 3),), ("re_based",), (*MOVED, *TRAINED)),
        ("layers cut in two", BASE, (do(hide.cut_in_two),), ("depth_changed",), (*MOVED, *SAME)),
        ("layers cut in two, turned", BASE, (do(hide.cut_in_two), ALL), ("re_based",), (*MOVED, *SAME, "depth_changed")),
        ("noise 100 %", BASE, (do(derive.noise, relative_sigma=1.0),), ("noise_added",), ()),
        ("layers averaged in pairs", BASE, (do(hide.averaged_layers),), ("depth_changed",), ("merged", "continued_pretraining")),
        ("layers averaged in pairs, turned", BASE, (do(hide.averaged_layers), ALL), ("re_based",), (*MOVED, "depth_changed")),
    ]  # fmt: skip
    same = ("no_difference_found",)
    many = ("depth_changed", "quantised", "noise_added", *TRAINED)
    single = [(depth,) for depth in DEPTHS]
    return [
        *grid,
        *(Recipe(name, 7, EVASIVE, (DERIVED,), BASE, source, (), steps, kinds, may, (6, 12)[n % 2 :][: 1 + (n < 2)])
          for n, (name, source, steps, kinds, may) in enumerate(evasive)),
        *(Recipe(name, 7, EVASIVE, (DERIVED,), BASE, BASE, (), steps, kinds, may, (DEPTHS[i % 3], DEPTHS[(i + 1) % 3]),
                 unsaid="attention") for i, (name, steps, kinds, may) in enumerate(shapes)),
        *(Recipe(f"drawn, {name}, noise 50 %", 7, EVASIVE, (DERIVED,), ONE, ONE, (), (step, NOISE), ("re_based",),
                 (*MOVED, "noise_added", *TRAINED), depth) for (name, step), depth in zip(disguises.items(), single, strict=True)),
        *(Recipe(f"{what}, {name}", 7, HONEST, INNOCENT, BASE, source, (), steps, layers=layers)
          for what, source, layers in (("a stranger", OTHER, (6, 24)), ("a twin", TWIN, (12,)))
          for name, steps in (("turned", (ALL,)), ("widened, turned", (do(hide.widened), ALL)), ("sliced", (do(hide.sliced),)))),
        Recipe("tuned, inserted, widened, all symmetries, noise 50 %, int4", 7, EVASIVE, (DERIVED,), BASE, TUNED, (),
               (do(hide.inserted), do(hide.widened), ALL, NOISE, INT4), ("re_based",), (*MOVED, *many), layers=(6, 24)),
        Recipe("trained heavily, thinned, all symmetries, noise 50 %", 7, EVASIVE, (DERIVED,), BASE, HEAVY, (),
               (THIN, ALL, NOISE), ("re_based",), (*MOVED, *many), layers=(12,)),
        Recipe("experts reordered", 7, EVASIVE, (DERIVED,), BASE, BASE, (experts,), (experts, do(hide.reorder_experts)),
               ("experts_reordered|re_based|no_difference_found|same_function",), same),
        Recipe("experts reordered, all turned", 7, EVASIVE, (DERIVED,), BASE, BASE, (experts,),
               (experts, do(hide.reorder_experts), ALL), ("re_based",), (*MOVED, *SAME, "experts_reordered"), layers=(6, 12)),
    ]  # fmt: skip


def _kinds() -> list[Recipe]:
    """Return honest and evasive edits whose names are asked for."""
    half, adapter = do(derive.prune, share=0.5), do(derive.low_rank, rank=8, relative=0.1)
    cases: list[tuple[str, Source, tuple[Step, ...], tuple[str, ...], tuple[str, ...]]] = [
        ("int8 in groups of 64", BASE, (do(derive.quantise, bits=8, group=64),), ("quantised",), ()),
        ("int5", BASE, (do(derive.quantise, bits=5),), ("quantised",), ()),
        ("int4, tables kept", BASE, (do(derive.quantise, bits=4, embeddings=False),), ("quantised",), ()),
        ("tuned twice, int8", bundled("child_of_child"), (INT8,), (TRAINING, "quantised"), ("trained_and_quantised",)),
        ("tuned, int4", TUNED, (INT4,), (TRAINING, "quantised"), ("trained_and_quantised",)),
        ("pruned, int8", BASE, (half, INT8), ("pruned", "quantised"), ()),
        ("30 % pruned, int8", BASE, (do(derive.prune, share=0.3), INT8), ("pruned", "quantised"), ()),
        ("tuned, pruned, int8", TUNED, (half, INT8), (TRAINING, "pruned", "quantised"), ()),
        ("scaled, int8", BASE, (do(derive.scale, factor=1.5), INT8), ("scaled", "quantised"), ()),
        ("scaled down, int4, thinned", BASE, (do(derive.scale, factor=0.7), INT4, THIN),
         ("depth_changed", "scaled", "quantised"), ()),
        ("rank 40, thinned", BASE, (do(hide.truncated, rank=40), THIN), ("depth_changed", "rank_truncated"), ()),
        ("layers mixed, int8", BASE, (do(hide.mixed_layers), INT8), ("layers_reordered", "quantised"), ()),
        ("doubled, tuned", TUNED, (do(hide.doubled),), ("depth_changed", TRAINING), ()),
        ("split into experts, int8", BASE, (do(hide.split_into_experts), INT8), ("mlp_split",), ("quantised",)),
        ("experts with noise", BASE, (do(derive.upcycle, experts=3, noise=0.1),), ("upcycled",), ("noise_added",)),
        ("merged 0.6 with indep", BASE, (do(derive.merge, INDEP, coefficients=(0.6, 0.4)),), ("merged",), ()),
        ("folded, thinned", BASE, (do(derive.fold_norms), THIN), ("depth_changed", "norms_folded"), ()),
        ("tokens redrawn, tuned", TUNED, (do(derive.replace_embeddings),), ("vocabulary_replaced", TRAINING), ()),
        ("neurons reordered, int8", BASE, (do(derive.permute_neurons), INT8), ("neurons_permuted", "quantised"), ()),
        ("heads reordered, tuned", TUNED, (do(derive.permute_heads),), ("heads_reordered", TRAINING), ()),
        ("adapter of rank 8, pruned", BASE, (adapter, half), ("pruned",), ("lora_merged", *TRAINED)),
        ("noise 20 %, thinned", BASE, (do(derive.noise, relative_sigma=0.2), THIN), ("depth_changed", "noise_added"), ()),
        ("trained heavily", HEAVY, (), ("continued_pretraining",), ()),
        ("tuned twice", bundled("child_of_child"), (), (TRAINING,), ()),
        ("adapter merged", bundled("lora"), (), ("lora_merged|fine_tuned",), ()),
        ("two thirds of the neurons", BASE, (do(derive.prune_neurons, keep=170),), ("width_pruned",), ("neurons_permuted",)),
    ]  # fmt: skip
    found = [
        Recipe(name, 9, EVASIVE if len(steps) > 1 else HONEST, (DERIVED,), BASE, source, (), steps, kinds, may,
               tuple(DEPTHS[(number + place) % 3] for place in range(1 + number % 2)))
        for number, (name, source, steps, kinds, may) in enumerate(cases)
    ]  # fmt: skip
    blend = do(derive.merge, TUNED, coefficients=(0.6, 0.4))
    mixed = do(derive.merge, OTHER, coefficients=(0.7, 0.3))
    near = ("unknown", "merged", *TRAINED)
    return [
        *found,
        Recipe("true parents given", 10, HONEST, (DERIVED,), BASE, BASE, (), (mixed,), ("merged",), parents=(OTHER,)),
        Recipe("a child's blend, parents given", 10, HONEST, (DERIVED,), BASE, HEAVY, (), (blend,), ("merged",), TRAINED,
               parents=(TUNED, HEAVY), layers=(6, 24)),
        Recipe("a relative of the parent given", 10, EVASIVE, (DERIVED,), BASE, BASE, (), (blend,), (TRAINING,), near,
               parents=(HEAVY,)),
        Recipe("a relative of the base given", 10, EVASIVE, (DERIVED,), TUNED, BASE, (), (mixed,), None,
               parents=(OTHER,), layers=(12,), why="0.7 of a tuned model fits nearly as well as 0.7 of its parent"),
        Recipe("no merge, a stranger given", 10, HONEST, (DERIVED,), BASE, TUNED, (), (), (TRAINING,), parents=(OTHER,)),
        Recipe("no merge, a relative given", 10, EVASIVE, (DERIVED,), BASE, TUNED, (), (), (TRAINING,), parents=(HEAVY,)),
    ]  # fmt: skip


def _limits() -> list[Recipe]:
    """Return pairs of which part cannot be read, or that are held against each other in both orders."""
    unknown, flat = do(hide.renamed, parts=("self_attn",)), do(hide.constant_norms)
    bare = do(hide.renamed, parts=("self_attn", "mlp"))
    fresh = do(derive.replace_embeddings)
    pairs: list[tuple[str, str, tuple[str, ...], Source, Source, tuple[Step, ...]]] = [
        ("widened, turned", EVASIVE, (DERIVED,), BASE, BASE, (do(hide.widened), ALL)),
        ("tuned, thinned, int8", HONEST, (DERIVED,), BASE, TUNED, (THIN, INT8)),
        ("merged with a stranger", HONEST, (DERIVED,), BASE, BASE, (do(derive.merge, OTHER, coefficients=(0.6, 0.4)),)),
        ("one start", HONEST, START, BASE, SIBLING, ()),
        ("strangers, one widened", HONEST, INNOCENT, BASE, TWIN, (do(hide.widened), ALL)),
        ("norms folded, heavy training", EVASIVE, (DERIVED,), BASE, HEAVY, (do(derive.fold_norms),)),
        ("doubled, rotated", EVASIVE, (DERIVED,), BASE, BASE, (do(hide.doubled), TURNED)),
        (
            "tokens and MLPs redrawn, reordered",
            EVASIVE,
            (DERIVED,),
            BASE,
            BASE,
            (fresh, do(hide.redrawn), do(derive.permute_residual)),
        ),
        ("experts, noise", HONEST, (DERIVED,), BASE, BASE, (do(derive.upcycle, experts=2, noise=0.2),)),
    ]
    return [
        Recipe("attention under unknown names", 11, EVASIVE, (DERIVED,), BASE, BASE, (), (unknown,), unsaid="attention"),
        Recipe("attention under unknown names, turned", 11, EVASIVE, (DERIVED,), BASE, BASE, (), (ALL, unknown),
               unsaid="attention", layers=(12,)),
        Recipe("all matrices under unknown names, no gains, tokens redrawn", 11, EVASIVE, INNOCENT, BASE, BASE, (flat,),
               (flat, fresh, bare), layers=(6, 24), why="tokens are left to test, and would have shown a copy: no evidence is so"),
        Recipe("all under unknown names, no gains", 11, EVASIVE, (NOT_TESTABLE,), BASE, BASE, (flat,),
               (flat, do(hide.renamed, parts=("_proj", "embed", "head"))), layers=(6, 24), why="nothing is left to test"),
        Recipe("a stranger under unknown names", 11, HONEST, INNOCENT, BASE, OTHER, (), (unknown,)),
        Recipe("strangers without gains, MLPs unknown", 11, HONEST, INNOCENT, BASE, INDEP, (flat,),
               (flat, do(hide.renamed, parts=("mlp",))), layers=(12,)),
        *(Recipe(f"both orders: {name}", 12, intent, classes, a, b, (), steps, swapped=True, layers=(DEPTHS[n % 3],))
          for n, (name, intent, classes, a, b, steps) in enumerate(pairs)),
    ]  # fmt: skip


def all_recipes() -> list[Recipe]:
    """Return the whole table."""
    return [*_public(), *_starts(), *_norms(), *_function(), *_kinds(), *_limits()]
