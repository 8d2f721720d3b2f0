"""Answer people: pages in the look of the report, made here, in one of our languages."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, File, Form, HTTPException, Request, Response, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute

from kinprint._util.plain import printable
from kinprint._version import __version__
from kinprint.errors import NotFound
from kinprint.render.page.markup import PageWords
from kinprint.render.page.report import served_policy
from kinprint.results.plain_json import build
from kinprint.results.verification import Verification
from kinprint.serve.api import Given, Id
from kinprint.serve.api import router as calls_of_programs
from kinprint.serve.badge import badge_svg
from kinprint.serve.bar import environment
from kinprint.serve.references import LONGEST, local_models, shown
from kinprint.serve.service import COMPARED, STORED, Service, kind_of
from kinprint.serve.state import DONE, Job
from kinprint.serve.work import PAGE
from kinprint.text import ENGLISH, LANGUAGES, Text

router = APIRouter(include_in_schema=False)
RECENT = 20
YEAR_S = 31_536_000
ASSETS = {
    "page.css": ("kinprint.render.page", "text/css; charset=utf-8"),
    "bar.css": ("kinprint.render.page", "text/css; charset=utf-8"),
    "serve.css": ("kinprint.serve", "text/css; charset=utf-8"),
    **dict.fromkeys(
        ("serve.js", "job.js", "families.js", "layout.js", "d3.js"),
        ("kinprint.serve", "text/javascript; charset=utf-8"),
    ),
}
Name = Annotated[str, Form(max_length=LONGEST)]


@cache
def asset(name: str) -> tuple[bytes, str]:
    """Return a file that pages load from here, and its type."""
    package, kind = ASSETS[name]
    return files(package).joinpath("assets", name).read_bytes(), kind


@cache
def asset_path(name: str) -> str:
    """Return the address of such a file, which changes with its content."""
    return f"/assets/{name}?{hashlib.sha256(asset(name)[0]).hexdigest()[:12]}"


def language(request: Request) -> str:
    """Return the language that was chosen, else the first of the browser's that we have."""
    chosen = request.query_params.get("lang")
    if chosen in LANGUAGES:
        return chosen
    wanted = [part.split(";")[0].strip()[:2].lower() for part in request.headers.get("accept-language", "").split(",")]
    return next((lang for lang in wanted[:20] if lang in LANGUAGES), ENGLISH)


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page of ours."""
    lang = language(request)
    other = next(each for each in LANGUAGES if each != lang)
    query = [item for item in request.query_params.multi_items() if item[0] != "lang"]
    service: Service = request.app.state.service
    made = (
        environment()
        .get_template(template)
        .render(
            v=PageWords(lang),
            other=PageWords(other),
            other_page=f"{request.url.path}?{urlencode([*query, ('lang', other)])}",
            asset=asset_path,
            version=__version__,
            service=service,
            shown=shown,
            date=lambda at: datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
            **values,
        )
    )
    return HTMLResponse(made, status)


def failure(request: Request, status: int, said: str, hint: str | None = None) -> HTMLResponse:
    """Return the page of something that was not done."""
    lang = language(request)
    texts = [text.render(lang) if isinstance(text, Text) else text for text in (said, hint or "")]
    return page(request, "error.html", status, said=printable(texts[0], 600), hint=printable(texts[1], 600))


def allowed(service: Service) -> None:
    """Refuse a form where pages start nothing."""
    if not service.open_to_all:
        raise HTTPException(403, Text("this server starts no jobs from its pages"))


def to_job(job: Job, request: Request) -> RedirectResponse:
    """Lead to a job, in the language of the page that was left."""
    return RedirectResponse(f"/jobs/{job.id}?lang={language(request)}", 303)


@router.get("/")
async def home(request: Request, service: Given) -> HTMLResponse:
    """Ask for one model, or two."""
    names = local_models(service.options)
    examples = [(names[0], other) for other in names[1:]][:6]
    recent = [job for job in service.state.recent(RECENT) if job.kind in STORED]
    count = await run_in_threadpool(service.catalog_count) if service.options.catalog is not None else None
    return page(request, "home.html", recent=recent, local=names, examples=examples, count=count)


@router.post("/compare")
def compare(
    request: Request, service: Given, a: Name, b: Name, deep: Annotated[bool, Form()] = False
) -> RedirectResponse:
    """Queue a comparison."""
    allowed(service)
    return to_job(service.compare(a, b, request.scope["client_name"], deep=deep), request)


@router.post("/search")
def search(
    request: Request,
    service: Given,
    model: Annotated[str, Form(max_length=LONGEST)] = "",
    file: Annotated[UploadFile | None, File()] = None,
) -> RedirectResponse:
    """Queue a search for the relatives of a model, or of an uploaded fingerprint."""
    allowed(service)
    client = request.scope["client_name"]
    if file is not None and file.size:
        return to_job(service.search_upload(file.file.read(), client), request)
    return to_job(service.search(model, client), request)


@router.get("/jobs/{id}", response_model=None)
def job(id: Id, request: Request, service: Given) -> Response:  # noqa: A002
    """Show how far a job is; one that is done leads to its result."""
    found = service.job(id)
    if found.state == DONE:
        return RedirectResponse(f"{result_path(found)}?lang={language(request)}", 303)
    events = service.state.events(id)
    last = next((event.told for event in reversed(events) if "stage" in event.told), {})
    return page(
        request, "job.html", job=found, last=last, ahead=service.state.ahead_of(found), result=result_path(found)
    )


def result_path(found: Job) -> str:
    """Return the address of what a job makes."""
    if found.kind == "verify":
        return f"/results/{found.request['result']}/verification"
    return f"/results/{found.id}"


@router.post("/jobs/{id}/cancel")
def cancel(id: Id, request: Request, service: Given) -> RedirectResponse:  # noqa: A002
    """Cancel a job that the same client started."""
    allowed(service)
    found = service.job(id)
    if found.client != service.state.client_of(request.scope["client_name"]):
        raise HTTPException(403, Text("this job was started by somebody else"))
    service.jobs.cancel(id)
    return to_job(found, request)


@router.get("/results/{id}")
async def result(id: Id, request: Request, service: Given) -> Response:  # noqa: A002
    """Show a report: the page that --html writes, with a bar above it."""
    # stored bytes and one row: less than a millisecond, which a thread of its own would double
    found = service.result(id)
    data = service.stored(id, PAGE.format(lang=language(request)))
    policy = f"{served_policy(search=found.kind == 'search')}; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy, "Vary": "Accept-Language", "Cache-Control": "private, max-age=60"}
    return Response(data, media_type="text/html; charset=utf-8", headers=headers)


@router.get("/results/{id}/verification")
def verification(id: Id, request: Request, service: Given) -> HTMLResponse:  # noqa: A002
    """Show what the last verification of a result found."""
    job_, raw = service.result(id, COMPARED), service.verification(id)
    found = build(Verification, orjson.loads(raw)) if raw is not None else None
    last = service.state.latest("verify", result=id)
    return page(request, "verification.html", id=id, found=found, summary=job_.summary, last=last)


@router.post("/results/{id}/verify")
def verify(id: Id, request: Request, service: Given) -> RedirectResponse:  # noqa: A002
    """Queue a verification."""
    allowed(service)
    return to_job(service.verify(id, request.scope["client_name"]), request)


@router.get("/results/{id}/cite")
def cite(id: Id, request: Request, service: Given) -> HTMLResponse:  # noqa: A002
    """Show badge and citation, with the address under which this server was asked for."""
    found = service.result(id, COMPARED)
    return page(request, "cite.html", job=found, summary=found.summary, base=str(request.base_url).rstrip("/"))


@router.get("/results/{id}/badge.svg")
def badge(id: Id, request: Request, service: Given) -> Response:  # noqa: A002
    """Return the badge of a result; other sites may show it."""
    summary = service.result(id, COMPARED).summary
    assert summary is not None
    drawn = badge_svg(printable(summary["headline"][language(request)], 60), summary["light"])
    headers = {"Cross-Origin-Resource-Policy": "cross-origin", "Cache-Control": "public, max-age=3600"}
    return Response(drawn, media_type="image/svg+xml", headers=headers)


@router.get("/results/{id}/{name}")
def download(id: Id, name: str, service: Given) -> Response:  # noqa: A002
    """Hand out a file of a result, to be saved: no page of ours shows it."""
    data = service.file(id, name)
    headers = {"Content-Disposition": f'attachment; filename="{id}-{name}"', "Cache-Control": "private, max-age=3600"}
    return Response(data, media_type=kind_of(name), headers=headers)


@router.get("/assets/{name}")
def assets(name: str) -> Response:
    """Return a style sheet or script of ours."""
    if name not in ASSETS:
        raise NotFound(Text("there is no such page"))
    data, kind = asset(name)
    return Response(data, media_type=kind, headers={"Cache-Control": f"public, max-age={YEAR_S}, immutable"})


@router.get("/api")
def api_page(request: Request) -> HTMLResponse:
    """List what programs can ask for."""
    schema = request.app.openapi()
    calls = [
        (method, route.path, route.name, bool(schema["paths"][route.path][method.lower()].get("security")))
        for route in calls_of_programs.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods)
    ]
    return page(request, "api.html", calls=calls, base=str(request.base_url).rstrip("/"))


@router.get("/robots.txt")
def robots() -> Response:
    """Ask crawlers to leave jobs and files alone."""
    return Response("User-agent: *\nDisallow: /jobs/\nDisallow: /api/\n", media_type="text/plain")
