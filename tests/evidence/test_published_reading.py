"""The published Solar/GLM figures, read by the engine. SYNTHETIC vectors and models: nothing here is of either model.

Vectors are drawn and then bent to the published mean, standard deviation and correlation of every layer's input norm
(ANLGBOY/solar-vs-glm-sanity-check, 46 layers); within either synthetic model, layers are alike as published for layers ten
apart (0.457 and 0.772; chahero/solar-vs-glm-critique).
"""

import math

import numpy as np
import pytest

from kinprint.arch import Role
from kinprint.comparison.pipeline import compare
from kinprint.evidence.assess import assess
from kinprint.evidence.battery import run_battery
from kinprint.evidence.power import power_of
from kinprint.evidence.probe import Probe
from kinprint.model.reader import Sample
from kinprint.results.findings import DERIVED, NO_EVIDENCE
from kinprint.results.options import Options
from kinprint.sources.settings import Settings
from support.layouts import write_checkpoint

WIDTH = 4096
DRAWS = 199
KEPT_A, KEPT_B = 0.457**0.1, 0.772**0.1  # correlation of one layer's norm with the next

# cosine, correlation, mean and standard deviation of A, of B; layer by layer
# fmt: off
PUBLISHED = np.array([
    (0.12725, -0.01329, 0.01625, 0.04057, 0.01087, 0.02705), (0.34181, -0.02250, 0.07320, 0.05345, 0.03881, 0.07966),
    (0.83168, 0.00499, 0.07150, 0.02858, 0.12233, 0.06105), (0.91320, -0.00776, 0.08485, 0.02998, 0.33564, 0.08528),
    (0.93738, -0.01725, 0.12287, 0.03639, 0.27844, 0.05844), (0.95163, -0.01851, 0.15780, 0.03716, 0.41466, 0.08728),
    (0.93859, -0.01576, 0.12799, 0.03388, 0.32134, 0.07783), (0.96449, -0.01634, 0.16086, 0.03758, 0.47589, 0.06440),
    (0.97343, -0.00916, 0.17859, 0.03631, 0.41947, 0.04785), (0.98297, 0.00151, 0.25175, 0.03790, 0.43936, 0.04824),
    (0.98109, 0.00919, 0.23574, 0.04096, 0.49699, 0.04655), (0.98660, 0.01660, 0.22893, 0.02930, 0.46307, 0.04912),
    (0.98723, 0.01537, 0.22792, 0.02912, 0.49677, 0.04957), (0.98968, 0.02257, 0.23534, 0.02841, 0.57028, 0.04684),
    (0.98855, 0.01813, 0.23399, 0.02866, 0.55526, 0.05145), (0.98843, 0.01220, 0.27003, 0.03236, 0.54630, 0.05278),
    (0.98970, 0.01736, 0.28322, 0.03097, 0.61282, 0.05885), (0.98977, 0.00774, 0.26953, 0.03053, 0.64790, 0.05796),
    (0.99064, 0.01245, 0.26926, 0.02811, 0.64622, 0.05863), (0.99021, 0.01674, 0.25982, 0.02958, 0.65192, 0.05510),
    (0.99179, 0.01807, 0.32199, 0.03162, 0.64785, 0.05503), (0.99219, 0.00995, 0.29541, 0.03038, 0.72748, 0.05306),
    (0.99207, 0.00569, 0.28440, 0.02874, 0.66242, 0.05076), (0.99196, 0.00889, 0.31149, 0.03104, 0.64209, 0.05147),
    (0.99227, 0.01190, 0.30717, 0.03215, 0.71321, 0.04948), (0.99243, 0.02103, 0.31758, 0.03110, 0.69165, 0.05354),
    (0.99196, 0.02695, 0.30935, 0.03184, 0.69841, 0.05437), (0.99429, 0.02314, 0.35215, 0.02932, 0.76430, 0.05315),
    (0.99370, 0.02668, 0.33371, 0.03067, 0.77346, 0.05233), (0.99369, 0.02962, 0.32487, 0.02903, 0.68907, 0.04923),
    (0.99143, 0.03562, 0.29378, 0.03252, 0.77467, 0.05822), (0.99347, 0.01801, 0.35066, 0.03169, 0.77999, 0.05634),
    (0.99315, 0.01658, 0.34904, 0.03171, 0.75415, 0.05727), (0.99158, 0.03298, 0.34627, 0.03165, 0.72263, 0.06937),
    (0.99241, 0.04279, 0.33357, 0.03146, 0.82692, 0.06962), (0.99303, 0.02552, 0.36260, 0.03233, 0.79652, 0.06401),
    (0.99213, 0.02619, 0.32099, 0.03199, 0.80977, 0.06455), (0.99166, 0.03678, 0.32495, 0.03577, 0.83600, 0.06091),
    (0.99290, 0.02705, 0.36400, 0.03210, 0.80998, 0.06741), (0.99316, 0.02642, 0.35507, 0.03225, 0.85078, 0.06535),
    (0.99163, 0.01533, 0.34916, 0.03359, 0.83160, 0.07383), (0.99100, 0.00303, 0.34917, 0.03846, 0.84733, 0.06610),
    (0.99016, 0.00840, 0.34633, 0.03850, 0.84854, 0.07441), (0.99064, -0.00004, 0.32902, 0.03633, 0.91284, 0.07480),
    (0.99015, 0.02779, 0.35392, 0.03794, 0.80319, 0.07615), (0.99300, 0.02103, 0.35186, 0.03074, 0.83683, 0.06888),
])
# fmt: on
PUBLISHED_MEAN_COSINE, PUBLISHED_MEAN_CORRELATION = 0.9487, 0.0126
NAIVE_T = 5.35  # of the mean correlation, if the 46 layers were independent
DOZEN = (0, 1, 2, 5, 9, 13, 17, 21, 25, 30, 37, 45)


def standardised(values):
    values = values - values.mean()
    return values / np.linalg.norm(values)


def chain(rng, layers, kept):
    rows = [standardised(rng.standard_normal(WIDTH))]
    for _ in range(layers - 1):
        fresh = standardised(rng.standard_normal(WIDTH))
        rows.append(standardised(kept * rows[-1] + math.sqrt(1 - kept**2) * fresh))
    return rows


def synthetic_norms(seed):
    """Return two stacks of 46 vectors with exactly the published means, deviations and correlations."""
    rng = np.random.default_rng(seed)
    a, b = chain(rng, len(PUBLISHED), KEPT_A), chain(rng, len(PUBLISHED), KEPT_B)
    left, right = [], []
    for one, two, (_, r, mean_a, sd_a, mean_b, sd_b) in zip(a, b, PUBLISHED, strict=True):
        rest = standardised(two - (two @ one) * one)
        bent = r * one + math.sqrt(1 - r * r) * rest
        left.append(mean_a + sd_a * math.sqrt(WIDTH) * one)
        right.append(mean_b + sd_b * math.sqrt(WIDTH) * bent)
    return np.array(left), np.array(right)


def cosines(a, b):
    return np.einsum("ij,ij->i", a, b) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


@pytest.fixture(scope="module")
def synthetic():
    return synthetic_norms(1)


def norm_probe(values, role=Role.INPUT_NORM):
    samples = {(role, layer, None): Sample(row, "F64", row.shape) for layer, row in enumerate(values)}
    return Probe("synthetic", len(values), hidden=WIDTH, samples=samples)


def test_the_synthetic_vectors_have_the_published_figures(synthetic):
    a, b = synthetic
    assert cosines(a, b) == pytest.approx(PUBLISHED[:, 0], abs=1e-4)
    centred = [x - x.mean(axis=1, keepdims=True) for x in (a, b)]
    assert cosines(*centred) == pytest.approx(PUBLISHED[:, 1], abs=1e-9)
    assert a.mean(axis=1) == pytest.approx(PUBLISHED[:, 2])
    assert b.std(axis=1) == pytest.approx(PUBLISHED[:, 5])
    assert cosines(a, b).mean() == pytest.approx(PUBLISHED_MEAN_COSINE, abs=1e-4)
    assert PUBLISHED[:, 1].mean() == pytest.approx(PUBLISHED_MEAN_CORRELATION, abs=1e-4)


def test_the_raw_cosine_lies_inside_its_own_null(synthetic):
    """0.949 looks like kinship. With the dimensions of one side in any other order it is 0.949 as well."""
    a, b = synthetic
    observed = cosines(a, b).mean()
    rng = np.random.default_rng(2)
    null = np.array([cosines(a, b[:, rng.permutation(WIDTH)]).mean() for _ in range(DRAWS)])
    assert null.mean() == pytest.approx(0.9492, abs=5e-4)  # the published prediction under independence
    assert null.min() < observed < null.max()
    assert abs(observed - null.mean()) / null.std() < 2.5
    assert (1 + np.count_nonzero(null >= observed)) / (DRAWS + 1) > 2 / (DRAWS + 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_joint_norm_test_is_not_deceived_by_layers_that_are_alike(seed):
    """Forty-six correlations of 0.0126 on average would be 5 sigma if layers were independent. They are one permutation."""
    r = PUBLISHED[:, 1]
    assert r.mean() / (r.std() / math.sqrt(len(r) - 1)) == pytest.approx(NAIVE_T, abs=0.15)
    a, b = synthetic_norms(seed)
    test, *_ = run_battery(norm_probe(a), norm_probe(b), {layer: layer for layer in range(len(a))})
    assert test.statistic == pytest.approx(PUBLISHED_MEAN_CORRELATION, abs=1e-4)
    assert test.blocks == 46
    assert 0.5 < test.z < 2.5
    assert -2.5 < test.log10_p < -0.3


@pytest.mark.nightly
def test_the_power_at_this_size_is_stated_and_true(synthetic):
    """Forty-six layers of 4096 dimensions: a weak common part would have been seen, and is where it is planted."""
    a, b = synthetic
    one = norm_probe(a)
    weak, item = power_of(assess(one, norm_probe(b)))
    assert weak.name == "dimension_fixed_points"  # all layers are alike, so that profiles tell dimensions apart poorly
    assert item.least is not None, item.reason
    assert item.name == "norm_joint"
    assert 0.05 < item.least < 0.3 < weak.least
    scale = b.std(axis=1, keepdims=True) / a.std(axis=1, keepdims=True)
    shared = item.least * scale * (a - a.mean(axis=1, keepdims=True))
    planted = norm_probe(shared + math.sqrt(1 - item.least**2) * (b - b.mean(axis=1, keepdims=True)) + 1.0)
    tests = run_battery(one, planted, {layer: layer for layer in range(len(a))})
    assert next(test for test in tests if test.name == item.name).log10_p <= item.log10_alpha


# -- end to end --------------------------------------------------------------------------------------------------------


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "head_dim": 8,
    "num_hidden_layers": len(DOZEN),
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 64,
}


def write(folder, norms, seed, *, base=None, sigma=0.0):
    """Write a synthetic checkpoint of a dozen layers: the given norms, 32 rows of each matrix; or a near copy of one."""
    rng = np.random.default_rng(seed)
    tensors, dtypes = {}, {}
    for layer, at in enumerate(DOZEN):
        stem = f"model.layers.{layer}."
        tensors[f"{stem}input_layernorm.weight"] = norms[at].astype(np.float32)
        for part, rows in (("self_attn.q", 32), ("self_attn.v", 16), ("mlp.gate", 32), ("mlp.up", 32)):
            tensors[f"{stem}{part}_proj.weight"] = (0.02 * rng.standard_normal((rows, WIDTH))).astype(np.float32)
    if base is not None:
        for name, value in base.items():
            noise = rng.standard_normal(value.shape).astype(np.float32)
            tensors[name] = value + np.float32(sigma) * value.std() * noise
    dtypes = {name: "F32" if value.ndim == 1 else "F16" for name, value in tensors.items()}
    write_checkpoint(folder, tensors, CONFIG, dtype=dtypes)
    return tensors


@pytest.fixture(scope="module")
def reports(synthetic, tmp_path_factory):
    """Synthetic "Solar" and "GLM", unrelated but for the published figures, and a near copy of "GLM" for INTELLECT."""
    root = tmp_path_factory.mktemp("published")
    write(root / "solar_like", synthetic[0], 3)
    glm = write(root / "glm_like", synthetic[1], 4)
    write(root / "intellect_like", synthetic[1], 5, base=glm, sigma=0.01)
    solar, other, child = (str(root / f"{name}_like") for name in ("solar", "glm", "intellect"))
    options = Options(metrics=("cosine", "pearson"))
    return compare(solar, other, options, settings=Settings()), compare(other, child, options, settings=Settings())


@pytest.mark.slow
def test_no_evidence_for_a_pair_with_the_solar_and_glm_figures(reports):
    report, _ = reports
    verdict = report.verdict
    assert verdict.class_ == NO_EVIDENCE
    assert verdict.log10_p > -3
    assert "does not prove training from scratch" in verdict.sentence
    assert "would have been seen with 95% probability" in verdict.sentence
    power = {(item.name, item.scope): item.least for item in report.evidence.power}
    assert 0.05 < power["norm_joint", "input_norm"] < 0.3
    assert power["fixed_points", "mlp_up"] < 0.1
    by_part = {item.component: item.state for item in report.evidence.components}
    assert by_part == {"norms": "not shared", "attention": "not shared", "mlp": "not shared"}


@pytest.mark.slow
def test_every_published_cosine_stands_beside_a_null_that_explains_it(reports):
    report, _ = reports
    found = [item for item in report.comparisons if item.role == "input_norm"]
    assert len(found) == len(DOZEN)
    for item, at in zip(sorted(found, key=lambda item: item.layer), DOZEN, strict=True):
        cosine = next(m for m in item.measurements if m.metric == "cosine")
        assert cosine.value == pytest.approx(PUBLISHED[at, 0], abs=1e-4)
        assert abs(cosine.null.z) < 3
        assert cosine.null.log10_p > -3
        assert cosine.null.mean == pytest.approx(cosine.value, abs=0.02)


@pytest.mark.slow
def test_a_pair_like_glm_and_intellect_is_derived(reports):
    _, report = reports
    verdict = report.verdict
    assert verdict.class_ == DERIVED
    assert verdict.log10_p < -100
    assert verdict.layer_map == tuple(range(len(DOZEN)))
    norms = next(test for test in report.evidence.tests if (test.name, test.scope) == ("norm_joint", "input_norm"))
    assert norms.statistic > 0.999
    assert norms.z > 60
