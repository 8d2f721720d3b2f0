"""Draw the badge that a model card can show: two fields, a word about the verdict, nothing that loads anything."""

from __future__ import annotations

from markupsafe import escape

COLOURS = {"related": "#b3370f", "part": "#8a5f00", "none": "#00694d", "off": "#53606e"}
_LEFT, _HEIGHT, _PAD = "kinprint", 20, 7


def badge_svg(answer: str, light: str) -> str:
    """Return the badge as SVG, its colour that of the page's traffic light; the words tell the same."""
    left, right = (_width(text) + 2 * _PAD for text in (_LEFT, answer))
    said = escape(answer)
    size = f'width="{left + right}" height="{_HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{_LEFT}: {said}">'
        f"<title>{_LEFT}: {said}</title>"
        f'<rect width="{left}" height="{_HEIGHT}" fill="#1b1f24"/>'
        f'<rect x="{left}" width="{right}" height="{_HEIGHT}" fill="{COLOURS.get(light, COLOURS["off"])}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14">{_LEFT}</text><text x="{left + right / 2:g}" y="14">{said}</text></g></svg>'
    )


def _width(text: str) -> int:
    """Return about how wide a text is, in pixels: letters of this font have some 6.6, Korean ones 11."""
    return round(sum(6.6 if sign < "ᄀ" else 11.0 for sign in text))
