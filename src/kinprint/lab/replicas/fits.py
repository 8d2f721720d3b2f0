"""Fit coefficients of variation and correlations to numbers that were published only in part.

A raw cosine is a function of two coefficients of variation and one correlation (the identity in `kinprint.metrics`). Where
only cosines, their means over pairs or figures read from a plot are known, the unknowns are fitted by least squares:
published values weigh most, plotted ones as much as they can be read, and the rest leans on "independent".
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kinprint._util.numeric import FloatArray
from kinprint.lab.replicas.published_figures import INPUT, console_pairs, published

NULL_SD = 1 / np.sqrt(4095)
HARD = 2e-6
READ = 8e-4  # a third of what a cosine can be read to from the plot
MOE_LAYERS = (5, 10, 15, 20, 25, 30)
DENSE = ("Mistral", "Yi-6B", "Yi-9B", "Qwen1.5")
MOE = ("Solar", "GLM", "Phi", "Mixtral")


def cosine_of(r: FloatArray | float, cv_a: FloatArray | float, cv_b: FloatArray | float) -> FloatArray:
    """Return the cosine of two vectors from their correlation and coefficients of variation."""
    a, b = np.asarray(cv_a), np.asarray(cv_b)
    return np.asarray((1 + r * a * b) / np.sqrt((1 + a**2) * (1 + b**2)))


def correlation_of(cosine: float, cv_a: float, cv_b: float) -> float:
    """Return the correlation of two vectors from their cosine and coefficients of variation."""
    return float((cosine * np.sqrt((1 + cv_a**2) * (1 + cv_b**2)) - 1) / (cv_a * cv_b))


def least_squares(residuals: Callable[[FloatArray], FloatArray], start: FloatArray, rounds: int = 25) -> FloatArray:
    """Return a minimum of the sum of squares by Gauss-Newton with halved steps."""
    x, here = start, residuals(start)
    for _ in range(rounds):
        J = np.empty((here.size, x.size))
        for i in range(x.size):
            moved = x.copy()
            moved[i] += 1e-7
            J[:, i] = (residuals(moved) - here) / 1e-7
        step = np.linalg.lstsq(J, -here, rcond=None)[0]
        for share in (1.0, 0.5, 0.25, 0.1, 0.02):
            there = residuals(x + share * step)
            if there @ there < here @ here:
                break
        else:
            break
        gain = here @ here - there @ there
        x, here = x + share * step, there
        if gain < 1e-9 * (1 + here @ here):
            break
    return x


@dataclass(frozen=True)
class MoeFit:
    """Input norms of Phi (32 layers) and Mixtral (at `MOE_LAYERS`) that fit the plots, the means and the deviations."""

    cv: FloatArray  # Phi's, and its correlations with Solar and GLM
    r_solar: FloatArray
    r_glm: FloatArray
    zero: FloatArray  # correlation of Phi's layer 0 with 15 and 20
    mixtral_cv: FloatArray
    mixtral_r: FloatArray  # layers by (Solar, GLM, Phi)


def fit_moe(cv: dict[str, FloatArray], same: FloatArray, known: dict[int, tuple[float, float, float]]) -> MoeFit:
    """Fit Phi and Mixtral to four published sources at once.

    `cv` holds the coefficients of variation of Solar's and GLM's input norms by layer, `same` their correlation at the same
    layer, `known` Phi's exactly known layers: coefficient of variation, correlation with Solar and with GLM.
    """
    figures = published()["sionic_tables"]
    curves = figures["fig4_panel_c_cosine_read_from_png"]
    read_s, read_g = np.array(curves["phi_solar_L0_31"]), np.array(curves["glm_phi_L0_31"])
    cv_s, cv_g = cv["Solar"][:32], cv["GLM"][:32]
    prior = np.log(np.sqrt(np.maximum(1 / ((1 + cv_s**2) * read_s**2) - 1, 0.005)))
    means = figures["figure_annotations"]["fig5_diag_mean_r"]
    mean_s, mean_g = means["Solar-Phi"], means["GLM-Phi"]
    best_s, best_g = (figures["figure_annotations"][f]["best_layer"] for f in ("fig4a_phi_solar", "fig4b_glm_phi"))

    def unpack(theta: FloatArray) -> MoeFit:
        phi = theta[:96].reshape(3, 32).copy()
        phi[0] = np.exp(phi[0])
        for layer, values in known.items():
            phi[:, layer] = values
        return MoeFit(phi[0], phi[1], phi[2], theta[96:98], np.exp(theta[98:104]), theta[104:].reshape(6, 3))

    def residuals(theta: FloatArray) -> FloatArray:
        s = unpack(theta)
        cos_s, cos_g = cosine_of(s.r_solar, cv_s, s.cv), cosine_of(s.r_glm, cv_g, s.cv)
        lead = [np.maximum(np.delete(c, b) + 3e-4 - c[b], 0) / 1e-5 for c, b in ((cos_s, best_s), (cos_g, best_g))]
        return np.concatenate(
            [
                (theta[:32] - prior) / 2.0,
                (s.r_solar - mean_s) / NULL_SD,
                (s.r_glm - mean_g) / NULL_SD,
                (cos_s - read_s) / READ,
                (cos_g - read_g) / READ,
                *lead,
                np.array([s.r_solar.mean() - mean_s, s.r_glm.mean() - mean_g]) / HARD,
                # Printed as 0.01 and -0.00: inside those, not at an edge.
                np.array([s.r_solar[best_s] - 0.01, s.r_glm[best_g] + 0.0025]) / 5e-4,
                _console_misses(s),
                _mixtral_misses(s, cv_s, cv_g, same),
            ]
        )

    means_r = np.full(32, mean_s), np.full(32, mean_g)
    start = np.concatenate([prior, *means_r, [0.05, 0.05], np.full(6, -1.5), np.zeros(18)])
    return unpack(least_squares(residuals, start))


def _console_misses(s: MoeFit) -> FloatArray:
    wanted = {second: value for kind, _, second, value in console_pairs("phi") if kind == INPUT}
    fitted = cosine_of(s.zero, s.cv[0], s.cv[[15, 20]])
    return np.concatenate([(fitted - [wanted[15], wanted[20]]) / HARD, (s.zero - 0.05) / 0.03])


def _mixtral_misses(s: MoeFit, cv_s: FloatArray, cv_g: FloatArray, same: FloatArray) -> FloatArray:
    """Return the misses of chahero's experiments 3, 4 and 6."""
    at = np.array(MOE_LAYERS)
    cvs = np.array([cv_s[at], cv_g[at], s.cv[at]])
    against = cosine_of(s.mixtral_r.T, cvs, s.mixtral_cv)
    rows = ((same, 0, 1), (s.r_solar, 0, 2), (s.r_glm, 1, 2))
    among = [cosine_of(r[at], cvs[i], cvs[j]) for r, i, j in rows]
    pairs = np.concatenate([against, among])
    ch = published()["chahero_RESULTS"]
    three = ch["exp3_moe_layer10"]
    ten = MOE_LAYERS.index(10)
    exact = against[:, ten] - [three[f"{m}-Mixtral"] for m in ("Solar", "GLM", "Phi")]
    return np.concatenate(
        [
            # Four printed decimals each: the six cosines of layer 10 average .96397, yet .9639 was printed.
            (pairs.mean(axis=0) - ch["exp4_layers"]["mean"]) / 4e-6,
            (pairs.std(axis=0) - ch["exp4_layers"]["std"]) / 4e-6,
            exact / 1.5e-5,
            [(s.mixtral_r[ten, 1] - ch["exp6_pairs_layer10"]["GLM-Mixtral"]["pearson"]) / HARD],
            s.mixtral_r.ravel() / NULL_SD,
        ]
    )


@dataclass(frozen=True)
class DenseFit:
    """Input norms at layer 10 of the dense models of chahero's experiment 5."""

    cv: FloatArray  # in the order of DENSE
    with_moe: FloatArray  # correlations, dense by MOE
    among: FloatArray  # correlations, dense by dense


def fit_dense(moe_cv: FloatArray) -> DenseFit:
    """Fit four coefficients of variation and the correlations to the group figures and the heatmap.

    Assumed: the correlation of Mixtral with Mistral (0.96) and of the two Yi (0.9). The heatmap prints 1.00 for both,
    and at Mixtral's spread a rounded 1.00 needs more than 0.94.
    """
    ch = published()["chahero_RESULTS"]
    heat = np.array(ch["exp5_heatmap_2dec_read_from_png"]["matrix"])
    groups = ch["exp5_arch_layer10"]
    upper = np.triu_indices(4, 1)
    prior_moe, prior_among = np.zeros((4, 4)), np.zeros((4, 4))
    prior_moe[0, 3] = 0.96
    prior_among[1, 2] = prior_among[2, 1] = 0.9

    def residuals(theta: FloatArray) -> FloatArray:
        among = theta[20:]
        cv, with_moe = np.exp(theta[:4]), theta[4:20].reshape(4, 4)
        cross = cosine_of(with_moe, cv[:, None], moe_cv[None, :])
        dense = cosine_of(among, cv[upper[0]], cv[upper[1]])
        off = np.concatenate([(cross - heat[4:, :4]).ravel(), dense - heat[4:, 4:][upper]])
        wanted = [(g, groups[name]) for g, name in ((cross.ravel(), "MoE-nonMoE"), (dense, "nonMoE-nonMoE"))]
        return np.concatenate(
            [
                np.maximum(np.abs(off) - 0.0045, 0) / 1e-4,
                [(g.mean() - w["mean"]) / HARD for g, w in wanted],
                [(g.std() - w["std"]) / HARD for g, w in wanted],
                (with_moe - prior_moe).ravel() / NULL_SD,
                (among - prior_among[upper]) / NULL_SD,
            ]
        )

    start = np.concatenate([np.log([0.27, 0.17, 0.17, 0.12]), prior_moe.ravel(), prior_among[upper]])
    theta = least_squares(residuals, start)
    among = np.zeros((4, 4))
    among[upper] = theta[20:]
    return DenseFit(np.exp(theta[:4]), theta[4:20].reshape(4, 4), among + among.T + np.eye(4))


def fit_console(
    model: str, kind: str, prior_cv: dict[int, float]
) -> tuple[dict[int, float], dict[tuple[int, int], float]]:
    """Fit coefficients of variation, by layer, and correlations, by pair of layers, to a model's console cosines."""
    cells = [(a, b, value) for k, a, b, value in console_pairs(model) if k == kind]
    layers = sorted({layer for a, b, _ in cells for layer in (a, b)})
    index = {layer: i for i, layer in enumerate(layers)}
    prior = np.log([prior_cv[layer] for layer in layers])
    # Layer 0 stands apart from the rest in every published model.
    prior_r = np.array([0.1 if a == 0 else 0.5 for a, _, _ in cells])

    def residuals(theta: FloatArray) -> FloatArray:
        cv, r = np.exp(theta[: len(layers)]), theta[len(layers) :]
        misses = [cosine_of(r[i], cv[index[a]], cv[index[b]]) - value for i, (a, b, value) in enumerate(cells)]
        return np.concatenate([np.array(misses) / HARD, (theta[: len(layers)] - prior) / 0.3, (r - prior_r) / 0.15])

    theta = least_squares(residuals, np.concatenate([prior, prior_r]))
    cv = np.exp(theta[: len(layers)])
    pairs = {(a, b): float(theta[len(layers) + i]) for i, (a, b, _) in enumerate(cells)}
    return {layer: float(cv[index[layer]]) for layer in layers}, pairs
