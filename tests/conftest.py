"""Shared fixtures: a clean environment, a local hub, sessions, and a small plain web server for what a hub never does."""

import gc
import hashlib
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads of several workers would only wait for each other

import numpy as np
import pytest

from kinprint.evidence import controls
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from support import campaign
from support.hub import HubServer
from support.layouts import write_checkpoint
from support.places import ROOT

REPO = "owner/Small-Model"
_LEAKING = (
    "HF_",
    "HUGGING_FACE",
    "TRANSFORMERS_",
    "KINPRINT_",
    "XDG_",
    "SSL_CERT",
    "REQUESTS_CA",
    "CURL_CA",
    "COLUMNS",
)

# A suite started in the background by a shell inherits an ignored SIGINT and would hand it on to the programs whose
# interruption it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# -- what is collected --------------------------------------------------------------------------------------------------

# Nine thousand tests stay until the end: looking through them again and again for garbage takes an eighth of the CPU.
gc.disable()
# Its grammars of addresses, which no schema here asks for, take every worker two seconds.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later search for garbage."""
    gc.freeze()
    gc.enable()


# -- which worker runs what ----------------------------------------------------------------------------------------------

# Files that share what takes long to make (replicas, studies on them, pages of reports): one worker makes it once.
_TOGETHER = ("tests/studies/", "tests/lab/replicas/", "tests/browser/", "tests/serve/")
# Cases by the ten thousand, in tests that share nothing: any worker takes the next.
_APART = ("tests/formats/test_mutants.py", "tests/comparison/test_suspects.py", "tests/sources/test_kills.py")


# Files that change how controls work. In all others a model that many tests compare is controlled once.
_OTHER_CONTROLS = (
    "tests/comparison/test_suspects.py",
    "tests/comparison/test_budget_and_selection.py",
    *(f"tests/evidence/test_{name}.py" for name in ("controls", "row_tests", "rotated_models")),
)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with slow tests first: what is short fills the end, when one worker is done before the other."""
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.slow)
        if item.path.relative_to(ROOT).as_posix() in campaign.FILES:
            item.add_marker(pytest.mark.campaign)
    long = {
        item.path for item in items if any(item.iter_markers("slow")) or item.path.parent.name in ("browser", "real")
    }
    items.sort(key=lambda item: (not item.nodeid.startswith(_TOGETHER), item.path not in long))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep a file's tests on one worker, and those of some folders."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(_APART):
                return nodeid
            return next((folder for folder in _TOGETHER if nodeid.startswith(folder)), nodeid.split("::", 1)[0])

    config.option.loadscopereorder = False  # in the order above
    return ByFile(config, log)


# -- the campaign ----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _counted(request):
    """Report the cases that a test counted, also if it failed."""
    campaign.COUNTS.clear()
    yield
    if request.path.parent.name != "test_support":  # where the judge is shown what it must call a failure
        request.node.user_properties += [("campaign", [*key, count]) for key, count in campaign.COUNTS.items()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many faults were tried, survived and did harm, if any were."""
    counts: Counter[tuple[str, str]] = Counter()
    for report in (found for group in terminalreporter.stats.values() for found in group):
        if not isinstance(report, pytest.TestReport):
            continue
        if report.when == "teardown":
            for part, kind, count in (value for name, value in report.user_properties if name == "campaign"):
                counts[part, kind] += count
        part = campaign.FILES.get(report.nodeid.split("::")[0])
        if part and (report.failed or (report.when == "call" and report.passed)):
            counts[part, "tried"] += 1
            counts[part, "failed"] += report.failed
    if counts:
        lines = campaign.table(counts)
        terminalreporter.section("campaign of faults")
        terminalreporter.write("\n".join(lines) + "\n")
        if kept := os.environ.get("KINPRINT_CAMPAIGN"):
            campaign.keep(Path(kept), lines, campaign.commit())


@pytest.fixture(autouse=True)
def _no_bug_hides(monkeypatch):
    """Let unexpected errors inside a test of the evidence end the comparison: so they are found here."""
    monkeypatch.setattr("kinprint.evidence.attempts.strict", True)


@pytest.fixture(autouse=True)
def _controls_anew(request):
    """Keep what controls found where a test changes how they work from all other tests, and the other way round."""
    apart = request.node.nodeid.startswith(_OTHER_CONTROLS)
    if apart:
        controls._DONE.clear()
    yield
    if apart:
        controls._DONE.clear()


@pytest.fixture(autouse=True)
def _no_forks(monkeypatch):
    """Let no command that runs inside a test fork: it would carry the threads and servers of the test's own process along."""
    monkeypatch.setattr("kinprint.cli.main.allow_forks", lambda: None)


@pytest.fixture(autouse=True)
def _clean_environment(request, monkeypatch):
    """Nothing of the machine's own hub account, proxies or certificates may reach a test, but for those that go out."""
    if request.node.get_closest_marker("real"):
        return
    for name in list(os.environ):
        if name.startswith(_LEAKING) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def model_folder(tmp_path):
    """Two shards, a config and a tokenizer."""
    rng = np.random.default_rng(11)
    tensors = {f"model.layers.{i}.w": rng.standard_normal((64, 64)).astype(np.float32) for i in range(4)}
    folder = tmp_path / "model"
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    write_checkpoint(folder, tensors, config, shards=2, tokenizer={"model": {"vocab": {"a": 0}}})
    return folder


@pytest.fixture
def hub(model_folder):
    with HubServer() as server:
        server.commit = server.add_repo(REPO, model_folder)
        yield server


@pytest.fixture
def settings_for(tmp_path):
    """Build settings for a hub: fast retries, no caches unless asked for."""

    def build(server: HubServer | None = None, **changes) -> Settings:
        base = {"backoff_s": 0.01, "attempts": 3, "concurrency": 16, "read_timeout_s": 5.0}
        if server is not None:
            base["endpoint"] = server.endpoint
        return Settings(**{**base, **changes})

    return build


@pytest.fixture
def session_for(settings_for):
    """Open a session on a hub, closed at the end of the test."""
    opened = []

    def build(server: HubServer | None = None, *, budget_bytes=None, **changes) -> Session:
        session = Session(settings_for(server, **changes), budget_bytes=budget_bytes)
        opened.append(session)
        return session

    yield build
    for session in opened:
        session.close()


class PlainServer:
    """A web folder: ranges, entity tags, no listing. `spoil` may answer a request in place of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[tuple[str, str | None]] = []
        self.spoil: Callable[[BaseHTTPRequestHandler], bool] | None = None
        self.tags = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # head and body in one packet, else each reply waits for a delayed acknowledgement
            disable_nagle_algorithm = True

            def do_GET(self):
                outer.log.append((self.path, self.headers.get("Range")))
                if outer.spoil is None or not outer.spoil(self):
                    outer.serve(self)

            def log_message(self, *args):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                """A client that hangs up is the point of some tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.01), daemon=True)
        self._thread.start()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        path = self.root / request.path.partition("?")[0].lstrip("/")
        if not path.is_file():
            self.reply(request, 404, b"no")
            return
        data = path.read_bytes()
        headers = {"ETag": f'"{hashlib.md5(data).hexdigest()}"'} if self.tags else {}
        asked = request.headers.get("Range")
        if asked is None:
            self.reply(request, 200, data, **headers)
            return
        first, last = (int(text) for text in asked.removeprefix("bytes=").split("-"))
        if first >= len(data):
            self.reply(request, 416, b"", Content_Range=f"bytes */{len(data)}")
            return
        body = data[first : last + 1]
        self.reply(request, 206, body, Content_Range=f"bytes {first}-{first + len(body) - 1}/{len(data)}", **headers)

    @staticmethod
    def reply(request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
        request.send_response(status)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        if "Transfer-Encoding" not in names:
            names.setdefault("Content-Length", str(len(body)))
        for name, value in names.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def web(model_folder):
    server = PlainServer(model_folder)
    yield server
    server.close()
