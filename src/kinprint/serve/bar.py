"""Make the bar that a stored result has above its page: the way home and to its models, downloads, verification, citation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kinprint.render.page.markup import PageWords


@cache
def environment() -> Environment:
    """Return the templates of the server, in which every value is escaped."""
    return Environment(
        loader=PackageLoader("kinprint.serve"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def service_bar(words: PageWords, id_: str, files: Sequence[str], known: Sequence[str], *, verify: bool) -> Markup:
    """Return the bar of one result in one language; `known` are models that have pages here."""
    made = environment().get_template("bar.html").render(v=words, id=id_, files=files, known=known, verify=verify)
    return Markup(made)  # noqa: S704 - of our own template, which escapes every value
