"""Ask the hub for all models of an organisation or user, page by page, with the commit of each."""

import re
from dataclasses import dataclass
from urllib.parse import urlencode, urljoin, urlsplit

from kinprint._util.plain import printable
from kinprint._util.strange_json import parse_json
from kinprint.errors import BadReference, NotFound, TransferError
from kinprint.refs import is_owner, is_repo, shown
from kinprint.sources.http import HttpClient, origin_of
from kinprint.text import Text

PAGE = 1000  # models asked for at a time, which is the most that the hub gives
MOST_MODELS = 100_000  # the largest owners of 2026 have some tens of thousands
_PAGE_CAP = 8 << 20  # bytes of a page; one of 1,000 models, each with its commit, has 150 kB
_SHA = re.compile(r"[0-9a-f]{40}")
_LINK = re.compile(r'<([^<>]{1,4000})>\s*((?:;\s*[a-zA-Z]+\s*=\s*(?:"[^"]{0,200}"|[^\s";,]{1,200})\s*)*)')
_REL_NEXT = re.compile(r';\s*rel\s*=\s*(?:"(?:[^"]* )?next(?: [^"]*)?"|next\s*(?:;|$))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One repository of a listing; ``commit`` is that of its main branch, None where the hub does not tell."""

    repo: str
    commit: str | None


def list_models(client: HttpClient, owner: str, *, most: int = MOST_MODELS) -> list[ListedModel]:
    """Return all repositories of models of `owner`, in the hub's order (oldest last), each once.

    Raises NotFound where the hub lists none, TransferError for a listing without end, of another owner, or that leads elsewhere.
    """
    if not is_owner(owner):
        said = f"cannot read {owner[:100]!r} as an organisation or user of the hub"
        raise BadReference(said, hint="expected letters, digits, '.', '_' and '-', such as Qwen")
    base = f"{client.settings.endpoint}/api/models"
    # By date of creation: in the hub's default order, which is by fashion, models move between pages while they are asked for.
    query = urlencode({"author": owner, "sort": "createdAt", "limit": min(PAGE, most), "expand": "sha"})
    found: dict[str, ListedModel] = {}
    seen: set[str] = set()
    url: str | None = f"{base}?{query}"
    while url is not None:
        before = len(found)
        seen.add(url)
        label = f"the hub's listing of {owner}, page {len(seen)}"
        page, links = _page(client, url, label)
        for entry in page:
            model = _model(entry, owner)
            found.setdefault(model.repo, model)
        if len(found) > most:
            raise TransferError(f"the hub's listing of {owner}: more than {most} models")
        url = _next(links, url, base, label)
        if url is not None and (url in seen or len(found) == before):
            said = f"{label}: the listing has no end: the page holds nothing new, or the next is one that was read"
            raise TransferError(said)
    if not found:
        said = Text("the hub lists no models of {owner}", owner=owner)
        raise NotFound(said, hint="check the spelling; private models are listed with their owner's HF_TOKEN only")
    return list(found.values())


def _page(client: HttpClient, url: str, label: str) -> tuple[list[object], str]:
    body, links = client.get_linked(url, label=label, cap=_PAGE_CAP)
    try:
        page = parse_json(body)
    except ValueError as error:
        raise TransferError(f"{label}: {shown(url)} did not answer with JSON: {error}") from error
    if not isinstance(page, list):
        raise TransferError(f"{label}: expected a list of models, got {type(page).__name__}")
    return page, links


def _next(links: str, url: str, base: str, label: str) -> str | None:
    """Return the address of the next page. It must be the hub's own listing: the token goes there."""
    target: str | None = next((found[1] for found in _LINK.finditer(links) if _REL_NEXT.search(found[2])), None)
    if target is None:
        return None
    try:
        address: str = urljoin(url, target)
        own = origin_of(address) == origin_of(base) and urlsplit(address).path == urlsplit(base).path
    except ValueError as error:
        raise TransferError(f"{label}: the next page has an address that cannot be read") from error
    if not own:
        said = f"{label}: the next page is at {shown(address)}; expected one of {shown(base)}"
        raise TransferError(said, hint="set HF_ENDPOINT to the address by which the hub names itself")
    return address


def _model(entry: object, owner: str) -> ListedModel:
    repo = entry.get("id", entry.get("modelId")) if isinstance(entry, dict) else None
    if not isinstance(repo, str) or not is_repo(repo) or repo.partition("/")[0].lower() != owner.lower():
        got = printable(str(repo)[:100])
        raise TransferError(f"the hub's listing of {owner} holds {got!r}; expected {owner}/name")
    commit = entry.get("sha") if isinstance(entry, dict) else None
    if commit is not None and not (isinstance(commit, str) and _SHA.fullmatch(commit)):
        raise TransferError(f"{repo}: the hub's listing names the commit {str(commit)[:80]!r}; expected 40 hex digits")
    return ListedModel(repo, commit)
