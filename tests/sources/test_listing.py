"""The hub's listing of an organisation's models: pages, commits, and replies that lie."""

import json

import pytest
from huggingface_hub import HfApi

from kinprint.errors import BadReference, NotFound, TransferError
from kinprint.sources.listing import ListedModel, list_models
from support.hub import Fault, HubServer

SHA = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def organisation(model_folder):
    """Seven models in pages of three; one is private, and another owner has one too."""
    with HubServer(page_size=3) as server:
        server.commits = {f"kin/m{n}": server.add_repo(f"kin/m{n}", model_folder, private=n == 5) for n in range(7)}
        server.add_repo("kindred/m0", model_folder)
        yield server


def test_all_pages_are_read_and_commits_come_along(organisation, session_for):
    listed = session_for(organisation).models_of("kin")
    assert {model.repo: model.commit for model in listed} == {
        repo: commit for repo, commit in organisation.commits.items() if repo != "kin/m5"
    }
    assert [request.path for request in organisation.requests] == ["/api/models"] * 2
    assert all("author=kin" in request.query and "expand=sha" in request.query for request in organisation.requests)


def test_private_models_are_listed_with_the_token(organisation, session_for):
    assert len(session_for(organisation, token="hf_secret").models_of("kin")) == 7


def test_the_local_hub_lists_as_the_official_client_expects(organisation):
    client = HfApi(endpoint=organisation.endpoint, token=False)
    listed = {model.id: model.sha for model in client.list_models(author="kin", expand=["sha"])}
    assert listed == {repo: commit for repo, commit in organisation.commits.items() if repo != "kin/m5"}


def test_a_server_that_is_busy_is_asked_again(organisation, session_for):
    organisation.add_fault(Fault(kind="status", value=429, retry_after=0, times=1))
    assert len(session_for(organisation).models_of("kin")) == 6


def test_an_owner_without_models_is_not_found(organisation, session_for):
    with pytest.raises(NotFound, match="the hub lists no models of nobody"):
        session_for(organisation).models_of("nobody")


@pytest.mark.parametrize("owner", ["", "a/b", "../x", "a b", "ä", "a" * 97, "a?author=b"])
def test_what_is_no_owner_is_refused_unasked(organisation, session_for, owner):
    with pytest.raises(BadReference, match="as an organisation or user"):
        session_for(organisation).models_of(owner)
    assert organisation.requests == []


def answering(web, session_for, pages, link=None):
    """Let a plain server answer with these pages in turn, the last again and again."""

    def spoil(request):
        number = min(len(web.log), len(pages)) - 1
        body = pages[number] if isinstance(pages[number], bytes) else json.dumps(pages[number]).encode()
        headers = {"Link": link(len(web.log))} if link is not None else {}
        web.reply(request, 200, body, **headers)
        return True

    web.spoil = spoil
    return session_for(None, endpoint=web.url)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (b"<html>", "did not answer with JSON"),
        ({"error": "no"}, "expected a list of models, got dict"),
        ([7], "holds 'None'; expected kin/name"),
        ([{"id": "other/m"}], "holds 'other/m'; expected kin/name"),
        ([{"id": "kin/../../etc"}], "expected kin/name"),
        ([{"id": "kin/a\u202eb"}], "expected kin/name"),
        ([{"id": ["kin/m"]}], "expected kin/name"),
        ([{"id": "kin/m", "sha": "main"}], "names the commit 'main'; expected 40 hex digits"),
        ([{"id": "kin/m", "sha": 7}], "names the commit '7'"),
    ],
)
def test_a_listing_that_makes_no_sense_is_refused(web, session_for, page, said):
    with pytest.raises(TransferError, match=said):
        answering(web, session_for, [page]).models_of("kin")


def test_a_listing_may_leave_out_commits_and_repeat_models(web, session_for):
    session = answering(web, session_for, [[{"id": "Kin/m"}, {"modelId": "kin/n", "sha": SHA}, {"id": "Kin/m"}]])
    assert session.models_of("kin") == [ListedModel("Kin/m", None), ListedModel("kin/n", SHA)]


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("</api/models?author=kin>; rel=next", "no end"),
        ("<http://elsewhere.test/api/models?cursor=2>; rel=\"next\"", "expected one of"),
        ("</api/other?cursor=2>; rel=\"next\"", "expected one of"),
        ("<http://[::1>; rel=\"next\"", "cannot be read"),
    ],
)  # fmt: skip
def test_the_next_page_must_be_a_new_one_of_the_hub(web, session_for, link, said):
    session = answering(web, session_for, [[{"id": "kin/m"}]], lambda _: link)
    with pytest.raises(TransferError, match=said):
        session.models_of("kin")
    assert len(web.log) <= 2


def test_pages_without_end_end(web, session_for):
    def link(number):
        return f'</api/models?x>; rel="prev", <{web.url}/api/models?cursor={number}>; title="a"; rel="next"'

    session = answering(web, session_for, [[{"id": "kin/m"}]], link)  # the same model on every page
    with pytest.raises(TransferError, match="no end"):
        session.models_of("kin")
    web.log.clear()
    pages = [[{"id": f"kin/m{n}"} for n in range(k, k + 2)] for k in range(0, 40, 2)]
    session = answering(web, session_for, pages, link)
    with pytest.raises(TransferError, match="more than 10 models"):
        list_models(session._client, "kin", most=10)
    assert len(web.log) == 6


def test_a_page_larger_than_any_is_refused(web, session_for):
    session = answering(web, session_for, [b"[" + b" " * (8 << 20) + b"]"])
    with pytest.raises(OSError, match=r"8388610|more than"):
        session.models_of("kin")
