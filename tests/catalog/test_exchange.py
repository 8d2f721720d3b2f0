"""Exports: written, merged, signed; damaged, forged and hostile ones are refused whole."""

import hashlib
from dataclasses import replace

import orjson
import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from kinprint.catalog import exchange
from kinprint.catalog.exchange import export_catalog, import_catalog
from kinprint.catalog.sqlite import SqliteCatalog
from kinprint.errors import FormatError, KinprintError, NotFound, SchemaError, StorageError
from kinprint.fingerprints.file import FILE_CAP
from support.catalogs import make_item


@pytest.fixture
def full(tmp_path):
    with SqliteCatalog(tmp_path / "full.db") as catalog:
        catalog.add_all([make_item(seed, vectors={}) for seed in range(5)])
        yield catalog


@pytest.fixture
def empty(tmp_path):
    with SqliteCatalog(tmp_path / "empty.db") as catalog:
        yield catalog


@pytest.fixture
def exported(full, tmp_path):
    target = tmp_path / "models.kcat"
    export_catalog(full, target)
    return target


def rewritten(path, change):
    """Change the list of (line, fingerprint) pairs of an export, and give it a digest that fits."""
    raw = path.read_bytes()
    head, _, rest = raw.partition(b"\n")
    entries = []
    while True:
        line, _, rest = rest.partition(b"\n")
        told = orjson.loads(line)
        if "entries" in told:
            break
        entries.append((told, rest[: told["bytes"]]))
        rest = rest[told["bytes"] :]
    change(entries)
    body = head + b"\n" + b"".join(orjson.dumps(told) + b"\n" + data for told, data in entries)
    last = {"entries": len(entries), "sha256": hashlib.sha256(body).hexdigest(), "signature": None}
    path.write_bytes(body + orjson.dumps(last) + b"\n")


def test_an_export_comes_back_whole(full, empty, exported, tmp_path):
    done = import_catalog(empty, exported)
    assert (done.entries, done.added, done.signature) == (5, 5, "none")
    assert list(empty.entries()) == list(full.entries())
    for entry in full.entries():
        assert empty.fingerprint(entry.key) == full.fingerprint(entry.key)
    assert list(empty.check()) == []
    again = export_catalog(empty, tmp_path / "again.kcat")
    assert again.digest == done.digest
    assert (tmp_path / "again.kcat").read_bytes() == exported.read_bytes()


def test_a_part_of_a_catalog(full, empty, tmp_path):
    assert export_catalog(full, tmp_path / "part", contains="model-3").entries == 1
    import_catalog(empty, tmp_path / "part")
    assert [entry.name for entry in empty.entries()] == ["maker/model-3"]


def test_merging_keeps_what_is_there_unless_told_otherwise(empty, exported):
    own = make_item(9, name="maker/model-1", revision=make_item(1).entry.revision, vectors={})
    empty.add(*own)
    assert import_catalog(empty, exported).added == 4
    assert empty.find("maker/model-1") == own.entry
    assert import_catalog(empty, exported).added == 0
    assert import_catalog(empty, exported, replace=True).added == 5
    assert empty.find("maker/model-1") == make_item(1).entry
    assert empty.count() == 5


def test_progress_and_published_digest(empty, exported):
    told = []
    done = import_catalog(empty, exported, tell=lambda *step: told.append(step))
    assert len(told) == 5
    assert all(stage == "importing" and 0 < at <= total for stage, at, total in told)
    assert import_catalog(empty, exported, digest=f"sha256:{done.digest.upper()}".replace("SHA", "sha")).added == 0
    with pytest.raises(FormatError, match="its digest is"):
        import_catalog(empty, exported, digest="0" * 64)


@pytest.mark.parametrize("cut", [0, 1, 40, 200, 700, -1, -2, -30, -100])
def test_a_truncated_export_imports_nothing(empty, exported, cut):
    exported.write_bytes(exported.read_bytes()[:cut])
    with pytest.raises(FormatError, match=r"models\.kcat"):
        import_catalog(empty, exported)
    assert empty.count() == 0


def test_every_flipped_bit_is_found(empty, exported):
    whole = exported.read_bytes()
    end = whole.rindex(b"\n", 0, -1)
    for at in range(0, len(whole), 23):
        exported.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        if at <= end or b'"signature":null' not in exported.read_bytes():
            with pytest.raises((FormatError, SchemaError)):
                import_catalog(empty, exported)
            assert empty.count() == 0, at


def test_bytes_after_the_end_are_refused(empty, exported):
    exported.write_bytes(exported.read_bytes() + b"more")
    with pytest.raises(FormatError, match="last line"):
        import_catalog(empty, exported)
    assert empty.count() == 0


def _set(field, value):
    def change(entries):
        entries[2][0]["record"][field] = value

    return change


def _size(value):
    def change(entries):
        entries[2][0]["bytes"] = value

    return change


def _other_fingerprint(entries):
    entries[2] = (entries[2][0], entries[3][1])


def _without_record(entries):
    entries[2][0].pop("record")


def _changed_fingerprint(entries):
    """A fingerprint changed after it was made, with the key that fits the new bytes: its own digest does not."""
    told, data = entries[2]
    data = data[:-1] + bytes([data[-1] ^ 1])
    told["record"]["key"] = hashlib.sha256(data).hexdigest()
    entries[2] = (told, data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("name", "a\x1b]0;x\x07"), "can be shown"),
        (_set("name", "../../etc/passwd\n"), "can be shown"),
        (_set("name", "famous/model"), "name is famous/model in its record"),
        (_set("name", 7), "expected str"),
        (_set("layers", 10**9), "got 1000000000"),
        (_set("layers", True), "expected int"),
        (_set("layers", 9), "layers is 9 in its record and 4 in its fingerprint"),
        (_set("hidden", 2**60), "hidden is"),
        (_set("parameters", -5), "parameters is -5"),
        (_set("files", [["a", "b"]]), "files is"),
        (_set("files", [["a"]]), "cannot be read"),
        (_set("files", [["x", "y"]] * 20_000), "20000 files"),
        (_set("declared_bases", ["x" * 5000]), "more than 300 letters"),
        (_set("revision", "f" * 40), "revision is f"),
        (_set("key", "0" * 64), "SHA-256 is not the key"),
        (_set("key", "../../x"), "no SHA-256"),
        (_set("added", "now"), "expected a time"),
        (_size(-1), "a fingerprint of -1 bytes"),
        (_size(10**18), "a fingerprint of 1000000000000000000 bytes"),
        (_size(FILE_CAP + 1), "bytes, expected 1 to"),
        (_size(1.5), "a fingerprint of 1.5 bytes"),
        (_size("9" * 500), "a fingerprint of '999"),
        (_size(FILE_CAP), "SHA-256 is not the key"),
        (_other_fingerprint, "SHA-256 is not the key"),
        (_changed_fingerprint, "the digest does not match"),
        (_without_record, "a fingerprint of"),
    ],
)
def test_hostile_entries_with_a_fitting_digest_are_refused(empty, exported, change, said):
    rewritten(exported, change)
    empty.add(*make_item(70, vectors={}))
    with pytest.raises(FormatError, match=said) as caught:
        import_catalog(empty, exported)
    assert str(caught.value).isprintable() or "\n  next:" in str(caught.value)
    assert [entry.name for entry in empty.entries()] == ["maker/model-70"]


def test_no_memory_is_taken_for_a_size_that_is_only_claimed(empty, exported, monkeypatch):
    asked = []
    read = exchange._Hashed.read
    monkeypatch.setattr(exchange._Hashed, "read", lambda self, count: (asked.append(count), read(self, count))[1])
    rewritten(exported, _size(10**15))
    with pytest.raises(FormatError):
        import_catalog(empty, exported)
    assert max(asked) < 10_000


def test_two_entries_of_one_name_in_a_file(empty, exported):
    rewritten(exported, lambda entries: entries.append(entries[0]))
    done = import_catalog(empty, exported)
    assert (done.entries, done.added) == (6, 5)


def test_other_files_and_newer_versions(empty, tmp_path):
    file = tmp_path / "x"
    for raw, error, said in (
        (b"hello\n", FormatError, "not JSON"),
        (b"[]\n", FormatError, "not an object"),
        (b"{}\n", FormatError, "no export of a catalog"),
        (b'{"schema":"kinprint.catalog","schema_version":2}\n', SchemaError, "version 2, expected 1"),
        (b"[" * 60_000 + b"\n", FormatError, "opening brackets"),
        (b"a" * 100_000, FormatError, "truncated or no export"),
        (b"", FormatError, "truncated"),
    ):
        file.write_bytes(raw)
        with pytest.raises(error, match=said):
            import_catalog(empty, file)
    with pytest.raises(NotFound, match="no such file"):
        import_catalog(empty, tmp_path / "none")
    with pytest.raises(NotFound, match="is a folder"):
        import_catalog(empty, tmp_path)


def test_a_damaged_entry_is_not_exported_and_named(full, empty, tmp_path):
    full._db.execute("UPDATE fingerprints SET data = x'00' WHERE id = 3")
    done = export_catalog(full, tmp_path / "x")
    assert done.entries == 4
    assert [(item.key, item.name) for item in done.skipped] == [(make_item(2).entry.key, "maker/model-2")]
    assert "is damaged" in done.skipped[0].what
    assert import_catalog(empty, tmp_path / "x").added == 4
    assert [entry.name for entry in empty.entries()] == [f"maker/model-{n}" for n in (0, 1, 3, 4)]


def test_an_entry_that_is_removed_meanwhile_is_not_exported(full, tmp_path, monkeypatch):
    gone, stored = make_item(2).entry.key, full.all_stored

    def then_gone(contains=""):
        found = list(stored(contains))
        full.remove(gone)
        return iter(found)

    monkeypatch.setattr(full, "all_stored", then_gone)
    done = export_catalog(full, tmp_path / "x")
    assert (done.entries, done.skipped) == (4, ())


def test_nothing_is_exported_over_the_catalog(full, tmp_path):
    with pytest.raises(StorageError, match="part of the catalog"):
        export_catalog(full, tmp_path / "full.db")
    assert full.count() == 5


def test_an_export_is_checked_without_a_catalog(exported):
    exchange.check_export(exported)
    with pytest.raises(FormatError, match="expected 0000"):
        exchange.check_export(exported, digest="0" * 64)
    exported.write_bytes(exported.read_bytes()[:-9])
    with pytest.raises(FormatError):
        exchange.check_export(exported)


def test_an_export_is_written_whole_or_not_at_all(full, tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exchange._Hashed, "write", full_disk)
    with pytest.raises(StorageError, match="No space left"):
        export_catalog(full, tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".", "x"))] == []


# -- signatures ------------------------------------------------------------------------------------------------------------

KINDS = {
    "pem": (forms.PrivateFormat.PKCS8, forms.Encoding.PEM, forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo),
    "openssh": (forms.PrivateFormat.OpenSSH, forms.Encoding.PEM, forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH),
}


def write_keys(folder, kind="pem", private=None, protection=None):
    private = private or ed25519.Ed25519PrivateKey.generate()
    form, encoding, public_encoding, public_form = KINDS[kind]
    own, public = folder / "key", folder / "key.pub"
    own.write_bytes(private.private_bytes(encoding, form, protection or forms.NoEncryption()))
    public.write_bytes(private.public_key().public_bytes(public_encoding, public_form))
    return own, public


@pytest.mark.parametrize("kind", KINDS)
def test_a_signed_export(full, empty, tmp_path, kind):
    private, public = write_keys(tmp_path, kind)
    assert export_catalog(full, tmp_path / "x", key=private).signed
    assert import_catalog(empty, tmp_path / "x").signature == "not checked"
    assert import_catalog(empty, tmp_path / "x", key=public).signature == "valid"


def test_a_signature_of_another_key_or_file_is_refused(full, empty, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    private, public = write_keys(tmp_path / "one")
    _, stranger = write_keys(tmp_path / "two")
    signed = tmp_path / "x"
    export_catalog(full, signed, key=private)
    with pytest.raises(FormatError, match=r"not by the key in key\.pub"):
        import_catalog(empty, signed, key=stranger)
    raw = signed.read_bytes()
    signature = orjson.loads(raw[raw.rindex(b'{"entries"') :])["signature"]
    rewritten(signed, lambda entries: entries.pop())
    raw = signed.read_bytes().replace(b'"signature":null', b'"signature":"' + signature.encode() + b'"')
    signed.write_bytes(raw)
    assert import_catalog(empty, signed).signature == "not checked"
    empty.remove(next(empty.entries()).key)
    count = empty.count()
    with pytest.raises(FormatError, match="not by the key"):
        import_catalog(empty, signed, key=public)
    assert empty.count() == count
    signed.write_bytes(raw.replace(signature.encode(), b"ed25519:nonsense!"))
    with pytest.raises(FormatError, match="not by the key"):
        import_catalog(empty, signed, key=public)
    export_catalog(full, signed)
    with pytest.raises(FormatError, match="is not signed"):
        import_catalog(empty, signed, key=public)


def test_keys_that_cannot_be_used(full, empty, tmp_path):
    protected, _ = write_keys(tmp_path, protection=forms.BestAvailableEncryption(b"word"))
    with pytest.raises(FormatError, match="without a passphrase"):
        export_catalog(full, tmp_path / "x", key=protected)
    assert not (tmp_path / "x").exists()
    other, public = write_keys(tmp_path, private=ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(FormatError, match="of another kind"):
        export_catalog(full, tmp_path / "x", key=other)
    own, _ = write_keys(tmp_path / ".")
    export_catalog(full, tmp_path / "x", key=own)
    for raw in (b"junk", b"-----BEGIN PUBLIC KEY-----\n", b"\0" * 20_000):
        public.write_bytes(raw)
        with pytest.raises(KinprintError, match=r"key\.pub"):
            import_catalog(empty, tmp_path / "x", key=public)
    with pytest.raises(NotFound, match="cannot read the key"):
        export_catalog(full, tmp_path / "y", key=tmp_path / "none")


def test_records_compare_whole(full):
    first = next(full.entries())
    assert replace(first, licence="x") != first
