"""Verify an evidence bundle: check the archive and every range, and compute every figure anew."""

import hashlib
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import orjson

from kinprint._util.plain import printable
from kinprint._util.progress import Progress, quiet
from kinprint._util.sizes import format_size
from kinprint._version import __version__
from kinprint.bundle import members
from kinprint.bundle.access import Access, hosts_of
from kinprint.bundle.agreement import OTHER_MACHINE, SAME_MACHINE, agree
from kinprint.bundle.conclusion import CheckState, conclude
from kinprint.bundle.container import DEFAULT_MAX_BYTES, Container, open_container
from kinprint.bundle.members import Manifest, Sources
from kinprint.bundle.references import check_names, declared_revisions
from kinprint.bundle.rereading import BytesAtHand, check_short, enclosed_bytes, recorded_failure, reread, sha256_text
from kinprint.bundle.writing import readme
from kinprint.comparison.pipeline import compare
from kinprint.errors import FormatError, KinprintError
from kinprint.results.context import LayerGrid
from kinprint.results.later import MARK
from kinprint.results.older_reports import without_text_data
from kinprint.results.options import Options
from kinprint.results.plain_json import build
from kinprint.results.report import Report
from kinprint.results.verification import OPEN, PASSED, WRONG, Check, ModelRead, Problem, Verification
from kinprint.sources.ledger import ReadingRecord, summary_of
from kinprint.sources.replay import ReplaySession, SharedFile
from kinprint.sources.settings import Settings
from kinprint.text import Text, joined, verbatim


@dataclass(frozen=True)
class _Contents:
    manifest: Manifest
    report: Report
    data: dict[str, Any]  # the report as it stands in JSON
    sources: Sources
    null: bytes | None
    doubtful: frozenset[int]  # sources whose names contradict what was opened


def verify_bundle(
    path: str | Path,
    *,
    offline: bool = False,
    settings: Settings | None = None,
    max_bytes: int | None = DEFAULT_MAX_BYTES,
    allow_local: bool = False,
    use_cache: bool = False,
    announce: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Check an evidence bundle.

    Parameters
    ----------
    path : the bundle.
    offline : use the bytes in the bundle, and ask no source.
    settings : how sources are read; by default from the environment.
    max_bytes : what the bundle may have in all when unpacked; None for no limit.
    allow_local : read paths outside the current folder, and ask servers of this machine and its network, if the bundle names them.
    use_cache : let the caches of this machine stand for the sources.
    announce : called with the servers that the bundle names, before any is asked.
    progress : called with (stage, done, total).

    What is no bundle, or cannot be read, raises FormatError or SchemaError; what does not agree is in the result.
    """
    path, tell = Path(path), progress or quiet
    state = CheckState(offline=offline, cached=use_cache)
    with open_container(path, max_bytes) as container, tempfile.TemporaryFile(prefix="kinprint-") as temporary:
        tell("reading the bundle", 0, 3)
        contents = _check_container(container, state)
        _check_amount(contents.sources.record, path, max_bytes)
        tell("checking ranges", 1, 3)
        access = None if offline else Access(settings or Settings.from_env(), allow_local, use_cache)
        hosts = hosts_of(contents.sources.record)
        if access is not None and announce is not None and hosts:
            announce(f"servers that the bundle names, asked now if they may be: {', '.join(hosts)}")
        bytes_at_hand = _check_bytes(container, contents, state, SharedFile(temporary), access)
        tell("computing anew", 2, 3)
        if bytes_at_hand is not None:
            _check_figures(contents, bytes_at_hand, state)
        tell("computing anew", 3, 3)
    return conclude(path, contents.manifest.digest, contents.report, state)


def _check_amount(record: ReadingRecord, path: Path, max_bytes: int | None) -> None:
    """Refuse to fetch more than the user expects: a small bundle can name much."""
    total = sum(len(item) for _, _, file in record.files() for item in file.ranges)
    if max_bytes is not None and total > max_bytes:
        most, name = format_size(max_bytes), printable(str(path))
        said = f"{name}: {format_size(total)} were read for it, more than the {most} allowed"
        raise FormatError(said, hint="give a larger --max-size, if you expect a bundle of so many bytes")


def report_of(path: Path) -> bytes:
    """Return report.json of a bundle, for reading: its digest is checked, its figures are not.

    What is no bundle, or has another report than the one that was put in, raises FormatError or SchemaError.
    """
    with open_container(path) as container:
        manifest = members.read_manifest(container.read(members.MANIFEST))
        raw = container.read(members.REPORT)
    stated = next((member.sha256 for member in manifest.members if member.name == members.REPORT), None)
    if stated != hashlib.sha256(raw).hexdigest():
        said = f"{printable(str(path))}: {members.REPORT} is not the one that was put in"
        raise FormatError(said, hint="see kinprint verify, and do not trust this bundle")
    return raw


def _check_container(container: Container, state: CheckState) -> _Contents:
    """Compare every member with the manifest, and read all of them."""
    manifest = members.read_manifest(container.read(members.MANIFEST))
    texts, problems = _check_members(container, manifest)
    if manifest.sealed().digest != manifest.digest:
        sealed = _digest(manifest.sealed().digest)
        problems.insert(0, Problem("manifest", members.MANIFEST, _digest(manifest.digest), sealed))
    sources = members.read_sources(texts[members.SOURCES], texts[members.RANGES])
    report, data = members.read_report(texts[members.REPORT])
    evidence = members.evidence_digest(data, texts[members.SOURCES], texts[members.RANGES])
    problems += _check_manifest(manifest, report, evidence)
    problems += _check_reads(report, sources.record)
    problems += _check_readme(manifest, sources, texts.get(members.README), state)
    null = _check_null(report, texts.get(members.NULL), state)
    wrong = len({problem.where for problem in problems})
    right = Text("every member has the SHA-256 that bundle.json states")
    state.add("archive", len(container.members), wrong, right, Text("members are not those that were written"))
    state.problems += problems
    return _Contents(manifest, report, data, sources, null, _check_record(sources.record, state))


def _check_members(container: Container, manifest: Manifest) -> tuple[dict[str, bytes], list[Problem]]:
    """Return the content of all members that are text, and the members that are not as the manifest states."""
    problems: list[Problem] = []
    stated = {member.name: member for member in manifest.members}
    texts: dict[str, bytes] = {}
    for name, found in container.members.items():
        if name == members.MANIFEST:
            continue
        if members.BYTES.match(name):
            digest, fits = container.digest(name)
        else:
            texts[name] = container.read(name)
            digest, fits = hashlib.sha256(texts[name]).hexdigest(), True
        member = stated.pop(name, None)
        if member is None:
            problems.append(Problem("member", name, Text("nothing"), sha256_text(digest)))
        elif (member.sha256, member.size) != (digest, found.size):
            problems.append(Problem("member", name, _content(member.size, member.sha256), _content(found.size, digest)))
        elif not fits:
            problems.append(Problem("member", name, Text("a sound copy"), Text("the archive's own checksum is wrong")))
    return texts, problems + [Problem("member", name, Text("a member"), Text("nothing")) for name in stated]


def _check_reads(report: Report, record: ReadingRecord) -> list[Problem]:
    """Hold what the report says was read against ranges.jsonl, whether any bytes are at hand or not."""
    if not report.reads:  # of a version that did not tell, which is checked elsewhere
        return []
    said, found = ({(item.model, item.file): item for item in items} for items in (report.reads, summary_of(record)))
    keys = sorted(key for key in {*said, *found} if said.get(key) != found.get(key))
    sides, none = (said, found), Text("nothing")
    digests = ([sha256_text(x[key].sha256) if key in x else none for x in sides] for key in keys)
    names = [printable(f"{model}: {file}") for model, file in keys]
    return [Problem("read", name, *digest) for name, digest in zip(names, digests, strict=True)]


def _check_manifest(manifest: Manifest, report: Report, evidence: str) -> list[Problem]:
    pairs = [
        ("evidence", _digest(manifest.evidence), _digest(evidence)),
        ("may_differ", verbatim(", ".join(manifest.may_differ)), verbatim(", ".join(members.MAY_DIFFER))),
        ("report_schema", verbatim(manifest.report_schema), verbatim(report.schema)),
        ("report_schema_version", verbatim(str(manifest.report_schema_version)), verbatim(str(report.schema_version))),
    ]
    return [Problem("manifest", name, said, found) for name, said, found in pairs if said != found]


def _check_readme(manifest: Manifest, sources: Sources, text: bytes | None, state: CheckState) -> list[Problem]:
    """Compare README.txt with what this program writes: people follow what it says."""
    if text == readme(sources.record, bool(sources.enclosed)).encode():
        return []
    if text is not None and _stated(manifest) != __version__:
        state.skip(members.README, Text("it is not what this version of kinprint writes; do not follow it"))
        return []
    found = Text("other text") if text is not None else Text("nothing")
    return [Problem("member", members.README, Text("how to check the bundle"), found)]


def _check_null(report: Report, raw: bytes | None, state: CheckState) -> bytes | None:
    """Return the empirical null in the bundle; a report that names none must come without, and one that names one with it."""
    given = raw is not None
    if given != (report.settings.null is not None):
        said = "holds a null that its report does not name" if given else "lacks the null that its report names"
        raise FormatError(f"the bundle {said}", hint=members.DISTRUST)
    if raw is not None:
        members.read_null(raw)
        state.null = hashlib.sha256(raw).hexdigest()
    return raw


def _check_record(record: ReadingRecord, state: CheckState) -> frozenset[int]:
    """Check what needs no server, note what no server can be asked about, and return sources that are doubtful."""
    doubtful = check_names(record)
    problems = [problem for found in doubtful.values() for problem in found]
    right, wrong = Text("every name means what was opened"), Text("names, locations and commits contradict each other")
    state.add("names", len(record.sources) + len(record.lookups), len(problems), right, wrong)
    state.problems += problems
    if spent := record.delivered_before:
        said = Text("{n:,} bytes of it are recorded to have been spent before this comparison", n=spent)
        state.skip(Text("the budget"), said)
    for source in declared_revisions(record):
        of = source.revision
        said = Text("its revision {revision} is that of an adapter, which was not held against it", revision=of)
        state.skip(source.text, said)
    failed = [(item.what, item.failure) for item in record.lookups if item.failure is not None]
    failed += [(item.text, item.failure) for item in record.sources if item.provenance is None and item.failure]
    if state.offline:
        state.failures = len(failed) + sum(len(file.failures) for _, _, file in record.files())
    else:
        for what, failure in failed:
            state.skip(what, recorded_failure(failure))
    return frozenset(doubtful)


def _check_bytes(
    container: Container, contents: _Contents, state: CheckState, spool: SharedFile, access: Access | None
) -> BytesAtHand | None:
    """Check all ranges, and return the bytes if all of them could be had."""
    record = contents.sources.record
    at_hand = enclosed_bytes(container, contents.sources) if contents.sources.enclosed else None
    if at_hand is not None:
        _enter(state, "enclosed bytes", at_hand, Text("the bytes in the bundle"))
    if access is not None:
        live = reread(record, access, spool, contents.doubtful)
        what = Text("what the sources hold now")
        if access.use_cache:
            what = Text("what the sources, or the caches of this machine, hold now")
        _enter(state, "sources", live, what)
        if at_hand is not None:  # what a source no longer has can still be taken from the bundle
            live.kept = {**at_hand.kept, **live.kept}
            live.problems += at_hand.problems
        at_hand = live
    seen = at_hand.seen if at_hand is not None else {}
    for number, item in enumerate(record.sources):
        if item.provenance is not None:
            said = seen.get(number, (Text(""), False))
            state.models.append(ModelRead(item.text, item.location, item.provenance.commit, number in seen, *said))
    if at_hand is None:
        reason = Text("the bundle holds no bytes, and --offline forbids to ask for them")
        state.skip(Text("ranges and figures"), reason)
    elif at_hand.problems:
        reason = Text("the bytes are not those that were recorded")
    elif {(number, file.name) for number, _, file in record.files() if file.ranges} - at_hand.kept.keys():
        reason = Text("not all bytes could be had")
    else:
        return at_hand
    state.checks.append(Check("figures", OPEN, 0, 0, Text("not computed anew: {why}", why=reason)))
    return None


def _enter(state: CheckState, name: str, found: BytesAtHand, what: Text) -> None:
    outcome = WRONG if found.problems else OPEN if found.unchecked else PASSED
    if outcome == WRONG:
        said = Text("{what} differ from the record", what=what)
    elif outcome == PASSED:
        said = Text("every range has the SHA-256 that was recorded of {what}", what=what)
    else:
        said = Text("not all could be checked; all that could agree") if found.ranges else Text("none could be read")
    if found.answers and outcome != WRONG:
        said = joined((said, Text("{n:,} files that were not there are not there now", n=found.answers)))
    state.checks.append(Check(name, outcome, found.ranges, found.equal, said))
    state.problems += found.problems
    state.unchecked += found.unchecked


def _check_figures(contents: _Contents, found: BytesAtHand, state: CheckState) -> None:
    """Run the comparison again on the recorded bytes, and compare the two reports."""
    state.versions = _versions(contents.manifest)
    state.tolerance = OTHER_MACHINE if state.versions else SAME_MACHINE
    try:
        again, missing, replayed = _replay(contents, found)
    except KinprintError as error:
        why = Text("it cannot be repeated: {why}", why=error.reason)
        state.problems.append(Problem("read", "the comparison", Text("a report"), why))
        said = Text("the comparison cannot be repeated from what the bundle holds")
        state.checks.append(Check("figures", WRONG, 0, 0, said))
        return
    _check_short(found, contents.sources.record, replayed, state)
    recomputed = orjson.loads(again.to_json(indent=False))
    if contents.report.schema_version < again.schema_version:
        recomputed = without_text_data(recomputed) | {"schema_version": contents.report.schema_version}
    if contents.null is not None:  # read from the bundle, under another name
        recomputed["settings"]["null"] = contents.report.settings.null
    later = _later(contents.manifest)
    for pair in zip(contents.data.get("grids", ()), recomputed["grids"], strict=False):
        for grid in pair if pair[0].get("cells") != pair[1]["cells"] else ():
            grid |= build(LayerGrid, grid).grids()  # figures are held against figures
            grid.pop("cells", None)
    agreement = agree(contents.data, recomputed, tolerance=state.tolerance, later=later, skip=members.MAY_DIFFER)
    absent = Text("the report, said to be of an older version, does not have it")
    for name in agreement.newer:
        state.skip(Text("{file}: {name}", file=members.REPORT, name=name), absent)
    state.agreement = agreement
    state.problems += [Problem("read", what, Text("nothing"), Text("asked for now")) for what in dict.fromkeys(missing)]
    state.problems += agreement.problems
    bad = len(agreement.problems) + len(missing)
    equal = Text("{n:,} of {m:,} figures equal to the last bit", n=agreement.exact, m=agreement.figures)
    if agreement.close:
        equal = Text("{equal}, {n} within {x:g}", equal=equal, n=len(agreement.close), x=state.tolerance)
    said = Text(
        "computed anew: {equal}; {n:,} of {m:,} other values equal; run (date, traffic, versions) is not checked",
        equal=equal,
        n=agreement.other_values - len(agreement.other_differ),
        m=agreement.other_values,
    )
    total = agreement.figures + agreement.other_values
    state.checks.append(Check("figures", WRONG if bad else PASSED, total, total - len(agreement.problems), said))


def _check_short(found: BytesAtHand, record: ReadingRecord, replayed: ReadingRecord, state: CheckState) -> None:
    problems, short = check_short(found, record, replayed), len(found.short)
    state.problems += problems
    for number, check in enumerate(state.checks):
        if check.name == "sources":
            outcome, agree = WRONG if problems else check.state, check.agree + short - len(problems)
            state.checks[number] = replace(check, state=outcome, checked=check.checked + short, agree=agree)


def _replay(contents: _Contents, found: BytesAtHand) -> tuple[Report, list[str], ReadingRecord]:
    report, options = contents.report, contents.report.settings
    session = ReplaySession(contents.sources.record, found.kept)
    with tempfile.TemporaryDirectory(prefix="kinprint-") as folder, session:
        if contents.null is not None:
            file = Path(folder) / members.NULL
            file.write_bytes(contents.null)
            options = replace(options, null=str(file))
        again = compare(report.a.reference, report.b.reference, options, session=session)
        assert session.ledger is not None
        return again, session.missing, session.ledger.record()


def _digest(digest: str) -> Text:
    return Text("digest {digest}", digest=digest)


def _content(size: int, digest: str) -> Text:
    return Text("{n} bytes, sha256 {digest}", n=size, digest=digest)


def _stated(manifest: Manifest) -> str:
    return next((item.version for item in manifest.software if item.name == "kinprint"), "")


def _later(manifest: Manifest) -> frozenset[str]:
    """Return the fields that a report may lack: those added since, if it is of a version before this one."""
    if not _number(_stated(manifest)) < _number(__version__):
        return frozenset()
    places = {"": fields(Report), "settings.": fields(Options)}
    return frozenset(
        f"{place}{item.name}" for place, items in places.items() for item in items if MARK in item.metadata
    )


def _number(version: str) -> tuple[int, ...]:
    """Return a version for comparing; text that is no version is older than no other."""
    found = re.match(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})\Z", version)
    return tuple(int(part) for part in found.groups()) if found else (sys.maxsize,)


def _versions(manifest: Manifest) -> tuple[Text, ...]:
    """Say how the software and processor of the bundle differ from those here."""
    then = {item.name: item.version for item in manifest.software}
    now = {item.name: item.version for item in members.software()}
    found = [
        Text("{name} {then}, here {now}", name=printable(name, 40), then=printable(version, 40), now=now[name])
        for name, version in then.items()
        if name in now and now[name] != version
    ]
    if manifest.arithmetic != members.arithmetic():
        found.append(Text("another processor"))
    return tuple(found)
