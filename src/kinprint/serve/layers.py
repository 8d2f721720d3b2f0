"""Draw the layers of a model from its fingerprint in the catalog: how large the weights of its norms are, layer by layer."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from kinprint.errors import DegenerateInput
from kinprint.fingerprints.compact.parts import DIMENSIONS, ENDS, RESIDUAL_NORMS
from kinprint.fingerprints.compact.sides import places, stored
from kinprint.fingerprints.file import Fingerprint
from kinprint.fingerprints.recall import METHOD
from kinprint.render.page.markup import PageWords

_LEFT, _WIDE, _TOP, _HIGH = 52.0, 270.0, 8.0, 110.0
_BAND = (10.0, 50.0, 90.0)


def layers_picture(fingerprint: Fingerprint, words: PageWords) -> list[tuple[str, Markup]]:
    """Return for each kind of norm in the layers its name and its picture; none where the fingerprint keeps no norms."""
    features = fingerprint.features.get(METHOD)
    if features is None:
        return []
    drawn = []
    for role in RESIDUAL_NORMS:
        try:
            values = stored(features, name := f"norms.{role.value}", 2, (2 * ENDS, DIMENSIONS))
            at = [] if values is None else places(features, name, len(values))
        except DegenerateInput:
            continue
        if values is not None and len(at) > 1 and min(at) >= 0:
            order = np.argsort(at)
            figures = np.percentile(values[order].astype(np.float64), _BAND, axis=1)
            drawn.append(
                (
                    words.part(role.value),
                    _panel(sorted(at), figures, words, whole=len(at) >= fingerprint.description.layers),
                )
            )
    return drawn


def _panel(at: list[int], figures: NDArray[np.float64], words: PageWords, *, whole: bool) -> Markup:
    """Draw the middle 80 % as bars and the median as a line; there is a gap where layers in the middle are not kept."""
    low, high = float(figures.min()), float(figures.max())
    pad = 0.06 * (high - low) or max(1.0, abs(high)) * 0.1
    low, high = low - pad, high + pad
    step = _WIDE / (len(at) + (not whole))
    split = len(at) if whole else next((number for number, place in enumerate(at) if place >= ENDS), len(at))
    xs = [_LEFT + step * (number + 0.5 + (number >= split)) for number in range(len(at))]

    def y(value: float) -> float:
        return _TOP + _HIGH * (high - value) / (high - low)

    parts = [
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="spread"/>').format(
            x - 0.3 * step, y(top), 0.6 * step, max(1.0, y(bottom) - y(top))
        )
        for x, bottom, top in zip(xs, figures[0], figures[2], strict=True)
    ]
    for ends in (slice(0, split), slice(split, len(at))):
        line = " ".join(f"{x:.1f},{y(value):.1f}" for x, value in zip(xs[ends], figures[1][ends], strict=True))
        parts.append(Markup('<polyline points="{}" class="middle"/>').format(line))
    parts += [
        Markup('<text x="{}" y="{:.1f}" text-anchor="end">{:.3g}</text>').format(_LEFT - 6, y(value) + 4, value)
        for value in (low + pad, high - pad)
    ]
    bottom = _TOP + _HIGH
    parts.append(Markup('<path d="M{0} {1}V{2}H{3}" class="axis"/>').format(_LEFT, _TOP, bottom, _LEFT + _WIDE))
    for x, key, anchor in ((_LEFT, "serve.layers.first", "start"), (_LEFT + _WIDE, "serve.layers.last", "end")):
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(x, bottom + 16, anchor, words.say(key))
        )
    told = words.say("serve.layers.told", n=len(at), low=f"{figures[1].min():.3g}", high=f"{figures[1].max():.3g}")
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" class="layers">{}</svg>').format(
        _LEFT + _WIDE + 4, bottom + 22, told, Markup("").join(parts)
    )
