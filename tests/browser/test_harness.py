"""The harness itself: it sees every kind of trouble that the other tests rely on it to see."""

HEAD = "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>t</title>%s</head><body><main><h1>h</h1>"
POLICY = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"


def page(folder, body, head=""):
    path = folder / "page.html"
    path.write_text(f"{HEAD % head}{body}</main></body></html>", encoding="utf-8")
    return path


def test_a_quiet_page_has_no_problems(watch, tmp_path, violations, overflow):
    found = watch(page(tmp_path, "<p>x</p>"), bypass_csp=True)
    assert violations(found.page) == []
    assert overflow(found.page) == (0, [])
    assert found.problems == []


def test_requests_are_blocked_and_seen(watch, tmp_path):
    (tmp_path / "near.js").write_text("window.ran = true")
    body = "<img src='http://127.0.0.1:9/x.png' alt='x'><script src='near.js'></script>"
    body += "<script>fetch('http://127.0.0.1:9/y').catch(() => 0)</script>"
    found = watch(page(tmp_path, body))
    found.page.wait_for_timeout(200)
    asked = " ".join(found.requests)
    assert all(name in asked for name in ("x.png", "near.js", "/y"))
    assert found.page.evaluate("window.ran") is None


def test_errors_messages_and_dialogs_are_seen(watch, tmp_path):
    body = "<script>console.warn('careful'); alert('hello'); throw new Error('broken')</script>"
    found = watch(page(tmp_path, body))
    assert found.messages == ["warning: careful"]
    assert found.dialogs == ["hello"]
    assert [text for text in found.errors if "broken" in text]
    assert len(found.problems) == 3


def test_a_broken_policy_is_seen(watch, tmp_path):
    found = watch(page(tmp_path, "<script>window.ran = 1</script>", POLICY))
    assert found.page.evaluate("window.ran") is None
    assert [text for text in found.messages if "Content Security Policy" in text]


def test_axe_sees_a_violation_behind_a_policy(watch, tmp_path, violations):
    body = "<button></button><p style='color:#ccc;background:#fff'>faint</p>"
    found = watch(page(tmp_path, body, POLICY), bypass_csp=True)
    seen = violations(found.page)
    assert any("button-name" in line for line in seen)
    assert any("color-contrast" in line for line in seen)


def test_overflow_is_seen(watch, tmp_path, overflow):
    found = watch(page(tmp_path, "<div style='width:2000px'>wide</div>"), width=360)
    wide, elements = overflow(found.page)
    assert wide > 1600
    assert elements[0].startswith("div")
