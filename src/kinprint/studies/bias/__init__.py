"""The bias study: raw cosine of norm weights is what a common positive mean makes it; centring takes that away.

Repeats every figure and both appendices of the retraction (sionic-ai/solar-vs-glm), on any models.
"""

from __future__ import annotations

from kinprint.studies.bias.facts import ORIGINALS, wants
from kinprint.studies.bias.layers import difference, ridges, statistics
from kinprint.studies.bias.matrices import all_layers, all_pairs_of_models
from kinprint.studies.bias.pairs import changed
from kinprint.studies.bias.pairs import pairs as pairs_part
from kinprint.studies.bias.shapes import paths, surfaces, toy
from kinprint.studies.bias.table_d import appendix_d
from kinprint.studies.bias.table_e import appendix_e
from kinprint.studies.recipe import Part, Study
from kinprint.text import Text

STUDY = Study(
    name="bias",
    title=Text("Positive bias and centring"),
    summary=Text(
        "Norm weights are positive, so any two of them have a high raw cosine. Bars, lines, matrices, surfaces and "
        "paths of the norms of several models, raw and centred, each beside what independent models would show; the "
        "two appendices recomputed."
    ),
    source=Text("sionic-ai/solar-vs-glm: the README of the retraction, figures 0 to 10, appendices D and E"),
    models=ORIGINALS,
    wants=wants,
    parts=(
        Part("fig0", Text("Figure 0: what taking the mean away does"), toy, uses_models=False),
        Part("fig1", Text("Figures 1, 3 and 4: pairs of models, raw and centred"), pairs_part),
        Part("fig2", Text("Figure 2: every layer against every layer"), all_layers),
        Part("fig3_1", Text("Figure 3-1: what differs in the closest pair"), changed),
        Part("fig5", Text("Figure 5: all pairs of models"), all_pairs_of_models),
        Part("fig6", Text("Figure 6: surfaces"), surfaces),
        Part("fig7", Text("Figure 7: paths in joint principal components"), paths),
        Part("fig8", Text("Figure 8: statistics by layer"), statistics),
        Part("fig9", Text("Figure 9: distributions"), ridges),
        Part("fig10", Text("Figure 10: input norm minus post-attention norm"), difference),
        Part("appendix_d", Text("Appendix D: one pair in detail"), appendix_d),
        Part("appendix_e", Text("Appendix E: all pairs over the same layers"), appendix_e),
    ),
)
