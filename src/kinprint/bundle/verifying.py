"""Checking an evidence bundle: the archive, every range, and every figure."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from kinprint import verification
from kinprint.bundle.agreement import OTHER_MACHINE, SAME_MACHINE, Agreement, agree
from kinprint.bundle.container import DEFAULT_MAX_BYTES, Container, open_container
from kinprint.bundle.manifest import (
    BYTES,
    MANIFEST,
    MAY_DIFFER,
    NULL,
    RANGES,
    REPORT,
    SOURCES,
    Manifest,
    Sources,
    arithmetic,
    evidence_digest,
    read_manifest,
    read_report,
    read_sources,
    software,
)
from kinprint.bundle.rereading import Found, enclosed_bytes, places_of, reread
from kinprint.comparison import compare
from kinprint.errors import FormatError, KinprintError
from kinprint.evidence.examine import Inquiry
from kinprint.plain import printable
from kinprint.results import Report
from kinprint.selection import Options
from kinprint.sizes import format_size
from kinprint.sources.ledger import Record
from kinprint.sources.recorded import ReplaySession, SharedFile
from kinprint.sources.settings import Settings
from kinprint.verification import (
    FAILED,
    IN_PART,
    MOST_SHOWN,
    NOT_CHECKED,
    OPEN,
    PASSED,
    VERIFIED,
    WRONG,
    Check,
    Problem,
    Unchecked,
    Verification,
)

Progress = Callable[[str, int, int], None]


@dataclass
class _State:
    """What has been found so far."""

    checks: list[Check] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)
    agreement: Agreement | None = None
    tolerance: float = SAME_MACHINE
    versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Contents:
    manifest: Manifest
    report: Report
    raw: bytes
    sources: Sources


def verify_bundle(
    path: Path,
    *,
    offline: bool = False,
    settings: Settings | None = None,
    max_bytes: int | None = DEFAULT_MAX_BYTES,
    progress: Progress | None = None,
) -> Verification:
    """Check an evidence bundle.

    Parameters
    ----------
    path
        The bundle.
    offline
        Use the bytes in the bundle, and ask no source.
    settings
        How sources are read; by default from the environment.
    max_bytes
        What the bundle may have in all when unpacked; None for no limit.
    progress
        Called with (stage, done, total).

    Raises
    ------
    FormatError, SchemaError
        If it is no bundle, or one that this program cannot read. What does not agree is no error, but in the result.
    """
    tell = progress or _quiet
    state = _State()
    with open_container(path, max_bytes) as container, tempfile.TemporaryFile(prefix="kinprint-") as temporary:
        tell("reading the bundle", 0, 3)
        contents = _check_container(container, state)
        _check_amount(contents.sources.record, path, max_bytes)
        tell("checking ranges", 1, 3)
        bytes_at_hand = _check_bytes(container, contents, state, SharedFile(temporary), offline, settings)
        tell("computing anew", 2, 3)
        if bytes_at_hand is not None:
            null = container.read(NULL) if NULL in container.names else None
            _check_figures(contents, bytes_at_hand, null, state)
        tell("computing anew", 3, 3)
    return _conclusion(path, contents, state, offline=offline)


def _check_amount(record: Record, path: Path, max_bytes: int | None) -> None:
    """Refuse to fetch more than the user expects: a small bundle can name much."""
    total = sum(item.end - item.start for _, _, file in places_of(record) for item in file.ranges)
    if max_bytes is not None and total > max_bytes:
        raise FormatError(
            f"{printable(str(path))}: {format_size(total)} were read for it, more than the {format_size(max_bytes)} allowed",
            hint="give a larger --max-size, if you expect a bundle of so many bytes",
        )


def report_of(path: Path) -> bytes:
    """Return report.json of a bundle, for reading: its digest is checked, its figures are not.

    Raises
    ------
    FormatError, SchemaError
        If it is no bundle, or its report is not the one that was put in.
    """
    with open_container(path) as container:
        manifest = read_manifest(container.read(MANIFEST))
        raw = container.read(REPORT)
    stated = next((member.sha256 for member in manifest.members if member.name == REPORT), None)
    if stated != hashlib.sha256(raw).hexdigest():
        raise FormatError(
            f"{printable(str(path))}: {REPORT} is not the one that was put in",
            hint="see kinprint verify, and do not trust this bundle",
        )
    return raw


# -- the archive ---------------------------------------------------------------------------------------------------------


def _check_container(container: Container, state: _State) -> _Contents:
    """Hold every member against the manifest, and read them."""
    manifest = read_manifest(container.read(MANIFEST))
    problems: list[Problem] = []
    if manifest.sealed().digest != manifest.digest:
        problems.append(
            Problem("manifest", MANIFEST, f"digest {manifest.digest[:64]}", f"digest {manifest.sealed().digest}")
        )
    stated = {member.name: member for member in manifest.members}
    texts: dict[str, bytes] = {}
    for name in container.names:
        if name == MANIFEST:
            continue
        if BYTES.match(name):
            digest, fits = container.digest(name)
        else:
            texts[name] = container.read(name)
            digest, fits = hashlib.sha256(texts[name]).hexdigest(), True
        member = stated.pop(name, None)
        if member is None:
            problems.append(Problem("member", name, "nothing", f"sha256 {digest}"))
        elif (member.sha256, member.size) != (digest, container.size(name)):
            problems.append(
                Problem(
                    "member",
                    name,
                    f"{member.size} bytes, sha256 {printable(member.sha256, 64)}",
                    f"{container.size(name)} bytes, sha256 {digest}",
                )
            )
        elif not fits:
            problems.append(Problem("member", name, "a sound copy", "the archive's own checksum is wrong"))
    problems += [Problem("member", printable(name), "a member", "nothing") for name in stated]
    sources = read_sources(texts[SOURCES], texts[RANGES])
    report = read_report(texts[REPORT])
    evidence = evidence_digest(texts[REPORT], texts[SOURCES], texts[RANGES])
    if evidence != manifest.evidence:
        problems.append(Problem("manifest", "evidence", f"digest {manifest.evidence[:64]}", f"digest {evidence}"))
    total = len(container.names)
    wrong = {problem.where for problem in problems}
    said = (
        "every member has the SHA-256 that bundle.json states"
        if not wrong
        else "members are not those that were written"
    )
    state.checks.append(Check("archive", WRONG if wrong else PASSED, total, total - min(total, len(wrong)), said))
    state.problems += problems
    return _Contents(manifest, report, texts[REPORT], sources)


# -- the bytes -----------------------------------------------------------------------------------------------------------


def _check_bytes(
    container: Container,
    contents: _Contents,
    state: _State,
    spool: SharedFile,
    offline: bool,
    settings: Settings | None,
) -> Found | None:
    """Check all ranges, and return where the bytes are to be had from, if all of them are."""
    record = contents.sources.record
    enclosed = enclosed_bytes(container, contents.sources) if contents.sources.enclosed else None
    if enclosed is not None:
        _enter(state, "enclosed bytes", enclosed, "the bytes in the bundle")
    if not offline:
        live = reread(record, settings or Settings.from_env(), spool)
        _enter(state, "sources", live, "what the sources hold now")
        if enclosed is not None:  # what a source no longer has can still be taken from the bundle
            live.kept = {**enclosed.kept, **live.kept}
            live.problems += enclosed.problems
        enclosed = live
    needed = {(number, file.name) for number, _, file in places_of(record)}
    if enclosed is None or enclosed.problems or needed - enclosed.kept.keys():
        reason = (
            "the bundle holds no bytes, and --offline forbids to ask for them"
            if enclosed is None
            else "the bytes are not those that were recorded"
            if enclosed.problems
            else "not all bytes could be had"
        )
        state.checks.append(Check("figures", OPEN, 0, 0, f"not computed anew: {reason}"))
        if enclosed is None:
            state.unchecked.append(Unchecked("ranges and figures", reason))
        return None
    return enclosed


def _enter(state: _State, name: str, found: Found, what: str) -> None:
    bad = bool(found.problems)
    said = (
        f"{what} differ from the record"
        if bad
        else f"every range has the SHA-256 that was recorded of {what}"
        if not found.unchecked
        else "some could not be read; all that could agree"
        if found.ranges
        else "none could be read"
    )
    state.checks.append(
        Check(name, WRONG if bad else OPEN if found.unchecked else PASSED, found.ranges, found.equal, said)
    )
    state.problems += found.problems
    state.unchecked += found.unchecked


# -- the figures -----------------------------------------------------------------------------------------------------------


def _check_figures(contents: _Contents, found: Found, null: bytes | None, state: _State) -> None:
    """Run the comparison again on the recorded bytes, and hold the two reports against each other."""
    state.versions = _versions(contents.manifest)
    state.tolerance = OTHER_MACHINE if state.versions else SAME_MACHINE
    try:
        again, missing = _replay(contents, found, null)
    except KinprintError as error:
        state.problems.append(Problem("read", "the comparison", "a report", f"it cannot be repeated: {error.message}"))
        state.checks.append(
            Check("figures", WRONG, 0, 0, "the comparison cannot be repeated from what the bundle holds")
        )
        return
    recorded, recomputed = orjson.loads(contents.raw), orjson.loads(again.to_json())
    if null is not None:  # read from the bundle, under another name
        recomputed["settings"]["null"] = recorded["settings"].get("null")
    own = {item.name: item.version for item in contents.manifest.software}
    other = own.get("kinprint") != {item.name: item.version for item in software()}["kinprint"]
    agreement = agree(recorded, recomputed, tolerance=state.tolerance, other_version=other, skip=MAY_DIFFER)
    state.agreement = agreement
    state.problems += [Problem("read", what, "nothing", "asked for now") for what in dict.fromkeys(missing)]
    state.problems += agreement.problems
    bad = len(agreement.problems) + len(missing)
    close = f", {len(agreement.close)} within {state.tolerance:g}" if agreement.close else ""
    said = (
        f"computed anew: {agreement.exact:,} of {agreement.figures:,} figures equal to the last bit{close}; "
        f"{agreement.other_values - len(agreement.other_differ):,} of {agreement.other_values:,} other values equal"
    )
    total = agreement.figures + agreement.other_values
    state.checks.append(Check("figures", WRONG if bad else PASSED, total, total - len(agreement.problems), said))


def _replay(contents: _Contents, found: Found, null: bytes | None) -> tuple[Report, list[str]]:
    report, chosen = contents.report, contents.report.settings
    options = Options(
        rows=chosen.rows,
        experts=chosen.experts,
        layers=chosen.layers,
        roles=chosen.roles,
        metrics=chosen.metrics,
        seed=chosen.seed,
    )
    inquiry = Inquiry(
        controls=chosen.controls,
        related=chosen.related,
        parents=chosen.parents,
        deep=chosen.deep,
        methods=chosen.methods,
    )
    session = ReplaySession(
        contents.sources.record, found.kept, budget_bytes=chosen.budget_bytes, files=chosen.files, bases=chosen.bases
    )
    with tempfile.TemporaryDirectory(prefix="kinprint-") as folder, session:
        if null is not None:
            file = Path(folder) / NULL
            file.write_bytes(null)
            inquiry = replace(inquiry, null=file)
        return compare(report.a.reference, report.b.reference, options, inquiry, session=session), session.missing


def _versions(manifest: Manifest) -> tuple[str, ...]:
    """Say how what made the bundle differs from what checks it."""
    then = {item.name: item.version for item in manifest.software}
    now = {item.name: item.version for item in software()}
    found = [
        f"{printable(name, 40)} {printable(version, 40)}, here {now[name]}"
        for name, version in then.items()
        if name in now and now[name] != version
    ]
    if manifest.arithmetic != arithmetic():
        found.append("another processor")
    return tuple(found)


# -- the conclusion --------------------------------------------------------------------------------------------------------


def _conclusion(path: Path, contents: _Contents, state: _State, *, offline: bool) -> Verification:
    report, agreement = contents.report, state.agreement or Agreement()
    outcome = (
        FAILED
        if state.problems
        else NOT_CHECKED
        if state.agreement is None
        else IN_PART
        if state.unchecked
        else VERIFIED
    )
    verdict = printable(report.verdict.sentence, 600) if report.verdict else None
    return Verification(
        schema=verification.SCHEMA,
        schema_version=verification.SCHEMA_VERSION,
        bundle=path.name,
        digest=printable(contents.manifest.digest, 64),
        outcome=outcome,
        sentence=_sentence(outcome, state, agreement, offline=offline),
        a=printable(report.a.reference),
        b=printable(report.b.reference),
        verdict=verdict,
        offline=offline,
        checks=tuple(state.checks),
        figures=agreement.figures,
        exact=agreement.exact,
        close=len(agreement.close),
        differ=len(agreement.differ),
        other_values=agreement.other_values,
        other_differ=len(agreement.other_differ),
        tolerance=state.tolerance,
        versions=state.versions,
        problems=tuple(state.problems[:MOST_SHOWN]),
        problems_in_all=len(state.problems),
        close_figures=tuple(agreement.close[:MOST_SHOWN]),
        unchecked=tuple(state.unchecked[:MOST_SHOWN]),
    )


def _sentence(outcome: str, state: _State, agreement: Agreement, *, offline: bool) -> str:
    if outcome == FAILED:
        first = state.problems[0]
        more = f" and {len(state.problems) - 1:,} more" if len(state.problems) > 1 else ""
        return f"Verification failed: {len(state.problems):,} differences, {first.kind} {first.where}{more}."
    if outcome == NOT_CHECKED:
        reason = "; ".join(dict.fromkeys(item.reason for item in state.unchecked[:3]))
        return f"The archive is sound, but its figures could not be checked: {reason}."
    figures = f"{agreement.figures:,} figures computed anew agree"
    if agreement.close:
        figures += f", {len(agreement.close):,} of them within rounding ({state.tolerance:g})"
    if outcome == IN_PART:
        return f"Verified from the enclosed bytes, except that not all sources could be asked: {figures}."
    if offline:
        return f"Verified from the enclosed bytes: {figures}. That these are the models' bytes was not checked (--offline)."
    return f"Verified: all ranges are as recorded, and {figures}."


def _quiet(_stage: str, _done: int, _total: int) -> None:
    pass
