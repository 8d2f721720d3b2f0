"""Put the server together: guard, pages, API, and the page of every error."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from kinprint._util.plain import printable
from kinprint._version import __version__
from kinprint.errors import KinprintError, NotFound
from kinprint.serve import api, explorer, pages
from kinprint.serve.guard import Guard
from kinprint.serve.options import ServeOptions
from kinprint.serve.service import Service
from kinprint.serve.state import Busy
from kinprint.serve.stores import Unreachable
from kinprint.text import Text

log = logging.getLogger("kinprint.serve")
_ABOUT = "Does one language model derive from another? Comparisons, verifications and the catalog of a kinprint server."


def make_app(options: ServeOptions) -> Guard:
    """Return the application with its guard; its workers start and end with it."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service: Service = app.state.service
        service.start()
        try:
            yield
        finally:
            service.stop()

    app = FastAPI(
        title="kinprint",
        version=__version__,
        description=_ABOUT,
        openapi_url="/api/openapi.json",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        lifespan=life,
    )
    app.state.service = Service(options)
    app.include_router(api.router)
    app.include_router(pages.router)
    app.include_router(explorer.router)
    app.add_exception_handler(KinprintError, _expected)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _bug)
    return Guard(app, options)


def _answer(
    request: Request, status: int, name: str, said: str, hint: str | None = None, headers: Any = None
) -> Response:
    """Return an error in the form that fits who asks."""
    if request.url.path.startswith("/api/"):
        error = {"class": name, "message": printable(said, 600), "hint": printable(hint, 600) if hint else None}
        return JSONResponse({"error": error}, status, headers)
    made = pages.failure(request, status, said, hint)
    made.headers.update(headers or {})
    return made


def _expected(request: Request, error: KinprintError) -> Response:
    status = 404 if isinstance(error, NotFound) else 503 if isinstance(error, (Busy, Unreachable)) else 400
    headers = {"Retry-After": "60"} if status == 503 else None
    return _answer(request, status, type(error).__name__, error.message, error.hint, headers)


def _http(request: Request, error: HTTPException) -> Response:
    said = Text("there is no such page") if error.status_code == 404 else error.detail
    return _answer(request, error.status_code, "Refused", said, None, error.headers)


def _invalid(request: Request, error: RequestValidationError) -> Response:
    wrong = error.errors()[:3]
    said = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in wrong)
    unknown_id = all(item["loc"][0] == "path" for item in wrong)
    return _answer(request, 404 if unknown_id else 422, "Invalid", said)


def _bug(request: Request, error: Exception) -> Response:
    log.error("bug at %s: %s", request.url.path[:100], type(error).__name__, exc_info=error)
    return _answer(request, 500, "Bug", "an error in kinprint, which has been logged")
