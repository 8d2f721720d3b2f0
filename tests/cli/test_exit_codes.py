"""Every documented exit code, once; messages on stderr, nothing on stdout, no secret anywhere."""

import json
import resource
import signal
import subprocess
import time

import pytest

from support.hub import Fault

TOKEN = "hf_SeCrEtToKeNvAlUe1234567890"


def failed(done, code, *words, hint=True):
    assert done.code == code, (done.out, done.err)
    assert done.out == ""
    assert "error:" in done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err
    if hint:
        assert "  next: " in done.err


def test_2_wrong_usage(inside, demo):
    for arguments in (
        ("compare", demo / "base"),
        ("nonsense",),
        ("compare", demo / "base", demo / "base", "--rows", "0"),
        ("compare", demo / "base", demo / "base", "--budget", "lots"),
    ):
        done = inside(*arguments)
        assert (done.code, done.out) == (2, "")
        assert "Error: " in done.err
    failed(inside("compare", demo / "base", demo / "base", "--metrics", "cosin"), 2, "did you mean 'cosine'?")
    failed(inside("compare", demo / "base", demo / "base", "--roles", "inputnorm"), 2, "did you mean 'input_norm'?")
    failed(inside("compare", demo / "base", demo / "base", "--layers", "x"), 2, "0,5,10-20", hint=False)


def test_3_no_such_model(inside, demo_hub, demo, tmp_path):
    env = {"HF_ENDPOINT": demo_hub.endpoint}
    failed(inside("inspect", "demo/none", env=env), 3, "demo/none")
    failed(inside("inspect", "demo/base@none", env=env), 3, "none")
    failed(inside("compare", demo / "base", tmp_path / "none"), 3, "none")


def test_4_access_denied(inside, demo_hub):
    env = {"HF_ENDPOINT": demo_hub.endpoint}
    failed(inside("inspect", "demo/gated", env=env), 4, "demo/gated")
    assert inside("inspect", "demo/gated", env=env | {"HF_TOKEN": "hf_right"}).code == 0


def test_5_server_trouble(inside, demo_hub):
    demo_hub.add_fault(Fault(kind="garbage", match="/resolve/", times=None))
    demo_hub.add_fault(Fault(kind="redirect-loop", match="/api/models", times=None))
    failed(inside("inspect", "demo/base", env={"HF_ENDPOINT": demo_hub.endpoint}), 5, hint=False)


def test_5_offline(inside, demo_hub):
    failed(inside("inspect", "demo/base", "--offline", env={"HF_ENDPOINT": demo_hub.endpoint}), 5, "offline")
    assert demo_hub.requests == []


def test_codes_outside(kinprint, demo, tmp_path):
    """The process itself ends with these codes too."""
    failed(kinprint("compare", demo / "base", tmp_path / "none"), 3, "none")
    assert kinprint("compare", demo / "base").code == 2


def test_6_malformed_checkpoint(inside, demo, tmp_path):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00not json at all!")
    failed(inside("compare", demo / "base", bad), 6, "bad.safetensors", hint=False)
    failed(inside("inspect", bad), 6, hint=False)


def test_7_nothing_comparable_is_still_reported(inside, demo, narrow, tmp_path):
    done = inside("compare", demo / "base", narrow, "--out", tmp_path / "out", "--format", "json", "--full")
    assert done.code == 7
    assert "error: not one tensor could be compared: residual counts differ: 96 and 48" in done.err
    assert "  next: " in done.err
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    assert report == json.loads(done.out)
    assert report["status"] == "not_comparable"
    shown = inside("compare", demo / "base", narrow, "--format", "table")
    assert shown.code == 7
    assert "Nothing could be compared: " in shown.out


def test_7_by_default_only_where_nothing_was_compared(inside, demo, narrow):
    """A gate decides by what it names alone, as before."""
    pair = (demo / "base", narrow)
    assert inside("compare", *pair, "--exit-code").code == 7
    passed, failed = (inside("compare", *pair, "--fail-on", each) for each in ("derived", "derived,not-testable"))
    assert (passed.code, failed.code) == (0, 7)
    assert "failed on" not in passed.err
    assert "failed on not-testable, exit code 7\n" in failed.err


def test_2_one_meaning_for_the_exit_code(inside, demo):
    done = inside("compare", demo / "base", demo / "base", "--exit-code", "--fail-on", "derived")
    assert done.code == 2
    assert "--fail-on and --exit-code exclude each other" in done.err


def test_7_budget_too_small(inside, demo):
    failed(inside("compare", demo / "base", demo / "base", "--budget", "1kB"), 7, "--budget")


QUICK = ("--layers", "0", "--roles", "input_norm", "--metrics", "l2")


def test_8_unwritable_target(inside, demo, tmp_path):
    (tmp_path / "file").write_text("a file")
    for out in (tmp_path / "file" / "below", tmp_path / "file" / "below" / "that"):
        failed(inside("compare", demo / "base", demo / "base", *QUICK, "--out", out), 8, "cannot write")


def test_8_disk_full(kinprint, demo, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    out = tmp_path / "out"
    # bytecode cut off by the limit would stay behind and break every later start
    whole = {"PYTHONDONTWRITEBYTECODE": "1"}
    done = kinprint("compare", demo / "base", demo / "base", *QUICK, "--out", out, preexec_fn=limit, env=whole)
    failed(done, 8, "cannot write", "report.json")
    assert list(out.iterdir()) == []  # neither a part of a report nor a temporary file


@pytest.mark.parametrize("style", ["json", "table"])
def test_8_stdout_full(kinprint, demo, style):
    with open("/dev/full", "wb") as full:
        done = kinprint("compare", demo / "base", demo / "base", *QUICK, "--format", style, stdout=full)
    failed(done, 8, "stdout")


def interrupt(process, ready):
    deadline = time.monotonic() + 20
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert ready()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=20)  # a reading times out after 30 s, five times over
    return out, error.decode()


@pytest.mark.parametrize("where", ["/api/models", "config.json", "model.safetensors"])
def test_130_interrupt_while_the_hub_is_silent(demo_hub, environment, command, where):
    fault = demo_hub.add_fault(Fault(kind="stall", match=where, times=None))
    process = subprocess.Popen(
        [*command, "compare", "demo/base", "demo/finetune"],
        env=environment | {"HF_ENDPOINT": demo_hub.endpoint},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, error = interrupt(process, lambda: fault.fired > 0)
    assert (process.returncode, out) == (130, b"")
    assert "interrupted" in error
    assert "Traceback" not in error


def test_a_token_is_told_to_nobody(inside, demo_hub, tmp_path):
    env = {"HF_ENDPOINT": demo_hub.endpoint, "HF_TOKEN": TOKEN}
    out = tmp_path / "out"
    runs = [
        inside("compare", "demo/base", "demo/finetune", *QUICK, "--out", out, env=env),
        inside("inspect", "demo/base", "--format", "table", env=env),
        inside("inspect", "demo/gated", env=env),
        inside("inspect", "demo/none", env=env),
        inside("cache", env=env),
    ]
    assert [done.code for done in runs] == [0, 0, 4, 3, 0]
    assert any(item.authorization for item in demo_hub.requests)
    for done in runs:
        assert TOKEN not in done.out + done.err
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path
