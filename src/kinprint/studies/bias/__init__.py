"""Show that the raw cosine of norm weights follows from their positive mean, which centring removes.

Repeats every figure and both appendices of a published retraction (sionic-ai/solar-vs-glm), on any models.
"""

import itertools
from collections.abc import Callable
from functools import partial

from kinprint.arch import Role
from kinprint.studies.bias import appendices, layers, matrices, pairs, space
from kinprint.studies.bias.shared import INPUT, ORIGINALS, POST, figure_pairs, first_pair, vector_roles, wants
from kinprint.studies.opened import StudyRun, attempt, sides
from kinprint.studies.outcome import Section
from kinprint.studies.published import claims, published_checks
from kinprint.studies.recipe import Part, Study
from kinprint.text import Text

Pairs = tuple[tuple[str, str], ...]


def _part(
    name: str, title: str, look: Callable[..., None], *roles: Role, on: Callable[[StudyRun], Pairs] | None = None
) -> Part:
    """Return a part that looks at each role asked for (else at `roles`), and at each pair of models that `on` chooses.

    Published figures, listed in claims.json under the part's name, are about all layers.
    """

    def run_part(run: StudyRun) -> Section:
        section = Section()
        asked = vector_roles(run, roles, section.missing) if roles else ()
        if on is None:
            for about in itertools.product(asked) if roles else [()]:
                look(run, section, *about)
        else:
            for role, (a, b) in itertools.product(asked, on(run)):
                attempt(section.missing, partial(look, run, section, role, a, b), sides(a, b))
        if section.comparable and run.request.layers is None:
            section.checks += published_checks(run, section, claims("bias").get(name, ()))
        return section

    return Part(name, Text(title), run_part, uses_models=look is not space.toy)


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
        _part("fig0", "Figure 0: what taking the mean away does", space.toy),
        _part("fig1", "Figures 1, 3 and 4: pairs of models, raw and centred", pairs.one_pair, INPUT, on=figure_pairs),
        _part("fig2", "Figure 2: every layer against every layer", matrices.all_layers, INPUT, on=first_pair),
        _part("fig3_1", "Figure 3-1: what differs in the closest pair", pairs.changed, INPUT),
        _part("fig5", "Figure 5: all pairs of models", matrices.gallery, INPUT),
        _part("fig6", "Figure 6: surfaces", space.surfaces, INPUT),
        _part("fig7", "Figure 7: paths in joint principal components", space.paths, INPUT),
        _part("fig8", "Figure 8: statistics by layer", layers.statistics),
        _part("fig9", "Figure 9: distributions", layers.ridges),
        _part("fig10", "Figure 10: input norm minus post-attention norm", layers.difference),
        _part("appendix_d", "Appendix D: one pair in detail", appendices.appendix_d, INPUT, on=first_pair),
        _part("appendix_e", "Appendix E: all pairs over the same layers", appendices.appendix_e, INPUT, POST),
    ),
)
