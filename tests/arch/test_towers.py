"""Towers of multimodal checkpoints: found by names, named by their own configs; what cannot be one is left alone."""

from __future__ import annotations

import pytest

from kinprint.arch import Role, name_tensors
from kinprint.arch.towers import find_towers
from support.surveyed import SURVEYED

LLAVA = SURVEYED["llava"]


def test_a_tower_is_named_by_its_own_config() -> None:
    naming = name_tensors(LLAVA.config, LLAVA.shapes)
    ((tower, inner),) = naming.towers
    assert (naming.kind, tower.kind, tower.prefix, inner.kind) == ("language", "vision", "vision_tower.", "vision")
    assert (inner.architecture, inner.guessed, inner.unmapped) == ("clip_vision", False, ())
    assert {tensor.name.startswith("vision_tower.") for tensor in inner.tensors} == {True}
    reasons = {str(item.reason) for item in naming.excluded if item.name.startswith("vision_tower.")}
    assert reasons == {"part of the vision tower, which is compared by itself"}


def test_an_encoder_alone_is_no_tower_of_itself() -> None:
    shapes = {f"vision_model.{name}": shape for name, shape in SURVEYED["clip_vision_model"].shapes.items()}
    naming = name_tensors(SURVEYED["clip_vision_model"].config, shapes)
    assert (naming.kind, naming.towers, naming.unmapped) == ("vision", (), ())


def test_of_two_towers_with_equal_names_one_is_compared_and_the_other_told() -> None:
    twice = {name: shape for name, shape in LLAVA.shapes.items() if name.startswith("vision_tower.")}
    second = {f"model.{name}": shape for name, shape in list(twice.items())[:-3]}
    naming = name_tensors(LLAVA.config, {**LLAVA.shapes, **second})
    assert [tower.prefix for tower, _ in naming.towers] == ["vision_tower."]
    told = {item.name for item in naming.excluded if item.reason == "a second vision tower, beside vision_tower."}
    assert told == set(second)


@pytest.mark.parametrize(
    "lie", [None, 3, "x", [], {"model_type": "no such"}, {"model_type": 7}, {"hidden_size": 10**400}]
)
def test_a_config_that_lies_about_a_tower_does_no_harm(lie: object) -> None:
    naming = name_tensors({**LLAVA.config, "vision_config": lie}, LLAVA.shapes)
    ((_, inner),) = naming.towers
    assert {tensor.role for tensor in naming.tensors} >= {Role.ATTN_Q, Role.EMBEDDING}
    names = {tensor.name for tensor in inner.tensors} | {item.name for item in inner.excluded} | set(inner.unmapped)
    assert names == {name for name in LLAVA.shapes if name.startswith("vision_tower.")}


def test_a_projector_is_no_tower() -> None:
    shapes = {f"vision_tower.{letter}.weight": (4, 4) for letter in "abcdefg"} | SURVEYED["llama"].shapes
    assert find_towers({}, shapes) == ({}, {})


def test_an_encoder_and_a_decoder_put_together_are_two_towers() -> None:
    naming = name_tensors(SURVEYED["vision-encoder-decoder"].config, SURVEYED["vision-encoder-decoder"].shapes)
    assert [(tower.kind, inner.architecture) for tower, inner in naming.towers] == [("vision", "vit")]
    assert (naming.kind, naming.architecture) == ("language", "bert")
    assert {tensor.name.partition(".")[0] for tensor in naming.tensors} == {"decoder"}
