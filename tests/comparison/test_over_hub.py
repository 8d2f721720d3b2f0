"""The same comparison over the hub: equal measurements, and no data asked for twice."""

from dataclasses import replace

import pytest

from kinprint.comparison.pipeline import compare
from kinprint.results.options import Options
from kinprint.sources.cache import RangeCache, cache_key
from support.hub import HubServer

OPTIONS = Options(layers="0-1", metrics=("l2", "byte_identity", "pearson"), rows=4)


@pytest.fixture
def hub_pair(demo_folder):
    with HubServer() as server:
        for name in ("base", "finetune", "unrelated"):
            server.add_repo(f"demo/{name}", demo_folder / name)
        yield server


def over_hub(server, settings, b="unrelated"):
    return compare("demo/base", f"demo/{b}", OPTIONS, settings=settings)


def test_over_the_hub_as_on_disk(hub_pair, settings_for, demo_folder):
    remote = over_hub(hub_pair, settings_for(hub_pair))
    local = compare(str(demo_folder / "base"), str(demo_folder / "unrelated"), OPTIONS, settings=settings_for())
    assert remote.comparisons == local.comparisons
    assert remote.summary == local.summary
    assert remote.config == local.config
    assert remote.tokenizer == local.tokenizer
    assert remote.bytes_planned == local.bytes_planned
    assert (remote.a.kind, local.a.kind) == ("hub", "folder")
    assert len(remote.a.commit) == 40
    assert remote.run.network_bytes >= remote.bytes_read  # descriptions of repositories come on top
    assert remote.run.local_bytes == 0


def test_a_second_run_asks_for_no_data_and_says_the_same(hub_pair, settings_for, tmp_path):
    settings = settings_for(hub_pair, range_cache=tmp_path / "cache")
    first = over_hub(hub_pair, settings)
    hub_pair.reset()
    second = over_hub(hub_pair, settings)
    # the description, to pin the revision, is all that may be asked for
    assert {item.path.partition("/revision/")[0] for item in hub_pair.requests if item.body_bytes} <= {
        "/api/models/demo/base",
        "/api/models/demo/unrelated",
    }
    assert [item for item in hub_pair.requests if item.origin == "cdn"] == []
    assert replace(second, run=first.run) == first
    assert second.run.requests == len(hub_pair.requests) == 2
    assert second.run.network_bytes < 5_000 < second.run.cache_bytes


def test_equal_tokenizers_are_not_looked_up_again_and_offline_works_at_once(hub_pair, settings_for, tmp_path):
    settings = settings_for(hub_pair, range_cache=tmp_path / "cache")
    first = over_hub(hub_pair, settings, b="finetune")
    assert first.tokenizer.reason == "the files have the same content tag and were not read"
    hub_pair.reset()
    second = over_hub(hub_pair, settings, b="finetune")
    assert [item.path.partition("/revision/")[1] for item in hub_pair.requests] == ["/revision/"] * 2
    assert replace(second, run=first.run) == first
    hub_pair.reset()
    third = over_hub(hub_pair, replace(settings, offline=True), b="finetune")
    assert hub_pair.requests == []
    assert replace(third, run=first.run) == first


def test_offline_without_the_tokenizers(hub_pair, settings_for, tmp_path):
    settings = settings_for(hub_pair, range_cache=tmp_path / "cache")
    first = over_hub(hub_pair, settings)
    cache = RangeCache(tmp_path / "cache", 1 << 30)
    lost = [file.about for file in cache.files() if file.about.get("path") == "tokenizer.json"]
    for about in lost:
        cache.forget(cache_key({key: about[key] for key in ("endpoint", "repo", "commit", "path")}))
    assert len(lost) == 2
    report = over_hub(hub_pair, replace(settings, offline=True))
    assert report.tokenizer.status == "not_comparable"
    assert report.tokenizer.reason.startswith("offline, and ")
    assert report.comparisons == first.comparisons


def test_a_new_commit_is_read_anew(hub_pair, settings_for, tmp_path, demo_folder):
    settings = settings_for(hub_pair, range_cache=tmp_path / "cache")
    first = over_hub(hub_pair, settings)
    hub_pair.add_revision("demo/unrelated", "main", demo_folder / "finetune")
    second = over_hub(hub_pair, settings)
    assert second.b.commit != first.b.commit
    assert second.summary != first.summary
    third = over_hub(hub_pair, settings, b="finetune")
    assert third.comparisons == second.comparisons


def test_the_budget_holds_over_the_hub(hub_pair, settings_for):
    report = compare("demo/base", "demo/unrelated", OPTIONS, settings=settings_for(hub_pair), budget_bytes=180_000)
    assert report.bytes_read <= 180_000
    data = [item for item in hub_pair.requests if not item.path.startswith("/api/")]
    assert sum(item.body_bytes for item in data) <= 180_000
