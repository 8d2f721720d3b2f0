"""Sign the digest of an export with an Ed25519 key, and verify it, through the package cryptography (extra `sign`).

A valid signature says that whoever holds the private key vouches for these bytes. It says nothing of who that is, and nothing of
whether the fingerprints are true: compare the key with the one that the maker publishes.
"""

import base64
import binascii
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinprint._util.files import read_whole, remember_in_use
from kinprint.errors import FileTooLarge, FormatError, NotFound, imported

_PREFIX = "ed25519:"
_CONTEXT = b"kinprint catalog export, sha256 "  # what is signed says what it is for: no signature fits anything else
_KEY_CAP = 1 << 14
_MAKE = "ssh-keygen -t ed25519, or openssl genpkey -algorithm ed25519, makes one"


def signer(key: Path) -> Callable[[str], str]:
    """Return what signs a digest with a private key (PEM or OpenSSH, without a passphrase); a key that cannot is refused now."""
    serialization, ed25519 = _library()
    raw = _read(key)
    load = serialization.load_ssh_private_key if b"OPENSSH" in raw else serialization.load_pem_private_key
    try:
        private = load(raw, password=None)
    except (
        TypeError,
        ValueError,
    ) as error:  # a passphrase, or no key: the message of the library may hold parts of the file
        said = f"{key}: no private key that can be read without a passphrase"
        raise FormatError(said, hint=_MAKE) from error
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise FormatError(f"{key}: a key of another kind, expected Ed25519", hint=_MAKE)
    return lambda digest: _PREFIX + base64.b64encode(private.sign(_CONTEXT + digest.encode())).decode()


def verify(digest: str, signature: str, key: Path, label: str) -> None:
    """Refuse a signature that the public key (PEM or OpenSSH) did not make over this digest."""
    serialization, ed25519 = _library()
    raw = _read(key)
    load = serialization.load_pem_public_key if raw.startswith(b"-----") else serialization.load_ssh_public_key
    try:
        public = load(raw)
    except ValueError as error:
        raise FormatError(f"{key}: no public key", hint="expected PEM, or a line 'ssh-ed25519 …'") from error
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise FormatError(f"{key}: a key of another kind, expected Ed25519", hint=_MAKE)
    refused = FormatError(
        f"{label}: the signature is not by the key in {key.name}", hint="get file and key again from their maker"
    )
    try:
        made = base64.b64decode(signature.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise refused from None
    try:
        public.verify(made, _CONTEXT + digest.encode())
    except _invalid():
        raise refused from None


def _library() -> tuple[Any, Any]:
    package = "cryptography.hazmat.primitives"
    what = "a signed export"
    return (
        imported(f"{package}.serialization", what, extra="sign"),
        imported(f"{package}.asymmetric.ed25519", what, extra="sign"),
    )


def _invalid() -> type[Exception]:
    found: type[Exception] = imported("cryptography.exceptions", "a signed export", extra="sign").InvalidSignature
    return found


def _read(key: Path) -> bytes:
    remember_in_use(key, "a key in use")
    try:
        return read_whole(key, _KEY_CAP)
    except FileTooLarge as error:
        raise FormatError(f"{key}: larger than any key", hint=_MAKE) from error
    except OSError as error:
        raise NotFound(f"cannot read the key {key}: {error.strerror}", hint=_MAKE) from error
