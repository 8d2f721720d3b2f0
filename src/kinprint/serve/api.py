"""Answer programs: jobs, results and the catalog as JSON, described by OpenAPI. To start something takes a key."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from kinprint.errors import NotFound
from kinprint.serve.families import Filters, plain_edge
from kinprint.serve.options import NOBODY
from kinprint.serve.references import LONGEST
from kinprint.serve.service import Service, plain_job
from kinprint.serve.streams import open_stream, progress
from kinprint.text import Text

router = APIRouter(prefix="/api", tags=["kinprint"])
Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="of a job or a result")]
_bearer = HTTPBearer(auto_error=False, description="A key made by `kinprint serve keys add`")


class Problem(BaseModel):
    """Why something was not done."""

    model_config = ConfigDict(populate_by_name=True)
    class_: str = Field(alias="class")
    message: str | None
    hint: str | None = None


class Refusal(BaseModel):
    """An answer that is none."""

    error: Problem


class JobShown(BaseModel):
    """A job: what was asked for, and what became of it. Times are seconds since 1970."""

    id: str
    kind: str
    request: dict[str, Any]
    state: str
    created: float
    started: float | None
    finished: float | None
    error: Problem | None
    summary: dict[str, Any] | None


class Pair(BaseModel):
    """Two models to compare."""

    model_config = ConfigDict(extra="forbid")
    a: str = Field(min_length=1, max_length=LONGEST, examples=["owner/base"])
    b: str = Field(min_length=1, max_length=LONGEST, examples=["owner/model@revision"])
    deep: bool = Field(default=False, description="Look for reordered neurons and residual dimensions in any case.")


class Wanted(BaseModel):
    """A model whose relatives are looked for."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(min_length=1, max_length=LONGEST, examples=["owner/model"])


class EntryShown(BaseModel):
    """What the catalog holds of one model."""

    key: str
    name: str
    revision: str | None
    architecture: str
    layers: int
    hidden: int
    parameters: int
    licence: str | None
    declared_bases: list[str]
    added: str
    made_by: str


class CatalogShown(BaseModel):
    """Part of the catalog: how many models it holds, and some of them."""

    count: int
    entries: list[EntryShown]


class RelationShown(BaseModel):
    """Two models of the catalog: what is declared of them, and what exact tests show. No direction is measured."""

    a: str
    b: str
    state: str
    declared_base: str | None
    log10_p: float | None = Field(description="corrected for all tests and pairs; null where no test could run")
    in_place: float | None
    same_files: bool
    explained: bool = Field(description="cards join the two, directly or through other models")
    reason: str | None


class FamiliesShown(BaseModel):
    """Part of the catalog's graph: how many models and relations fit what was asked for, and some of both."""

    tested: bool = Field(description="whether pairs were tested; if not, there is what cards declare and nothing else")
    models: int
    relations: int
    names: list[str]
    edges: list[RelationShown]


def _refusals(**reasons: str) -> dict[int | str, dict[str, Any]]:
    common = {
        "c403": "made by another site's page",
        "c413": "too large",
        "c421": "another host",
        "c429": "too many requests",
    }
    return {int(code[1:]): {"model": Refusal, "description": why} for code, why in (common | reasons).items()}


READING = _refusals(c404="there is no such thing")
STARTING = _refusals(
    c400="no such model may be named", c401="a key is needed", c404="no such thing", c503="the queue is full"
)


async def service_of(request: Request) -> Service:
    """Return the resources of this server."""
    return request.app.state.service


Given = Annotated[Service, Depends(service_of)]


def writer(service: Given, key: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> str:
    """Return the name of the key that came along."""
    if service.options.may_start == NOBODY:
        raise HTTPException(403, "this server starts no jobs")
    name = service.state.key_name(key.credentials) if key is not None else None
    if name is None:
        raise HTTPException(401, "a key is needed: Authorization: Bearer KEY", {"WWW-Authenticate": "Bearer"})
    return f"key {name}"


Writer = Annotated[str, Depends(writer)]


@router.post("/compare", status_code=202, response_model=JobShown, responses=STARTING)
def compare(pair: Pair, service: Given, name: Writer) -> dict[str, Any]:
    """Queue a comparison of two models."""
    return plain_job(service.compare(pair.a, pair.b, name, deep=pair.deep))


@router.get("/jobs/{id}", response_model=JobShown, responses=READING)
async def job(id: Id, service: Given) -> dict[str, Any]:  # noqa: A002 - the name in the address
    """Return a job."""
    return plain_job(service.job(id))


@router.get(
    "/jobs/{id}/events",
    response_class=Response,
    responses={**READING, **_refusals(c503="too many streams"), 200: {"content": {"text/event-stream": {}}}},
)
def events(
    id: Id,  # noqa: A002
    service: Given,
    request: Request,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """Stream what a job tells: stored events after the last one seen, then new ones until it has ended."""
    service.job(id)
    client = request.scope["client_name"]
    open_stream(service, client)
    after = int(last_event_id) if last_event_id and last_event_id.isascii() and last_event_id.isdigit() else 0
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(
        progress(service, id, min(after, 1 << 40), client), media_type="text/event-stream", headers=headers
    )


@router.post("/jobs/{id}/cancel", response_model=JobShown, responses=STARTING)
def cancel(id: Id, service: Given, name: Writer) -> dict[str, Any]:  # noqa: A002
    """Cancel a job of this key; one that has ended stays as it is."""
    found = service.job(id)
    if found.client != service.state.client_of(name):
        raise HTTPException(403, Text("this job was started by somebody else"))
    service.jobs.cancel(id)
    return plain_job(service.job(id))


@router.get("/results", response_model=list[JobShown], responses=READING)
def results(service: Given, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> list[dict[str, Any]]:
    """Return the latest comparisons."""
    return [plain_job(found) for found in service.state.recent(limit, "compare")]


@router.get("/results/{id}", response_model=dict[str, Any], responses=READING)
def result(id: Id, service: Given) -> Response:  # noqa: A002
    """Return the report of a comparison, in the schema that `kinprint schema` prints."""
    return Response(service.file(id, "report.json"), media_type="application/json")


@router.post("/results/{id}/verify", status_code=202, response_model=JobShown, responses=STARTING)
def verify(id: Id, service: Given, name: Writer) -> dict[str, Any]:  # noqa: A002
    """Queue a verification of a comparison: every range is read again, every figure computed anew."""
    return plain_job(service.verify(id, name))


@router.get("/results/{id}/verification", response_model=dict[str, Any], responses=READING)
def verification(id: Id, service: Given) -> Response:  # noqa: A002
    """Return the last verification of a comparison."""
    service.result(id)
    found = service.verification(id)
    if found is None:
        raise NotFound(Text("the result {id} has not been verified", id=id))
    return Response(found, media_type="application/json")


@router.post("/search", status_code=202, response_model=JobShown, responses=STARTING)
def start_search(wanted: Wanted, service: Given, name: Writer) -> dict[str, Any]:
    """Queue a search for the relatives of a model in the catalog."""
    return plain_job(service.search(wanted.model, name))


@router.get(
    "/search", response_model=dict[str, Any], responses={**READING, **_refusals(c400="no such model may be named")}
)
def search(service: Given, model: Annotated[str, Query(min_length=1, max_length=LONGEST)]) -> Response:
    """Return the last search for a model's relatives, in the schema that `kinprint schema` prints; POST makes one."""
    found = service.last_search(model)
    if found is None:
        raise NotFound(Text("the relatives of this model have not been looked for"), hint="POST /api/search looks")
    return Response(service.file(found.id, "report.json"), media_type="application/json")


@router.get("/catalog", response_model=CatalogShown, responses=READING)
def catalog(
    service: Given,
    contains: Annotated[str, Query(max_length=100)] = "",
    start: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> dict[str, Any]:
    """Return models of the catalog whose names contain a text."""
    count, entries = service.entries(contains, start, limit)
    return {"count": count, "entries": [asdict(entry) for entry in entries]}


def chosen(
    text: Annotated[str, Query(max_length=100, description="part of a name")] = "",
    architecture: Annotated[str, Query(max_length=200)] = "",
    organisation: Annotated[str, Query(max_length=200)] = "",
    licence: Annotated[str, Query(max_length=200)] = "",
    kind: Annotated[Literal["", "shown", "not_shown", "not_compared", "same_files"], Query()] = "",
    declared: Annotated[Literal["", "yes", "no", "unexplained"], Query()] = "",
) -> Filters:
    """Return what a visitor wants to see of the graph; "-" stands for "none stated"."""
    return Filters(text, architecture, organisation, licence, kind, declared)


Chosen = Annotated[Filters, Depends(chosen)]


@router.get("/families", response_model=FamiliesShown, responses=READING)
def families(
    service: Given,
    filters: Chosen,
    start: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> dict[str, Any]:
    """Return models of the catalog and relations among them: declared and shown, declared only, shown only."""
    found = service.families.current()
    nodes, edges = found.select(filters)
    part = slice(start, start + limit)
    return {
        "tested": found.tested,
        "models": len(nodes),
        "relations": len(edges),
        "names": [found.graph.nodes[number].name for number in nodes[part]],
        "edges": [plain_edge(found, found.graph.edges[number]) for number in edges[part]],
    }
