"""A real server process: from a form to a stored result, its files, its API, and what strangers may not do."""

import html
import json
import re

import pytest

from kinprint.results.report import Report
from kinprint.text import LANGUAGES


def test_a_comparison_from_form_to_verdict(server, compared):
    page = server.ask(f"/results/{compared}?lang=en")
    assert page.status == 200
    assert "Derived, further training" in page.text
    assert f'action="/results/{compared}/verify"' in page.text
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert "파생" in server.ask(f"/results/{compared}?lang=ko").text
    assert "파생" in server.ask(f"/results/{compared}", **{"Accept-Language": "ko-KR,ko;q=0.9"}).text
    assert f"/results/{compared}" in server.ask("/").text


def test_the_page_is_the_one_that_html_writes_but_for_the_bar(server, compared):
    served = server.ask(f"/results/{compared}?lang=en").text
    written = server.ask(f"/results/{compared}/report.en.html").text
    main = re.compile(r'<main id="main">.*</main>', re.DOTALL)
    assert main.search(served)[0] == main.search(written)[0]
    assert "/verify" not in written
    assert "form-action 'none'" in html.unescape(written)


def test_every_form_can_be_downloaded(server, compared):
    summary = server.ask(f"/api/jobs/{compared}").json["summary"]
    assert {"report.json", "report.en.html", "report.ko.md", "report.csv", "report.sarif", "bundle.zip"} <= {
        *summary["files"]
    }
    for name in summary["files"]:
        reply = server.ask(f"/results/{compared}/{name}")
        assert reply.status == 200, name
        assert reply.headers["Content-Disposition"].startswith("attachment"), name
        assert len(reply.body) > 500, name
    report = Report.from_json(server.ask(f"/api/results/{compared}").body)
    assert (report.verdict.class_, report.verdict.kind) == ("derived", "fine_tuned")
    assert str(server.folder) not in report.to_json().decode()  # nothing of this machine's folders


@pytest.mark.parametrize(
    "name", ["page.en.html", "../state.sqlite3", "..%2f..%2fstate.sqlite3", "%2e%2e/x", "nothing", "bundle.zip%00"]
)
def test_no_other_file_can_be_had(server, compared, name):
    assert server.ask(f"/results/{compared}/{name}").status == 404


def test_what_a_job_tells_is_stored_and_can_be_read_again_from_any_event(server, compared):
    stream = server.ask(f"/api/jobs/{compared}/events")
    assert stream.headers["Content-Type"].startswith("text/event-stream")
    told = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]
    assert told[0]["state"] == "queued"
    assert told[-1]["state"] == "done"
    shares = [item["share"] for item in told if "share" in item]
    assert shares == sorted(shares)
    assert len(shares) > 3
    later = server.ask(f"/api/jobs/{compared}/events", **{"Last-Event-ID": str(len(told) - 1)}).text
    assert later.count("data: ") == 1
    assert server.ask(f"/jobs/{compared}").status == 303  # done: leads to the result


def test_verification_with_one_request(server, compared):
    assert "not been verified" in server.ask(f"/results/{compared}/verification?lang=en").text
    reply = server.ask(f"/results/{compared}/verify", form={})
    assert reply.status == 303
    job = server.ended(reply.headers["Location"].partition("?")[0].rpartition("/")[2])
    assert (job["state"], job["summary"]["outcome"]) == ("done", "verified")
    for lang, word in zip(LANGUAGES, ("Verified", "검증"), strict=True):
        assert word in server.ask(f"/results/{compared}/verification?lang={lang}").text
    assert server.ask(f"/api/results/{compared}/verification").json["outcome"] == "verified"


def test_badge_and_citation(server, compared):
    badge = server.ask(f"/results/{compared}/badge.svg?lang=en")
    assert badge.headers["Content-Type"] == "image/svg+xml"
    assert "Derived, further training" in badge.text
    assert badge.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    cite = server.ask(f"/results/{compared}/cite?lang=en").text
    assert f"{server.base}/results/{compared}/badge.svg" in cite
    assert "@misc{kinprint-" in cite


def test_what_cannot_be_compared_says_why_and_frees_its_place(server):
    job = server.ended(server.start("owner/does-not-exist", "base"), 90)
    assert job["state"] == "failed"
    assert job["error"]["message"]
    page = server.ask(f"/jobs/{job['id']}").text
    assert 'id="failed"' in page
    assert server.ask(f"/results/{job['id']}").status == 404
    assert server.ended(server.start("base", "grown"))["state"] == "done"


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../base", "http://127.0.0.1/x", "<script>alert(1)</script>", "base\x00"]
)
def test_names_that_may_not_be_asked_for(server, name):
    reply = server.ask("/compare", form={"a": name, "b": "base"})
    assert reply.status == 400
    assert "<script>alert" not in reply.text


def test_a_job_can_be_cancelled_while_it_waits(server):
    ids = [server.start("base", "finetune") for _ in range(3)]
    assert server.ask(f"/jobs/{ids[2]}/cancel", form={}).status == 303
    assert server.ask(f"/api/jobs/{ids[2]}").json["state"] == "cancelled"
    assert server.ask(f"/jobs/{ids[0]}/cancel", form={}).status == 303  # which runs, or is done
    assert server.ended(ids[0])["state"] in ("cancelled", "done")
    assert server.ended(ids[1])["state"] == "done"


def test_programs_need_a_key_to_start_something(server, compared):
    pair = {"a": "base", "b": "unrelated"}
    assert server.ask("/api/compare", pair).status == 401
    assert server.ask("/api/compare", pair, Authorization="Bearer kin_wrong").status == 401
    key = {"Authorization": f"Bearer {server.key()}"}
    reply = server.ask("/api/compare", pair, **key)
    assert reply.status == 202
    job = server.ended(reply.json["id"])
    assert job["summary"]["class"] == "no_evidence"
    assert compared in {found["id"] for found in server.ask("/api/results").json}
    assert server.ask("/api/compare", {"a": "base", "b": "/etc"}, **key).status == 400
    assert server.ask("/api/compare", {"a": "base"}, **key).status == 422
    assert server.ask("/api/compare", b"{", **key).status == 422
    assert server.ask(f"/api/jobs/{compared}/cancel", {}, **key).status == 403  # somebody else's
    assert key["Authorization"][7:] not in "".join(server.lines)


def test_pages_of_other_sites_start_nothing(server):
    before = server.ask("/api/results").json
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert server.ask("/compare", form={"a": "base", "b": "grown"}, **headers).status == 403
    assert server.ask("/", Host="evil.example").status == 421
    assert server.ask("/api/results").json == before


@pytest.mark.parametrize(
    "path", ["/nothing", "/jobs/0123456789abcdef", "/jobs/x", "/results/../state", "/assets/x.js", "/api/jobs/zzz"]
)
def test_what_is_not_there_is_404(server, path):
    assert server.ask(path).status == 404


def test_koreans_are_told_in_korean_what_programs_can_ask_for_and_what_is_not_there(server):
    calls = server.ask("/api?lang=ko").text
    assert all(path in calls for path in server.ask("/api/openapi.json").json["paths"])
    assert "Return" not in calls
    assert "두 모델의 비교를 대기열에 넣습니다." in calls
    assert "해당 페이지가 없습니다" in server.ask("/nothing?lang=ko").text


def test_a_result_leads_to_its_models(server, compared):
    page = server.ask(f"/results/{compared}?lang=en").text
    for name in ("base", "finetune"):
        assert f'<a href="/models/{name}?lang=en">' in page
        assert server.ask(f"/models/{name}").status == 200


def test_the_next_step_is_told_in_the_language_of_the_page(server):
    refused = server.ask("/compare?lang=ko", form={"a": "/etc", "b": "base"})
    assert (refused.status, "허브의 모델 페이지 주소로 지정합니다" in refused.text) == (400, True)
