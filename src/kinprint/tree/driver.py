"""Build the family tree of several models: open every model once, compare every pair, and infer the tree from the facts."""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from kinprint._util.plain import short_names
from kinprint._util.progress import Progress, quiet
from kinprint._util.sizes import format_size
from kinprint.comparison.pipeline import compare
from kinprint.errors import BadSelection, BadSetting, KinprintError
from kinprint.model.model import Model, open_model
from kinprint.refs import parse_ref, path_text
from kinprint.results.findings import IDENTICAL
from kinprint.results.options import PAIR_BUDGET_BYTES, Options
from kinprint.results.report import Report
from kinprint.results.tree import FamilyTree
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.text import Text
from kinprint.tree.cues import cues_of
from kinprint.tree.facts import SHARING, PairFacts, pair_facts
from kinprint.tree.infer import infer_tree
from kinprint.tree.merges import find_mixes
from kinprint.tree.model_samples import ModelSample, sample_model

MAX_MODELS = 40
SECONDS_A_PAIR = 2  # of small local models on two cores; more where bytes come from afar
METRICS = ("pearson",)  # all that the tree needs beside the evidence; the others would double the time
TREE_OPTIONS = Options(budget_bytes=PAIR_BUDGET_BYTES, metrics=METRICS)  # for each pair
_NAME_MORE = "name the models that may be related, one after another"

OnReport = Callable[[int, int, Report], None]


def build_tree(
    models: Sequence[str | Path],
    options: Options | None = None,
    *,
    trust_metadata: bool = False,
    max_models: int = MAX_MODELS,
    settings: Settings | None = None,
    session: Session | None = None,
    progress: Progress | None = None,
    on_report: OnReport | None = None,
    **chosen: Any,
) -> FamilyTree:
    """Compare all pairs of models and propose their family tree.

    Parameters
    ----------
    models : models, as the command line takes them.
    options : what each comparison looks at; by default what the tree needs, within 32 MB for each pair.
    trust_metadata : let what cards and configs declare turn edges; it never makes one.
    max_models : refuse more: the work grows with their square.
    settings, session : where and how to read.
    progress : called with (stage, done, total).
    on_report : called with the numbers of two models and the report on them, for every pair that was compared.
    chosen : options by name, instead of `options` or on top of them: ``build_tree(models, deep=True)``.

    Fewer than two different models, or more than `max_models`, raise BadSelection.
    """
    clock, tell = time.monotonic(), progress or quiet
    options = Options.of(options or TREE_OPTIONS, **chosen).check()
    references = several(models, "build_tree")
    _check_count(references, max_models, options.budget_bytes)
    with nullcontext(session) if session else Session(settings) as run:
        before = run.bytes_delivered
        members, notes = _open_all(references, run, options, tell)
        if options.files:
            run.require_files(options.files)
        pairs = _compare_all(members, run, options, on_report, tell)
        count = math.comb(len(members), 2)
        shared = frozenset(pair.key for pair in pairs if pair.found in SHARING and pair.significant(count))
        same = {pair.key[1] for pair in pairs if pair.found == IDENTICAL}
        mixes = find_mixes([{} if number in same else each.slices for number, each in enumerate(members)], shared)
        facts = [member.facts for member in members]
        tree = infer_tree(facts, pairs, mixes, options, trust_metadata=trust_metadata, notes=notes)
        elapsed_s, read = round(time.monotonic() - clock, 3), run.bytes_delivered - before
        return replace(tree, run=replace(tree.run, elapsed_s=elapsed_s, bytes_read=read))


def several(models: Sequence[str | Path], function: str) -> list[str]:
    """Return models as text; BadSelection for one that stands alone, of which the letters would be taken for models."""
    if isinstance(models, str | os.PathLike):
        said = f"{function}: expected a list of models, got {type(models).__name__} {os.fspath(models)!r}"
        raise BadSelection(said, hint=f"kinprint.{function}([a, b])")
    return [path_text(model) for model in models]


def _check_count(references: Sequence[str], max_models: int, budget_bytes: int | None) -> None:
    count = len(references)
    if count < 2:
        raise BadSelection(f"a tree needs two models or more, got {count}", hint=_NAME_MORE)
    if max_models < 2:
        raise BadSetting(f"a tree of at most {max_models} models is none: expected 2 or more")
    if count > max_models:
        pairs = math.comb(count, 2)
        most = "without limit" if budget_bytes is None else f"up to {format_size(pairs * budget_bytes)}"
        raise BadSelection(
            f"{count} models make {pairs} pairs, each to be compared: about {pairs * SECONDS_A_PAIR // 60 + 1} minutes if they "
            f"are small and here, and {most} to be read; at most {max_models} models are taken",
            hint=f"leave some out, or give --max-models {count}",
        )


def _open_all(
    references: Sequence[str], session: Session, options: Options, tell: Progress
) -> tuple[list[ModelSample], list[Text]]:
    """Open the models in turn; one that is named twice, in whatever spelling, is taken once."""
    opened: list[tuple[str, Model]] = []
    seen: dict[tuple[object, ...], str] = {}
    notes = []
    for number, reference in enumerate(references):
        tell("opening models", number, len(references))
        with _blaming(reference), _within(session, options):
            model = open_model(reference, session)
        where, files = model.checkpoint.provenance, model.checkpoint.files
        key = (where.kind, where.location, where.commit, *((file.name, file.size, file.identity) for file in files))
        if key in seen:
            notes.append(Text("{a} is the same place as {b}, and was taken once", a=reference, b=seen[key]))
            continue
        seen[key] = reference
        opened.append((_pinned(reference, model, session), model))
    if len(opened) < 2:
        said = f"a tree needs two models or more, and all {len(references)} names mean {references[0]}"
        raise BadSelection(said, hint=_NAME_MORE)
    members: list[ModelSample] = []
    for (pinned, model), name in zip(opened, short_names([model.label for _, model in opened]), strict=True):
        tell("reading models", len(members), len(opened))
        with _blaming(model.label), _within(session, options):
            members.append(sample_model(model, name, pinned, session.remaining_bytes))
    return members, notes


def _pinned(reference: str, model: Model, session: Session) -> str:
    """Return the reference with the commit that was opened, so that no pair sees a later one."""
    ref = parse_ref(reference, endpoint=session.settings.endpoint)
    commit = model.checkpoint.provenance.commit
    if ref.kind != "hub" or commit is None or ref.file is not None:
        return reference
    return f"hf://{ref.repo}@{commit}"


def _compare_all(
    members: Sequence[ModelSample], session: Session, options: Options, on_report: OnReport | None, tell: Progress
) -> list[PairFacts]:
    """Compare every pair once; a model that equals an earlier one has the relations of that one, and is not compared again."""
    found: list[PairFacts] = []
    same: set[int] = set()
    todo = list(combinations(range(len(members)), 2))
    for done, pair in enumerate(todo):
        tell("comparing pairs", done, len(todo))
        if not same.isdisjoint(pair):
            continue
        # the dense and the shallow first: maps of layers and of experts are made for the second
        first, second = sorted(pair, key=lambda n: (members[n].facts.experts > 0, members[n].facts.layers))
        a, b = members[first], members[second]
        with _blaming(f"{a.facts.name} and {b.facts.name}"):
            report = compare(a.pinned, b.pinned, options, session=session)
        if on_report is not None:
            on_report(first, second, report)
        found.append(pair_facts(report, first, second, cues_of(report, a.facts, b.facts)))
        if found[-1].found == IDENTICAL:
            same.add(pair[1])
    return found


def _within(session: Session, options: Options) -> AbstractContextManager[None]:
    """Give each model the budget of a pair: connections and threads are shared by all pairs, budgets are not."""
    return session.reading(options.budget_bytes, files=options.files, bases=options.bases)


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    """Name the model, among many, that an error is about."""
    try:
        yield
    except KinprintError as error:
        if what not in error.message:
            error.message = f"{what}: {error.message}"
        raise
