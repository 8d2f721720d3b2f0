"""Print the outcome of a scan."""

from rich.console import Console

from kinprint.render.content.blocks import WARNING, Line
from kinprint.render.content.cells import count, facts_table, figure, name, table, titled
from kinprint.render.terminal.layout import print_sections
from kinprint.render.texts.words import Words
from kinprint.results.scan import ScanReport

_MOST = 20  # failures that are listed; the catalog has all


def print_scan(report: ScanReport, console: Console, *, lang: str = "en") -> None:
    """Print what was entered, what it took, and what went wrong."""
    words = Words(lang)
    seconds, rate = f"{report.seconds:.1f}", f"{report.per_second:.3g}"
    took = (
        words.say("scan.seconds", s=seconds, rate=rate) if report.read else words.say("scan.seconds_alone", s=seconds)
    )
    facts = {
        "catalog.place": name(report.catalog),
        "scan.wanted": count(report.wanted),
        "scan.added": count(report.added),
        "scan.known": count(report.known),
        "scan.failed_before": count(report.failed_before),
        "scan.failed": count(len(report.failed)),
        "scan.where": name(words.say("scan.place", where=words.engine(report.where).text, n=report.workers)),
        "scan.time": figure(took, report.seconds),
        "scan.cpu": figure(words.say("scan.cpu_seconds", s=f"{report.cpu_seconds:.1f}"), report.cpu_seconds),
        "scan.requests": figure(words.say("scan.with_retries", n=report.requests, m=report.retries), report.requests),
        "scan.network": figure(words.size(report.network_bytes), report.network_bytes),
        "scan.fingerprints": figure(words.size(report.fingerprint_bytes), report.fingerprint_bytes),
    }
    notes = [Line(words.say("scan.interrupted"), WARNING)] if report.interrupted else []
    sections = [titled(facts_table(words, "scan.title", facts), *notes)]
    if report.failed:
        rows = [(name(item.name), name(item.revision), name(item.message)) for item in report.failed[:_MOST]]
        left = len(report.failed) - len(rows)
        more = [Line(words.say("scan.more", n=left))] if left else []
        title = words.say("scan.failed_title")
        sections.append(titled(table(words, title, "model revision- why", rows), *more))
    print_sections(sections, console, words)
