"""Help of commands: examples at the top, options in groups."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from kinprint._util.files import is_folder, is_there

F = TypeVar("F", bound=Callable[..., Any])


class _Model(click.Path):
    """A model as an argument or option: shells complete it as a path, and any other text is one too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text; say so where it looks like a path, and would be asked of the hub, because there is none."""
        path, named = Path(value), value.count("/") == 1 and not value.startswith(("/", ".", "~"))
        if named and "@" not in value and is_folder(path.parent) and not is_there(path):
            click.echo(f"no such file or folder: {value!r}; taken for a repository on the hub", err=True)
        return super().convert(value, param, ctx)


MODEL = _Model()


class _Helped(click.Command):
    """A command of whose help ``help.json`` holds examples, and notes, by its name, below a group by both ("bench lineage")."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if examples := _told(ctx, "examples"):
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in examples))
        super().format_help_text(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, lines in _told(ctx, "notes").items():
            with formatter.section(title):
                formatter.write_dl(list(lines.items()))

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first sentence, which click would cut."""
        return super().get_short_help_str(max(limit, 400))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            shown = option.get_help_record(ctx)
            if shown is not None and isinstance(option, click.Option):
                groups.setdefault(getattr(option, "group", "Options"), []).append(shown)
        for title, options in groups.items():
            with formatter.section(title):
                formatter.write_dl(options)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def _told(context: click.Context, what: str) -> Any:
    import json
    from importlib.resources import files

    path: list[str] = []
    at: click.Context | None = context
    while at is not None and at.parent is not None:
        path.insert(0, at.info_name or "")
        at = at.parent
    told = json.loads((files("kinprint.cli") / "help.json").read_text(encoding="utf-8"))
    return told.get(" ".join(path) or "main", {}).get(what, {})


class HelpedGroup(_Helped, click.Group):
    """A group of commands with this help."""

    command_class = _Helped


command = partial(click.command, cls=_Helped)
"""Makes a command, as click does, with this help."""


def in_group(title: str, *options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds options to a command, under a title in its help unless they have one."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
            added = function.__click_params__[-1]  # type: ignore[attr-defined]
            added.group = getattr(added, "group", title)
        return function

    return add
