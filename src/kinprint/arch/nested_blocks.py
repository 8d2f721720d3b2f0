"""Count blocks that are numbered in lists inside lists, in the order in which they act: of diffusion models, and of stages.

A UNet has blocks at several resolutions, each with a list of residual blocks, a list of attention blocks (with a list of layers
inside) and a change of resolution; Flux has a list of blocks with two streams, and then one of blocks with one. Every such place
gets one number here, so that an architecture file can speak of layers. So
`down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q.weight` becomes `unet_layer.7.attn1.to_q.weight`, and so does the
original's `input_blocks.4.1.transformer_blocks.0.attn1.to_q.weight`.

Encoders of pictures have stages, each with a list of blocks and a width of its own (Swin, Hiera, ConvNeXt, SegFormer), and Funnel
has blocks of layers: `encoder.layers.1.blocks.0.output.dense.weight` becomes `stage_layer.2.output.dense.weight`.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_PREFIX = r"(?P<prefix>(?:model\.)?(?:diffusion_model\.|unet\.)?)"
_LAYER = r"(?:transformer_blocks\.(?P<layer>\d{1,3})\.)?"
_DIFFUSERS = re.compile(
    _PREFIX
    + r"(?P<stage>down_blocks|mid_block|up_blocks)\.(?:(?P<block>\d{1,3})\.)?"
    + r"(?P<kind>resnets|attentions|downsamplers|upsamplers)\.(?P<part>\d{1,3})\."
    + _LAYER
    + r"(?P<rest>.+)"
)
_ORIGINAL = re.compile(
    _PREFIX
    + r"(?P<stage>input_blocks|middle_block|output_blocks)\.(?:(?P<block>\d{1,3})\.(?=\d))?(?P<part>\d{1,3})\."
    + _LAYER
    + r"(?P<rest>.+)"
)
_SECOND = re.compile(_PREFIX + r"(?P<list>single_transformer_blocks|single_blocks)\.(?P<number>\d{1,3})\.(?P<rest>.+)")
_FIRST = re.compile(_PREFIX + r"(?:transformer_blocks|double_blocks)\.(?P<number>\d{1,3})\.")
_OUTSIDE = {  # parts outside of all blocks that originals call by numbers, under the names that others have for them
    "input_blocks.0.0.": "conv_in.",
    "time_embed.0.": "time_embedding.linear_1.",
    "time_embed.2.": "time_embedding.linear_2.",
    "label_emb.0.0.": "add_embedding.linear_1.",
    "label_emb.0.2.": "add_embedding.linear_2.",
    "out.0.": "conv_norm_out.",
    "out.2.": "conv_out.",
    "t_embedder.mlp.0.": "t_embedder.linear_1.",
    "t_embedder.mlp.2.": "t_embedder.linear_2.",
    "y_embedder.mlp.0.": "y_embedder.linear_1.",
    "y_embedder.mlp.2.": "y_embedder.linear_2.",
    "final_layer.adaLN_modulation.1.": "final_layer.modulation.",
    "t_block.1.": "t_block.",
}
_STAGED = re.compile(
    r"(?P<prefix>(?:[a-z]\w{0,40}\.){0,2}?)"
    r"(?:encoder\.layers\.(?P<a>\d{1,3})\.blocks|(?:encoder\.)?stages\.(?P<b>\d{1,3})\.layers|encoder\.blocks?\.(?P<c>\d{1,3})"
    r"|encoder\.network\.(?P<d>\d{1,3})\.blocks|encoder\.layer\.(?P<e>\d{1,3})\.transformer\.layer"
    r"|layers\.(?P<f>\d{1,3})\.conv_blocks|conv_layers\.(?P<g>\d{1,3})\.stage|stem\.stage)"
    r"\.(?P<block>\d{1,3})\.(?P<rest>.+)"
)
_MARKS = ("_blocks.", "_block.", "time_embed", "t_embedder.", "final_layer.")
_STAGE_MARKS = (".blocks.", "stages.", ".block.", ".transformer.layer.", ".conv_blocks.", ".stage.")
_OUTER = re.compile(_PREFIX + "(?P<part>" + "|".join(map(re.escape, _OUTSIDE)) + ")(?P<rest>.+)")
_STAGES = {"down": 0, "input": 0, "mid": 1, "middle": 1, "up": 2, "output": 2}
_KINDS = {"resnets": "unet_conv", "downsamplers": "unet_sample", "upsamplers": "unet_sample"}
_CONVOLUTIONS = ("in_layers.", "out_layers.", "emb_layers.", "skip_connection.")
_SAMPLERS = ("op.", "conv.")
Place = tuple[int, ...]  # where a block acts: these sort as blocks follow each other


class _Found(NamedTuple):
    prefix: str
    kind: str
    place: Place
    rest: str


def renamed(names: Iterable[str]) -> dict[str, str]:
    """Return the names that stand in lists inside lists, as an architecture file knows them; empty for other models."""
    names = list(names)
    text = "\n".join(names)  # one look for each mark: a large model has 18,000 names, and none of these
    if any(mark in text for mark in _STAGE_MARKS) and (staged := _staged(names)):
        return staged
    if not any(mark in text for mark in _MARKS):
        return {}
    outer = {name: match for name in names if (match := _OUTER.fullmatch(name))}
    new = _nested(names) | _second_lists(names)
    new |= {name: f"{at['prefix']}{_OUTSIDE[at['part']]}{at['rest']}" for name, at in outer.items()}
    return new if len(set(new.values())) == len(new) else {}


def _nested(names: Iterable[str]) -> dict[str, str]:
    """Return the names of a UNet's blocks, each with its name under one number."""
    found = {name: match for name in names if (match := _unet(name)) is not None}
    places = sorted({match.place for match in found.values()})
    numbers = {place: number for number, place in enumerate(places)}
    return {name: f"{at.prefix}{at.kind}.{numbers[at.place]}.{at.rest}" for name, at in found.items()}


def _staged(names: Iterable[str]) -> dict[str, str]:
    """Return the names of blocks that stand in stages, each under one number; parts between stages keep theirs."""
    found = {name: match for name in names if (match := _STAGED.fullmatch(name))}
    stages = {
        name: next((int(n) for n in at.group(*"abcdefg") if n), -1) for name, at in found.items()
    }  # a stem: first
    places = {name: (at["prefix"], stages[name], int(at["block"])) for name, at in found.items()}
    ordered = sorted(set(places.values()))
    firsts = {prefix: number for number, (prefix, *_) in reversed(list(enumerate(ordered)))}  # each model counts from 0
    numbers = {place: number - firsts[place[0]] for number, place in enumerate(ordered)}
    new = {name: f"{at['prefix']}stage_layer.{numbers[places[name]]}.{at['rest']}" for name, at in found.items()}
    return new if len(set(new.values())) == len(new) else {}


def _second_lists(names: Iterable[str]) -> dict[str, str]:
    """Return the names in the second of two lists of blocks, counted on from the first."""
    stored = list(names)
    first = [int(match["number"]) for name in stored if (match := _FIRST.match(name))]
    second = {name: match for name in stored if (match := _SECOND.fullmatch(name))}
    if not first or not second:
        return {}
    count = max(first) + 1
    return {name: f"{at['prefix']}{at['list']}.{int(at['number']) + count}.{at['rest']}" for name, at in second.items()}


def _unet(name: str) -> _Found | None:
    match = _DIFFUSERS.fullmatch(name) or _ORIGINAL.fullmatch(name)
    if match is None:
        return None
    stage, part, rest = _STAGES[match["stage"].partition("_")[0]], int(match["part"]), match["rest"]
    block = int(match["block"] or 0)
    inner = match["layer"]
    kind = match.groupdict().get("kind")
    if kind is None:  # the original says by the names inside what a part is
        if stage == 0 and block == 0:
            return None  # the first convolution, which is no block
        kind = (
            "resnets"
            if rest.startswith(_CONVOLUTIONS)
            else "downsamplers"
            if rest.startswith(_SAMPLERS)
            else "attentions"
        )
        place: Place = (stage, block, part, 0)
    else:
        # residual block, attention, residual block, attention, and last a change of resolution
        order = {"resnets": 2 * part, "attentions": 2 * part + 1}.get(kind, 9_999)
        place = (stage, block, order, 0)
    if inner is not None:
        return _Found(match["prefix"], "unet_layer", (*place[:3], int(inner)), rest)
    return _Found(match["prefix"], _KINDS.get(kind, "unet_attention"), place, rest)
