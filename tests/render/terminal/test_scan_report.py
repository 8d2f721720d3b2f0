"""What a scan prints: rates of what was read alone."""

import io

import pytest
from rich.console import Console

from kinprint.render.forms import show
from kinprint.results.scan import SCAN_VERSION, ScanFailure, ScanReport


def a_scan(**counts):
    known = {"wanted": 1000, "added": 0, "known": 0, "failed_before": 0, "failed": (), "seconds": 2.0}
    other = {
        "cpu_seconds": 0.0,
        "requests": 0,
        "retries": 0,
        "network_bytes": 0,
        "bytes_read": 0,
        "fingerprint_bytes": 0,
    }
    place = {
        "schema": ScanReport.SCHEMA,
        "schema_version": SCAN_VERSION,
        "catalog": "c.db",
        "where": "here",
        "workers": 1,
    }
    return ScanReport(**(place | known | other | counts))


def printed(report, lang):
    stream = io.StringIO()
    show(report, Console(file=stream, width=120), lang=lang)
    return stream.getvalue()


@pytest.mark.parametrize(("lang", "said"), [("en", "models read a second"), ("ko", "개 읽음")])
def test_a_rate_is_that_of_the_models_that_were_read(lang, said):
    failure = ScanFailure("a/b", None, "FormatError: x")
    resumed = a_scan(known=990, failed_before=4, added=5, failed=(failure,))
    assert resumed.per_second == 2.5
    assert said in printed(resumed, lang)
    nothing = a_scan(known=996, failed_before=4)
    assert nothing.per_second == 0.0
    assert said not in printed(nothing, lang)
    assert "2.0" in printed(nothing, lang)


def test_the_place_is_named_in_korean():
    assert "이 컴퓨터, 동시에 1개" in printed(a_scan(where="this machine"), "ko")
    assert "tcp://host:1, 동시에 1개" in printed(a_scan(where="tcp://host:1"), "ko")


@pytest.mark.parametrize(
    ("error", "shown"), [("BadReference: no such: x", "no such: x"), ("RuntimeError: oh", "RuntimeError: oh")]
)
def test_why_a_model_failed_is_said_without_our_classes(error, shown):
    text = printed(a_scan(failed=(ScanFailure("a/b", None, error),)), "en")
    assert shown in text
    assert "BadReference" not in text
    assert "models read a second" not in text  # none was
