"""Set cosines of norm weights against baselines: layer 0, layers at equal distance, other models, random vectors.

Repeats the six experiments of chahero/solar-vs-glm-critique, each beside the null that a raw cosine needs.
"""

from kinprint.arch import Role
from kinprint.studies.baselines import common, groups, layers
from kinprint.studies.baselines.common import ROLE, for_each_role, layers_of, tag
from kinprint.studies.baselines.moe_and_dense import moe_against_dense, pair_choices, relation
from kinprint.studies.baselines.three_measures import metric_comparison
from kinprint.studies.opened import StudyRun, vector_wants
from kinprint.studies.outcome import Missing, Section
from kinprint.studies.recipe import Part, Study
from kinprint.text import Text


def _summary(run: StudyRun, role: Role, section: Section) -> None:
    """Draw experiments 1, 3, 4 and 5 on one page. What is missing in them is said where they are done."""
    said: list[Text] = []
    layer, kinds, moe = layers_of(run).at, common.kinds_of(run, said), common.moe_models(run, Section())
    zero, sweep = layers.zero_pairs(run, role, said), groups.pairs_by_layer(run, role, moe, said)
    some, every = (common.at_layer(run, role, names, layer, said) for names in (moe, kinds))
    if not (zero and sweep and some):
        raise Missing("the summary needs layer 0 and a later layer, and two models that can be compared")
    related = {pair.key for pair in every if relation(pair) is not None}
    grid = groups.model_grid(groups.compared_models(moe, some), kinds, layer, some)
    shown = (layers.zero_groups(zero), grid, sweep, pair_choices(run, every, kinds)[-1], related, run.names, role.value)
    section.add_picture(f"summary{tag(role)}", "baselines.summary_page", *shown, role=role.value, layer=layer)


STUDY = Study(
    name="baselines",
    title=Text("What a cosine of norm weights is compared with"),
    summary=Text(
        "Layer 0, layers at equal distance, other MoE models, dense models of the same width, and random vectors as baselines for "
        "the raw cosine of norm weights, each beside Pearson and the permutation null."
    ),
    source=Text("chahero/solar-vs-glm-critique, experiments 1 to 6"),
    models=("Solar", "GLM", "Phi", "Mixtral", "Mistral", "Yi-6B", "Yi-9B", "InternLM2", "Qwen1.5", common.FIFTH),
    wants=lambda run: vector_wants(run, run.request.roles or (ROLE,), layers_of(run).all) if run.names else (),
    parts=(
        Part("exp1", Text("Experiment 1: layer 0 as a baseline"), for_each_role(layers.layer_zero)),
        Part("exp2", Text("Experiment 2: layers at equal distance"), for_each_role(layers.equal_distance)),
        Part("exp3", Text("Experiment 3: MoE models at one layer"), for_each_role(groups.moe_at_one_layer)),
        Part("exp4", Text("Experiment 4: MoE models at several layers"), for_each_role(groups.moe_at_several_layers)),
        Part("exp5", Text("Experiment 5: MoE and dense models of one width"), for_each_role(moe_against_dense)),
        Part("exp6", Text("Experiment 6: three measures and random vectors"), for_each_role(metric_comparison)),
        Part("five_moe", Text("Five MoE models, one of another width"), for_each_role(groups.any_width)),
        Part("summary", Text("Summary"), for_each_role(_summary)),
    ),
)
