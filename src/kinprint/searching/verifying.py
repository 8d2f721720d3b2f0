"""Compare the weights of what a search found, for a full verdict: where they are, and what the verdict changes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kinprint._util.plain import printable
from kinprint.catalog.entry import Entry
from kinprint.catalog.file import PATH_CHARS
from kinprint.errors import FormatError, KinprintError, NotFound
from kinprint.fingerprints.file import SUFFIX
from kinprint.formats.adapters.files import ADAPTER_CONFIG
from kinprint.refs import leads_outside, parse_ref, path_text
from kinprint.render.repeat_command import compare_again
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE
from kinprint.results.options import Options
from kinprint.results.report import Report
from kinprint.results.search import LOOK_ALIKE, NAMED, RELATED, FoundModel, SearchReport, Verified
from kinprint.text import Text, joined, verbatim

SIZE_ONLY = " bytes"  # how the identity of a file ends where only its size is known


def place_of(entry: Entry, local: Path | None) -> str | None:
    """Return where the weights of an entry are; None where only the folder is known that it was entered from, and not here.

    An entry of the hub has its commit. One of a machine's own files is looked for by its name, a catalog keeping no paths.
    """
    if entry.revision is not None:
        return _on_the_hub(entry.name, entry.revision)
    if local is None or Path(entry.name).name != entry.name or entry.name == "..":
        return None  # a stranger's entry must not lead out of the folder
    path = local / entry.name
    text = path_text(path)
    return None if not path.exists() else f"./{text}" if text.startswith("-") else text


def _on_the_hub(name: str, revision: str) -> str | None:
    """Return the reference of a repository, or of a file in one, at a commit; None for any other name, which a stranger chose."""
    owner, _, rest = name.partition("/")
    own, _, file = rest.partition("/")
    repo = f"{owner}/{own}" if own else owner
    text = f"hf://{repo}@{revision}" + (f"/{file}" if file else "")
    try:
        found = parse_ref(text, endpoint="")
    except KinprintError:
        return None
    meant = (found.repo, found.revision, found.file) == (repo, revision, file or None)
    return None if not meant or (file and leads_outside(file)) else text


def _shown(text: str) -> str:
    return printable(text, PATH_CHARS)


def command_of(reference: str, place: str | None, options: Options) -> str:
    """Return the command that gives a full verdict; empty where there is none to tell."""
    if place is None or reference.endswith(SUFFIX) or any(_shown(text) != text for text in (reference, place)):
        return ""  # what cannot be shown cannot be typed
    return compare_again(options.arguments(changed=True), [reference, place])


def verified(
    report: SearchReport,
    entry_of: Callable[[str], Entry],
    wanted: Options,
    *,
    count: int,
    local: Path | None,
    compare_with: Callable[[Options, str], Report],
    holds: Callable[[str, str], bool],
    tell: Callable[[int, int], None],
) -> SearchReport:
    """Compare the first so many that were found, and those that the card names; what weights show is part of the answer.

    `holds` says whether a place of this machine holds the model that was entered under a key: a name and a size do not tell.
    """
    found = list(report.found)
    chosen = [k for k, one in enumerate(found) if k < count or one.class_ == NAMED] if count else []
    for done, place in enumerate(chosen):
        tell(done, len(chosen))
        one = found[place]
        options = replace(wanted, deep=wanted.deep or one.class_ != RELATED)
        try:
            entry = entry_of(one.key)
        except (FormatError, NotFound) as error:  # damaged or removed while the search ran
            found[place] = replace(one, verified=_not(_plain(error)))
            continue
        outcome = _outcome(
            report.query.reference, entry, local, partial(compare_with, options), partial(holds, one.key)
        )
        found[place] = replace(one, verified=outcome)
    related = any(one.is_relative for one in found)
    if not chosen or (report.class_ == NOT_TESTABLE and not related):
        return replace(report, found=tuple(found))
    class_ = RELATED if related else NO_EVIDENCE
    by_weights = sum(one.verified is not None and one.verified.class_ not in (None, NOT_TESTABLE) for one in found)
    compared = max(report.compared or 0, by_weights)
    sentence = sentence_of(class_, found, compared, more=report.more)
    return replace(report, found=tuple(found), class_=class_, sentence=sentence, compared=compared)


def _outcome(
    reference: str, entry: Entry, local: Path | None, compared: Callable[[str], Report], holds: Callable[[str], bool]
) -> Verified:
    if reference.endswith(SUFFIX):
        return _not(Text("the model that is looked for was given as a fingerprint"))
    place = place_of(entry, local)
    if place is None and entry.revision is not None:
        return _not(Text("{name} is the name of no repository of the hub, nor of a file in one", name=entry.name))
    if place is None and local is not None:
        return _not(Text("{folder} holds no {name}", folder=_shown(path_text(local)), name=entry.name))
    if place is None:
        return _not(Text("the entry does not say where its weights are (--local FOLDER, if they are in FOLDER/NAME)"))
    try:
        if entry.revision is None and (other := _other_file(Path(place), entry.files)) is not None:
            return _not(other)
        held = place if entry.revision is not None else next(filter(holds, _within(place, entry.files)), None)
        if held is None:
            return _not(Text("{place} is not what was entered: its fingerprint is another", place=_shown(place)))
        made = compared(held)
    except KinprintError as error:
        return _not(_plain(error))
    declared = made.declared.state if made.declared is not None else None
    verdict = made.verdict
    if verdict is None:
        return Verified(NOT_TESTABLE, None, None, made.reason or Text("nothing could be compared"), declared)
    return Verified(verdict.class_, verdict.kind, verdict.log10_p, verdict.sentence, declared)


def _within(place: str, files: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a place of this machine, and the one file that was entered from a folder which may hold others (--file)."""
    yield place
    if len(files) == 1 and Path(files[0][0]).name == files[0][0] and (Path(place) / files[0][0]).is_file():
        yield path_text(Path(place) / files[0][0])


def _plain(error: KinprintError) -> Text:
    """Return why something failed, without what cannot be shown of a name."""
    return error.reason if error.message.isprintable() else verbatim(_shown(error.message))


def _not(why: Text) -> Verified:
    return Verified(None, None, None, Text("not verified: {why}", why=why))


def _other_file(path: Path, files: Sequence[tuple[str, str]]) -> Text | None:
    """Return why a model of this machine is not the one that was entered, as far as sizes tell; an adapter's base is elsewhere."""
    is_adapter = (path / ADAPTER_CONFIG).is_file()
    for name, identity in files:
        at = path / name if path.is_dir() else path
        if not identity.endswith(SIZE_ONLY) or (is_adapter and not at.is_file()):
            continue
        try:
            size = f"{at.stat().st_size}{SIZE_ONLY}"
        except OSError:
            return Text(
                "{place} has no {file}, which the model that was entered has", place=_shown(path_text(path)), file=name
            )
        if size != identity:
            where = {"place": _shown(path_text(path)), "file": name}
            return Text("{place} is not what was entered: {file} has {a}, expected {b}", **where, a=size, b=identity)
    return None


def sentence_of(class_: str, found: Sequence[FoundModel], compared: int, *, more: bool) -> Text:
    """Say what a search found, in a sentence for each kind of evidence; `more` if not all that agree were tested and listed."""
    by_fingerprint = [one for one in found if one.class_ == RELATED]
    proven = [one for one in by_fingerprint if one.is_relative]
    confirmed = sum(one.is_relative for one in found if one.class_ != RELATED)
    alike = sum(one.class_ == LOOK_ALIKE and not one.is_relative for one in found)
    said = []
    if proven:
        counts = {"n": len(proven), "total": compared}
        if more:
            said.append(
                Text("Related to this model, of the {total:,} compared: at least {n:,}; not all were tested.", **counts)
            )
        else:
            said.append(Text("Related to this model, of the {total:,} compared: {n:,}.", **counts))
        said.append(
            Text(
                "If this model were unrelated to all of them, the chance that any would agree with it like the weakest "
                "relative listed is below 10^{p}.",
                p=math.ceil(max(one.log10_p or 0.0 for one in proven)),
            )
        )
    if confirmed:
        said.append(
            Text("Related by their weights, which were compared, and not by fingerprints alone: {n:,}.", n=confirmed)
        )
    disproved = len(by_fingerprint) - len(proven)
    if class_ != RELATED and not alike and not disproved:
        return Text("No relative of this model's width among the {total:,} compared.", total=compared)
    if class_ != RELATED:
        said.append(Text("No relative is proven among the {total:,} compared.", total=compared))
    if disproved:
        said.append(
            Text(
                "Related by their fingerprints, which say what their makers say, and not by their weights, which were "
                "compared: {n:,}.",
                n=disproved,
            )
        )
    if alike:
        said.append(Text("Alike in what no change of order or basis alters, and not proven: {n:,}.", n=alike))
    return joined(said, "spaces")
