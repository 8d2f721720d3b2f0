"""Describe the outcome of a search in one language: the answer, what was found, what it rests on, what was not compared."""

from kinprint._util.plain import printable
from kinprint.render.content.blocks import FAINT, STRONG, WARNING, Block, Cell, Line, Points, Section, Table
from kinprint.render.content.cells import count, listing, name, titled
from kinprint.render.repeat_command import search_again
from kinprint.render.texts.words import DASH, Words
from kinprint.results.findings import NO_EVIDENCE, NOT_TESTABLE
from kinprint.results.search import LOOK_ALIKE, NAMED, RELATED, FoundModel, SearchReport

_PARTS = 3  # of what agrees, in a row
_COMMIT = 8  # letters of a commit


def title(report: SearchReport) -> str:
    """Return the name of the model that relatives were looked for."""
    return printable(report.query.name, 200)


def label(report: SearchReport, item: FoundModel) -> str:
    """Return the name of an entry, with its commit where the model itself or another entry has that name too."""
    one_of = [report.query.name, *(one.name for one in report.found)].count(item.name)
    return f"{item.name}@{item.revision[:_COMMIT]}" if one_of > 1 and item.revision else item.name


def headline(report: SearchReport, words: Words) -> str:
    """Return the class of the outcome in a few words."""
    alike = any(not item.is_relative for item in report.look_alikes)
    key = report.class_ if report.class_ != NO_EVIDENCE else "only_alike" if alike else "none"
    key = "at_least" if key == RELATED and report.more else key
    related = sum(item.is_relative for item in report.found)
    return words.say(f"search.class.{key}", n=related, entries=_compared(report))


def _compared(report: SearchReport) -> str:
    """Return how many entries the answer speaks of; reports of the first versions do not say which were left out."""
    return f"{report.entries if report.compared is None else report.compared:,}"


def answer_lines(report: SearchReport, words: Words) -> list[Line]:
    """Return the answer: the outcome, its sentence, what it does not say, and its power."""
    found = [Line(headline(report, words), STRONG)]
    if report.class_ != NO_EVIDENCE or report.look_alikes or report.relatives:  # else it says the same
        found.append(Line(words.engine(report.sentence).text))
    if any(item.is_relative for item in report.relatives):
        found.append(Line(words.say("search.related.limits"), FAINT))
    if any(item.verified is None or item.verified.class_ is None for item in report.look_alikes):
        found.append(Line(words.say("search.alike.limits"), WARNING))
    found += [
        Line(words.say("search.named.limits", name=printable(label(report, item), 100)), WARNING)
        for item in report.found
        if item.class_ == NAMED and not item.is_relative
    ]
    if report.power is not None and report.class_ != NOT_TESTABLE:
        found.append(Line(power_line(report, words)))
    if report.not_listed:
        found.append(Line(words.say("search.beyond", n=report.not_listed), WARNING))
    return found


def power_line(report: SearchReport, words: Words) -> str:
    """Say which planted relation this search would have found."""
    power = report.power
    if power is None or power.correlation is None:
        return words.say("search.power.none")
    return words.say("search.power", r=f"{power.correlation:g}", entries=_compared(report))


def agrees(item: FoundModel, words: Words) -> str:
    """Return what agrees, the strongest first; of look-alikes the correlations."""
    if item.class_ == LOOK_ALIKE:
        told = [f"{words.label('search.family', family)} {r:.2f}" for family, r in item.likeness]
        return ", ".join(told) or DASH
    told = list(dict.fromkeys(words.label("test", test.test) for test in item.tests))
    more = [words.say("search.more", n=len(told) - _PARTS)] if len(told) > _PARTS else []
    return ", ".join([*told[:_PARTS], *more]) or DASH


def found_as(item: FoundModel, words: Words) -> str:
    """Return the class of an entry: of the weights where these were compared, else of the fingerprints."""
    if item.verified is not None and item.verified.class_ not in (None, NOT_TESTABLE):
        kind = words.kind(item.verified.kind, None) if item.verified.kind else ""
        told = words.label("class", item.verified.class_)
        return words.say("search.verified", found=f"{told}, {kind}" if kind else told)
    told = words.label("search.class" if item.class_ in (LOOK_ALIKE, NAMED) else "class", item.class_)
    return f"{told}; {words.say(f'search.same.{item.same}')}" if item.same else told


def found_table(report: SearchReport, words: Words) -> Table:
    """Return one row for each entry that was found, best first."""
    return listing(
        words,
        "search.found",
        "model found log_p=log10_p:p agrees built- card licence:name-",
        report.found,
        model=lambda item: name(label(report, item)),
        found=lambda item: Cell(found_as(item, words)),
        agrees=lambda item: Cell(agrees(item, words)),
        built=lambda item: name(f"{item.architecture}, {words.say('head.layers', n=item.layers)}"),
        card=lambda item: Cell(words.say("search.declared" if item.declared else "search.undeclared")),
    )


def tests_table(report: SearchReport, words: Words) -> Table:
    """Return the exact tests that stand, entry by entry."""
    rows = [(item, test) for item in report.relatives for test in item.tests]
    return listing(
        words,
        "search.tests",
        "model test part n# alone# log_p#",
        rows,
        model=lambda row: name(label(report, row[0])),
        test=lambda row: Cell(words.label("test", row[1].test)),
        part=lambda row: Cell(words.part(row[1].scope)),
        n=lambda row: count(row[1].n),
        alone=lambda row: Cell(words.log_p(row[1].log10_p), "figure", row[1].log10_p),
        log_p=lambda row: Cell(words.log_p(row[1].log10_p_search), "figure", row[1].log10_p_search),
    )


def families_table(report: SearchReport, words: Words) -> Table:
    """Return the families of recall vectors: what proposed candidates."""
    return listing(
        words,
        "search.recall",
        "family entries:count candidates:count nearest=last_cosine:number",
        report.families,
        family=lambda item: Cell(words.label("search.family", item.family)),
    )


def verified_lines(report: SearchReport, words: Words) -> list[str]:
    """Return what the comparison of weights said of each entry."""
    return [
        f"{printable(label(report, item), 100)}: {words.engine(item.verified.sentence).text}"
        for item in report.found
        if item.verified is not None
    ]


def needed(report: SearchReport, words: Words, most: int) -> list[str]:
    """Return what a full verdict on what was found needs: commands, or weights that nobody here knows the place of."""
    open_ = [item for item in report.found if item.verified is None or item.verified.class_ is None]
    said = [item.verify for item in open_ if item.verify][:most]
    if open_ and report.query.reference.endswith(".kfp"):
        return [words.say("search.next.weights")]
    if any(not item.verify for item in open_):  # entered from folders, whose paths a catalog does not keep
        count_ = sum(item.class_ != NAMED for item in report.found)
        said.append(search_again(report, ["--verify", str(min(most, max(1, count_))), "--local", "FOLDER"]))
    return said


def missing_lines(report: SearchReport, words: Words, most: int | None = None) -> list[str]:
    """Return which entries could not be compared, and why: the first reasons, or all."""
    found = []
    for item in report.not_compared[:most]:
        names = f" ({', '.join(printable(each, 60) for each in item.names)})" if item.names else ""
        found.append(f"{item.count:,}: {words.engine(item.reason).text}{names}")
    rest = report.not_compared[most:] if most is not None else ()
    return [*found, *([words.say("search.more", n=sum(item.count for item in rest))] if rest else [])]


def search_sections(report: SearchReport, words: Words) -> list[Section]:
    """Return the whole report, the answer first."""
    rest: list[Block] = [families_table(report, words)] if report.families else []
    rest.append(Line(words.say("search.two_stages", candidates=report.candidates, tested=report.tested), FAINT))
    rest.append(
        Line(words.say("search.corrected", entries=f"{report.entries:,}", alpha=f"{report.log10_alpha:g}"), FAINT)
    )
    missing, notes = missing_lines(report, words), [words.engine(note).text for note in report.notes]
    table = found_table(report, words)
    return [
        Section(words.say("search.title", name=title(report)), tuple(answer_lines(report, words))),
        *([titled(table)] if report.found else []),
        Section(words.say("search.verification"), tuple(_points(verified_lines(report, words)))),
        Section(words.say("search.next"), tuple(_points(needed(report, words, len(report.found))))),
        *([titled(tests_table(report, words))] if report.relatives else []),
        Section(words.say("search.recall"), tuple(rest)),
        Section(words.say("search.missing"), tuple(_points(missing))),
        Section(words.say("search.notes"), tuple(_points(notes))),
    ]


def _points(lines: list[str]) -> list[Block]:
    return [Points("", tuple(lines))] if lines else []
