"""Take settings from the environment: the variables of the hub's official client, and a few of kinprint."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kinprint._util.records import dataclass
from kinprint._util.sizes import parse_size
from kinprint.errors import BadReference, BadSetting
from kinprint.refs import is_address, quotable

DEFAULT_ENDPOINT = "https://huggingface.co"
_TRUE = {"1", "on", "yes", "true"}


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach models and where to keep ranges. The token never leaves this object except as a request header."""

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = None
    offline: bool = False
    hub_cache: Path | None = None  # the official client's cache: whole files, read only
    range_cache: Path | None = None  # ours; None switches it off
    range_cache_cap_bytes: int = 4 << 30
    ca_file: str | None = None
    concurrency: int | None = None  # connections at once to one host; None for as many as pay
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 30.0
    attempts: int = 5
    deadline_s: float = 90.0  # for one request over all attempts and hops, and a second more for every 16 kB that come
    retries: int = 200  # of a whole run: a server that keeps failing is not waited for request by request
    backoff_s: float = 0.5
    max_retry_after_s: float = 120.0
    private_servers: frozenset[str] | None = None  # of the own network only these may be asked, as host:port; None: all

    def __post_init__(self) -> None:
        # http.client would quote a header it cannot send, and with it the token, in its error.
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            raise BadSetting("the hub token holds characters that no token has", hint="check HF_TOKEN and its file")
        _check_endpoint(self.endpoint)

    @property
    def connections(self) -> int:
        """Connections at once: with TLS, more than 48 cost more in handshakes than they save in waiting."""
        return self.concurrency or (48 if self.endpoint.startswith("https:") else 96)

    def __repr__(self) -> str:  # a token must not reach a log through a repr
        return f"Settings(endpoint={self.endpoint!r}, token={'set' if self.token else None}, offline={self.offline})"

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE, KINPRINT_CACHE[_SIZE] and KINPRINT_DEADLINE."""
        env = os.environ if env is None else env
        user_cache = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
        hf_home = Path(env.get("HF_HOME") or user_cache / "huggingface").expanduser()
        own = env.get("KINPRINT_CACHE")
        return cls(
            endpoint=(env.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).strip().rstrip("/"),
            token=_find_token(env, hf_home),
            offline=any(env.get(k, "").lower() in _TRUE for k in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")),
            hub_cache=Path(env.get("HF_HUB_CACHE") or hf_home / "hub").expanduser(),
            range_cache=None if own in ("", "off", "0") else Path(own or user_cache / "kinprint").expanduser(),
            range_cache_cap_bytes=_cache_size(env.get("KINPRINT_CACHE_SIZE") or "4GiB"),
            deadline_s=_seconds(env.get("KINPRINT_DEADLINE") or "90"),
            ca_file=env.get("SSL_CERT_FILE") or env.get("REQUESTS_CA_BUNDLE") or env.get("CURL_CA_BUNDLE"),
        )


def _check_endpoint(endpoint: str) -> None:
    if "@" in endpoint:  # where the user name ends is of no interest: the address is not quoted at all
        said = "HF_ENDPOINT holds a user name or password: expected http(s)://host[:port][/path] without any"
        raise BadSetting(said, hint="leave them out of HF_ENDPOINT, and set HF_TOKEN if the hub asks for one")
    parts = urlsplit(endpoint) if is_address(endpoint) else None
    if parts is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        said = f"HF_ENDPOINT is {quotable(endpoint)[:200]!r}: expected an http(s) address, http(s)://host[:port][/path]"
        raise BadSetting(said, hint=f"correct HF_ENDPOINT, or unset it to use {DEFAULT_ENDPOINT}")


def _seconds(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text.strip()) and float(text) > 0.0:
        return float(text)
    said = f"KINPRINT_DEADLINE is {text[:40]!r}: expected seconds, such as 90"
    raise BadSetting(said, hint="correct it, or unset it")


def _cache_size(text: str) -> int:
    try:
        return parse_size(text)
    except BadReference as error:
        hint = "correct KINPRINT_CACHE_SIZE, or unset it for 4 GiB"
        raise BadSetting(f"KINPRINT_CACHE_SIZE: {error.message}", hint=hint) from error


def _find_token(env: Mapping[str, str], hf_home: Path) -> str | None:
    if env.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").lower() in _TRUE:
        return None
    for key in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if env.get(key, "").strip():
            return env[key].strip()
    try:
        stored = Path(env.get("HF_TOKEN_PATH") or hf_home / "token").expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return stored or None
