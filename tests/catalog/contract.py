"""What every catalog promises, whatever holds it. A store subclasses `CatalogContract` and gives `open_it`."""

from dataclasses import replace

import numpy as np
import pytest

from kinprint.catalog.entry import Failure
from kinprint.catalog.store import chosen_entry
from kinprint.errors import BadSelection, FormatError, KinprintError, NotFound
from kinprint.fingerprints.recall import FAMILIES, RECALL_VERSION
from support.catalogs import ADDED, make_item, some_vectors

FAMILY = next(iter(FAMILIES))


def keys(catalog):
    return [entry.key for entry in catalog.entries()]


def leaning(vector, towards, share):
    """Return a unit vector whose cosine with `towards` grows with `share`."""
    mixed = (1 - share) * vector.astype(np.float64) + share * towards.astype(np.float64)
    return (mixed / np.linalg.norm(mixed)).astype(np.float32)


class CatalogContract:
    """`open_it(read_only=False)` opens the same catalog, empty at the start of each test."""

    @pytest.fixture
    def catalog(self, open_it):
        with open_it() as opened:
            yield opened

    def test_what_goes_in_comes_out(self, catalog, open_it):
        item = make_item(1, declared_bases=("maker/base",), licence=None)
        assert catalog.add(*item) is True
        with open_it(read_only=True) as other:
            assert list(other.entries()) == [item.entry]
            assert other.fingerprint(item.entry.key) == item.fingerprint
            assert other.get(item.entry.key) == item.entry
            assert other.get(item.entry.key[:12]) == item.entry
            assert other.count() == 1

    def test_a_name_and_revision_stand_there_once(self, catalog):
        first, other = make_item(1), make_item(2, name="maker/model-1", revision=make_item(1).entry.revision)
        assert first.entry.key != other.entry.key
        assert catalog.add(*first)
        assert catalog.add(*first) is False
        assert catalog.add(*other) is False
        assert keys(catalog) == [first.entry.key]
        assert catalog.add(*other, replace=True) is True
        assert keys(catalog) == [other.entry.key]
        with pytest.raises(NotFound):
            catalog.fingerprint(first.entry.key)

    def test_models_without_a_revision_are_known_by_name(self, catalog):
        item = make_item(1, name="base", revision=None)
        assert catalog.add(*item)
        assert not catalog.add(*make_item(2, name="base", revision=None))
        assert catalog.find("base") == item.entry
        assert catalog.get(item.entry.key).revision is None

    def test_a_fingerprint_stands_there_once_under_whatever_name(self, catalog):
        item = make_item(1)
        assert catalog.add(*item)
        assert not catalog.add(*item._replace(entry=replace(item.entry, name="else/where")))
        assert catalog.count() == 1

    def test_finding(self, catalog):
        old, new = make_item(1, name="a/b", revision="1" * 40), make_item(2, name="a/b", revision="2" * 40)
        catalog.add(*old)
        catalog.add(*new)
        catalog.add(*make_item(3, name="Other/Model"))
        assert catalog.find("a/b") == new.entry
        assert catalog.find("a/b", "1" * 40) == old.entry
        assert catalog.find("a/b", "3" * 40) is None
        assert catalog.find("a/c") is None
        assert [entry.name for entry in catalog.entries(contains="other/m")] == ["Other/Model"]
        assert list(catalog.entries(contains="a_b")) == []  # no pattern of the database's
        assert list(catalog.entries(contains="%")) == []

    def test_an_entry_is_chosen_by_name_revision_or_key(self, catalog):
        old, new = make_item(1, name="a/b", revision="1" * 40), make_item(2, name="a/b", revision="2" * 40)
        catalog.add_all([old, new])
        assert chosen_entry(catalog, "a/b") == new.entry
        assert chosen_entry(catalog, f"a/b@{'1' * 40}") == old.entry
        assert chosen_entry(catalog, old.entry.key[:8]) == old.entry
        with pytest.raises(NotFound, match="no entry 'a/c'"):
            chosen_entry(catalog, "a/c")
        with pytest.raises(NotFound, match="no entry with the key"):
            chosen_entry(catalog, "0" * 8)
        with pytest.raises(BadSelection, match="2 entries or more"):
            catalog.get("")

    def test_removing(self, catalog):
        one, two = make_item(1), make_item(2)
        catalog.add_all([one, two])
        catalog.remove(one.entry.key)
        assert keys(catalog) == [two.entry.key]
        assert {found.key for found in catalog.nearest(one.vectors, 5)} == {two.entry.key}
        with pytest.raises(NotFound):
            catalog.remove(one.entry.key)
        assert catalog.add(*one)
        assert {found.key for found in catalog.nearest(one.vectors, 1)} == {one.entry.key}

    def test_many_are_added_together_or_not_at_all(self, catalog):
        good, bad = make_item(1), make_item(2)._replace(fingerprint=b"something else")
        with pytest.raises(FormatError, match="SHA-256"):
            catalog.add_all([good, bad])
        assert catalog.count() == 0
        assert catalog.add_all([good, make_item(3), good]) == 2
        assert catalog.count() == 2

    def test_an_interrupt_in_the_middle_leaves_nothing(self, catalog):
        def items():
            yield make_item(1)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            catalog.add_all(items())
        assert catalog.count() == 0
        assert catalog.add(*make_item(1))

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"name": "a\x1b[31m"}, "can be shown"),
            ({"name": "a\u202eb"}, "can be shown"),
            ({"name": " "}, "can be shown"),
            ({"name": "x" * 301}, "can be shown"),
            ({"revision": ""}, "the revision"),
            ({"revision": "a\nb"}, "the revision"),
            ({"layers": -1}, "layers is -1"),
            ({"parameters": 10**17}, "parameters is"),
            ({"files": (("a", "b"),) * 10_001}, "10001 files"),
            ({"declared_bases": ("a\x00",)}, "cannot be shown"),
            ({"licence": "\n"}, "cannot be shown"),
            ({"added": "yesterday"}, "expected a time"),
        ],
    )
    def test_absurd_records_are_refused(self, catalog, change, said):
        item = make_item(1)
        with pytest.raises(FormatError, match=said):
            catalog.add(*item._replace(entry=replace(item.entry, **change)))
        assert catalog.count() == 0

    @pytest.mark.parametrize(
        ("vector", "said"),
        [
            (np.ones(7, np.float32), "of 7 values"),
            (np.ones((2, 2), np.float32), "of 2×2 values"),
            (np.full(FAMILIES[FAMILY], np.nan, np.float32), "length nan"),
            (np.full(FAMILIES[FAMILY], 2.0, np.float32), "expected 1"),
            (np.zeros(FAMILIES[FAMILY], np.float32), "length 0"),
        ],
    )
    def test_vectors_of_other_widths_or_lengths_are_refused(self, catalog, vector, said):
        with pytest.raises(FormatError, match=said):
            catalog.add(*make_item(1, vectors={FAMILY: vector}))
        with pytest.raises(FormatError, match="nonsense"):
            catalog.add(*make_item(1, vectors={"nonsense": np.ones(4, np.float32) / 2}))
        assert catalog.count() == 0

    def test_the_nearest_of_each_family_best_first(self, catalog):
        query = some_vectors(99)
        shares = {5: 0.9, 2: 0.7, 7: 0.5}
        items = []
        for seed in range(1, 10):
            own = some_vectors(seed)
            leant = {name: leaning(own[name], query[name], shares.get(seed, 0.0)) for name in FAMILIES}
            items.append(make_item(seed, vectors=leant))
        catalog.add_all(items)
        names = {item.entry.key: item for item in items}
        found = catalog.nearest(query, 3)
        for family in FAMILIES:
            near = [one for one in found if one.family == family]
            assert [names[one.key].entry.name for one in near] == [f"maker/model-{n}" for n in (5, 2, 7)]
            for one in near:
                exact = float(names[one.key].vectors[family].astype(np.float64) @ query[family].astype(np.float64))
                assert one.cosine == pytest.approx(exact, abs=1e-6)

    def test_excluded_entries_leave_their_places_to_others(self, catalog):
        items = [make_item(seed) for seed in range(1, 8)]
        catalog.add_all(items)
        query = items[0].vectors
        before = [one.key for one in catalog.nearest(query, 7) if one.family == FAMILY]
        after = catalog.nearest(query, 3, exclude=before[:2])
        assert [one.key for one in after if one.family == FAMILY] == before[2:5]

    def test_a_family_that_is_absent_is_not_zero(self, catalog):
        """An entry without a family is no candidate in it; a query without one gets none."""
        other = next(name for name in FAMILIES if name != FAMILY)
        catalog.add(*make_item(1, vectors=some_vectors(1, other)))
        catalog.add(*make_item(2, vectors=some_vectors(2, FAMILY)))
        catalog.add(*make_item(3, vectors={}))
        found = catalog.nearest(some_vectors(2), 5)
        assert {(one.key, one.family) for one in found} == {
            (make_item(1).entry.key, other),
            (make_item(2).entry.key, FAMILY),
        }
        assert catalog.nearest({}, 5) == []

    def test_recall_in_an_empty_catalog(self, catalog):
        assert catalog.nearest(some_vectors(1), 5) == []

    def test_what_is_added_later_is_found_too(self, catalog, open_it):
        catalog.add(*make_item(1))
        catalog.nearest(some_vectors(1), 2)
        with open_it() as other:
            other.add(*make_item(2))
        assert catalog.nearest(make_item(2).vectors, 1)[0].key == make_item(2).entry.key
        with open_it() as other:
            other.remove(make_item(2).entry.key)
        assert catalog.nearest(make_item(2).vectors, 1)[0].key == make_item(1).entry.key

    def test_others_write_until_a_new_index_begins(self, catalog, open_it, monkeypatch):
        """What was added or removed just before is indexed, or not missed."""
        catalog.add(*make_item(1))
        catalog.add(*make_item(2))
        writing = catalog._writing

        def late():
            monkeypatch.undo()
            with open_it() as other:
                other.remove(make_item(1).entry.key)
                other.add(*make_item(3))
            return writing()

        monkeypatch.setattr(catalog, "_writing", late)
        catalog.reindex()
        assert {entry.key for entry in catalog.entries()} == {make_item(n).entry.key for n in (2, 3)}
        assert not list(catalog.check())

    def test_how_many_lack_some_families(self, catalog):
        for seed, families in enumerate([("norms",), ("gram",), ("tokens",), (), ("norms", "gram"), ("sorted",)]):
            catalog.add(*make_item(seed, vectors=some_vectors(seed, *families) if families else {}))
        catalog.remove(make_item(4).entry.key)
        assert catalog.lacking(["norms", "gram"], 2) == (3, ["maker/model-2", "maker/model-3"])
        beside = {make_item(seed).entry.key for seed in (0, 2, 4)}
        assert catalog.lacking(["norms", "gram"], 5, besides=beside) == (2, ["maker/model-3", "maker/model-5"])
        assert catalog.lacking([], 1) == (5, ["maker/model-0"])

    def test_whether_an_entry_is_of_a_width(self, catalog):
        catalog.add(*make_item(1))
        catalog.add(*make_item(2, hidden=961, licence='"hidden":48,'))
        assert [catalog.has_width(width) for width in (96, 961, 9, 6, 48)] == [True, True, False, False, False]
        assert not catalog.has_width(96, besides={make_item(1).entry.key})

    def test_failures_are_noted_once_and_forgotten_when_it_works(self, catalog):
        failure = Failure("maker/model-1", make_item(1).entry.revision, "TransferError: gave up", ADDED)
        early = Failure("maker/model-1", None, "NotFound: nothing there", ADDED)
        catalog.fail(failure)
        catalog.fail(early)
        catalog.fail(replace(failure, error="TransferError: again"))
        assert catalog.failures() == [early, replace(failure, error="TransferError: again")]
        catalog.add(*make_item(2))
        assert len(catalog.failures()) == 2
        catalog.add(*make_item(1))
        assert catalog.failures() == []

    def test_notes_are_forgotten_by_name_at_a_revision_and_without_one(self, catalog):
        notes = [Failure(name, revision, "E: x", ADDED) for name in ("a/b", "a/c") for revision in (None, "1", "2")]
        for note in notes:
            catalog.fail(note)
        catalog.forget("a/b", "1")
        assert catalog.failures() == notes[2:]
        catalog.forget("a/c")
        catalog.forget("a/nobody")
        assert catalog.failures() == [notes[2], *notes[4:]]

    def test_stats(self, catalog):
        items = [make_item(1), make_item(2, vectors=some_vectors(2, FAMILY)), make_item(3, licence=None)]
        catalog.add_all(items)
        catalog.fail(Failure("x/y", None, "NotFound: z", ADDED))
        found = catalog.stats()
        assert (found.entries, found.failures, found.recall_version) == (3, 1, RECALL_VERSION)
        assert found.fingerprint_bytes == sum(len(item.fingerprint) for item in items)
        assert found.stored_bytes > found.fingerprint_bytes
        assert dict(found.families)[FAMILY] == 3
        assert dict(found.architectures) == {"qwen2": 2, "llama": 1}
        assert dict(found.licences) == {"mit": 2, "": 1}

    def test_a_sound_catalog_has_no_problems(self, catalog):
        catalog.add_all([make_item(seed) for seed in range(3)])
        catalog.add(*make_item(7, name="plain", revision=None, vectors={}))
        seen = []
        assert list(catalog.check(lambda *told: seen.append(told))) == []
        assert seen[-1] == ("entries", 4, 4)

    def test_a_reader_cannot_write(self, open_it):
        with open_it() as catalog:
            catalog.add(*make_item(1))
        with open_it(read_only=True) as reader:
            for write in (
                lambda: reader.add(*make_item(2)),
                lambda: reader.remove(make_item(1).entry.key),
                lambda: reader.fail(Failure("a/b", None, "x", ADDED)),
                lambda: reader.forget("a/b"),
                lambda: reader.reindex(),
            ):
                with pytest.raises(KinprintError, match="reading only"):
                    write()
            assert reader.count() == 1
            assert reader.nearest(make_item(1).vectors, 1)[0].key == make_item(1).entry.key

    def test_two_at_once(self, open_it):
        with open_it() as one, open_it() as two:
            assert one.add(*make_item(1))
            assert two.add(*make_item(2))
            assert not two.add(*make_item(1))
            assert keys(one) == keys(two) == [make_item(1).entry.key, make_item(2).entry.key]
