"""The hub's protocol, request by request: model API, file resolution with redirects, and the CDN behind signed links.

What is answered follows the official client's source (huggingface_hub 2.4): which headers it reads, and which
combinations of status, ``X-Error-Code`` and ``X-Error-Message`` it maps to which error.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from support.http1 import Incoming, Reply, segments, serve_file
from support.repositories import HubFile, Repo, Snapshot

_API_WORDS = frozenset({"revision", "tree", "paths-info", "refs", "resolve"})
_EXPOSED = "X-Repo-Commit,X-Request-Id,X-Error-Code,X-Error-Message,ETag,Link,Accept-Ranges,Content-Range,X-Linked-ETag"
_DENIED_XML = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>Access denied</Message></Error>'
)


def _json(value: Any, status: int = 200, **headers: str) -> Reply:
    head = {"Content-Type": "application/json; charset=utf-8", **headers}
    return Reply(status, head, body=json.dumps(value).encode())


def error(status: int, code: str | None, message: str, commit: str | None = None) -> Reply:
    """Return an error the way the hub words it: twice, in headers and in the body."""
    reply = _json({"error": message}, status)
    if code is not None:
        reply.headers["X-Error-Code"] = code
    reply.headers["X-Error-Message"] = message
    if commit is not None:
        reply.headers["X-Repo-Commit"] = commit
    return reply


def _flag(query: dict[str, list[str]], name: str) -> bool:
    return query.get(name, ["false"])[-1].lower() in ("1", "true")


class Routes:
    """Answers for both origins; holds the repositories and the signing key."""

    def __init__(
        self,
        *,
        token: str,
        invalid_tokens: frozenset[str] = frozenset(),
        resolve_cache: bool = False,
        link_ttl_s: float = 3600.0,
        page_size: int = 1000,
    ) -> None:
        self.token = token
        self.invalid_tokens = invalid_tokens
        self.resolve_cache = resolve_cache
        self.link_ttl_s = link_ttl_s
        self.page_size = page_size
        self.endpoint = ""
        self.cdn = ""
        self.repos: dict[str, Repo] = {}
        self._stored: dict[str, tuple[HubFile, str]] = {}
        self._revoked: dict[str, int] = {}
        self._issued = 0
        self._key = b"local hub"

    def put(self, repo: Repo, revision: str, snapshot: Snapshot) -> None:
        """Publish a snapshot and make its LFS files known to the CDN."""
        for file in snapshot.files.values():
            if file.sha256 is not None:
                self._stored[file.cdn_path] = (file, f"{repo.repo_id}/{file.path}")
        repo.put(revision, snapshot)
        self.repos[repo.repo_id] = repo

    # ---- the hub ----

    def hub(self, request: Incoming, salt: str = "") -> tuple[Reply, str]:
        """Answer a request to the hub; also return the logical name of the file asked for, if any."""
        parts = segments(request.path)
        if parts == ["api", "models"]:
            reply, name = self._models(request), ""
        elif parts[:2] == ["api", "models"]:
            reply, name = self._api(request, parts[2:]), ""
        elif parts[:3] == ["api", "resolve-cache", "models"]:
            reply, name = self._resolve(request, parts[3:], 0, salt)
        elif "resolve" in parts[1:3]:
            reply, name = self._resolve(request, parts, 1, salt)
        else:
            reply, name = error(404, None, "Sorry, we can't find the page you are looking for."), ""
        # Present on every response of the real hub, so no sign of being throttled.
        reply.headers["RateLimit"] = '"resolvers";r=2998;t=172'
        reply.headers["RateLimit-Policy"] = '"fixed window";"resolvers";q=3000;w=300'
        reply.headers["Access-Control-Expose-Headers"] = _EXPOSED
        return reply, name

    def _bearer(self, request: Incoming) -> str | None:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        return value.strip() if scheme.lower() == "bearer" else None

    def _find(self, request: Incoming, repo_id: str) -> Repo | Reply:
        bearer = self._bearer(request)
        if bearer in self.invalid_tokens:
            return error(401, None, "Invalid credentials in Authorization header")
        repo = self.repos.get(repo_id)
        if repo is not None and (not repo.private or bearer == self.token):
            return repo
        if bearer is None:
            # Anonymous clients cannot tell a private repository from a missing one.
            return error(401, "RepoNotFound", "Invalid username or password.")
        return error(404, "RepoNotFound", "Repository not found")

    def _gate(self, request: Incoming, repo: Repo) -> Reply | None:
        bearer = self._bearer(request)
        if not repo.gated or bearer == self.token:
            return None
        if bearer is None:
            message = (
                f"Access to model {repo.repo_id} is restricted. You must have access to it and be authenticated to "
                "access it. Please log in."
            )
            return error(401, "GatedRepo", message)
        message = f"Access to model {repo.repo_id} is restricted and you are not in the authorized list."
        return error(403, "GatedRepo", message)

    def _api(self, request: Incoming, parts: list[str]) -> Reply:
        split = 1 if len(parts) < 2 or parts[1] in _API_WORDS else 2
        found = self._find(request, "/".join(parts[:split]))
        if isinstance(found, Reply):
            return found
        word = parts[split] if len(parts) > split else "revision"
        if word == "refs":
            return _json(found.refs())
        revision = parts[split + 1] if len(parts) > split + 1 else "main"
        snapshot = found.at(revision)
        if snapshot is None:
            return error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        query = parse_qs(request.query)
        if word == "revision":
            return _json(found.info(snapshot, _flag(query, "blobs")))
        if word == "tree":
            return self._tree(request, snapshot, "/".join(parts[split + 2 :]), query)
        if word == "paths-info" and request.method == "POST":
            return self._paths_info(request, snapshot)
        return error(404, None, "Sorry, we can't find the page you are looking for.")

    def _models(self, request: Incoming) -> Reply:
        """List models: those of an author, newest names last, `limit` at a time, each with what `expand` names."""
        query = parse_qs(request.query)
        author, bearer = query.get("author", [""])[-1].lower(), self._bearer(request)
        if bearer in self.invalid_tokens:
            return error(401, None, "Invalid credentials in Authorization header")
        chosen = [
            repo
            for name, repo in sorted(self.repos.items())
            if (not author or name.lower().startswith(f"{author}/")) and (not repo.private or bearer == self.token)
        ]
        start, limit = int(query.get("cursor", ["0"])[-1]), int(query.get("limit", ["1000"])[-1])
        stop = start + min(limit, self.page_size, 1000)
        asked = [*query.get("expand", []), *query.get("expand[]", [])]
        shown = {"_id", "id", "modelId", "private", "gated", "downloads", "likes", "tags", "createdAt", *asked}
        infos = [repo.info(snapshot, False) for repo in chosen[start:stop] if (snapshot := repo.at("main")) is not None]
        reply = _json([{key: info[key] for key in info if key in shown} for info in infos])
        if stop < len(chosen):
            kept = [(key, value) for key, values in query.items() if key != "cursor" for value in values]
            link = f"{self.endpoint}{request.path}?{urlencode([*kept, ('cursor', str(stop))])}"
            reply.headers["Link"] = f'<{link}>; rel="next"'
        return reply

    def _tree(self, request: Incoming, snapshot: Snapshot, under: str, query: dict[str, list[str]]) -> Reply:
        recursive, expand = _flag(query, "recursive"), _flag(query, "expand")
        entries = snapshot.tree(under, recursive, expand)
        if entries is None:
            return error(404, "EntryNotFound", f"{under} does not exist on {snapshot.commit}", snapshot.commit)
        start = int(query.get("cursor", ["0"])[-1])
        stop = start + (min(50, self.page_size) if expand else self.page_size)
        reply = _json(entries[start:stop])
        if stop < len(entries):
            flags = f"recursive={recursive}&expand={expand}".lower()
            link = f"{self.endpoint}{request.path}?{flags}&cursor={stop}"
            reply.headers["Link"] = f'<{link}>; rel="next"'
        return reply

    @staticmethod
    def _paths_info(request: Incoming, snapshot: Snapshot) -> Reply:
        text = request.body.decode()
        if request.headers.get("content-type", "").startswith("application/json"):
            sent = json.loads(text)
            return _json(snapshot.paths(sent["paths"], bool(sent.get("expand"))))
        form = parse_qs(text)
        return _json(snapshot.paths(form.get("paths", []), _flag(form, "expand")))

    def _resolve(self, request: Incoming, parts: list[str], word: int, salt: str) -> tuple[Reply, str]:
        """Answer for a file; ``word`` segments ("resolve", or none) stand between repository and revision."""
        at = parts.index("resolve", 1) if word else 1 if parts[0] in self.repos else 2
        repo_id, rest = "/".join(parts[:at]), parts[at + word :]
        revision, path = (rest[0], "/".join(rest[1:])) if rest else ("main", "")
        name = f"{repo_id}/{path}"
        repo = self._find(request, repo_id)
        if isinstance(repo, Reply):
            return repo, name
        refusal = self._gate(request, repo)
        if refusal is not None:
            return refusal, name
        snapshot = repo.at(revision)
        if snapshot is None:
            return error(404, "RevisionNotFound", f"Invalid rev id: {revision}"), name
        file = snapshot.files.get(path)
        if file is None:
            return error(404, "EntryNotFound", "Entry not found", snapshot.commit), name
        if request.method not in ("GET", "HEAD"):
            return error(405, None, "Method not allowed"), name
        headers = {"X-Repo-Commit": snapshot.commit}
        if file.sha256 is not None:
            return self._redirect(file, headers, salt), name
        etag = f'"{self._salted(file.oid, salt)}"'
        if self.resolve_cache and word:
            # The real address carries the original path as a query key, and the tag.
            target = f"/api/resolve-cache/models/{repo_id}/{snapshot.commit}/{quote(path)}"
            query = f"{quote(request.path, safe='')}=&etag={quote(etag, safe='')}"
            headers |= {"Location": f"{target}?{query}", "Content-Type": "text/plain; charset=utf-8"}
            return Reply(307, headers, body=b"Temporary Redirect. Redirecting to " + target.encode()), name
        headers["Content-Type"] = "text/plain; charset=utf-8"
        headers["Content-Disposition"] = f'inline; filename="{path.rpartition("/")[2]}";'
        return serve_file(request, file.disk, file.size, etag, headers), name

    @staticmethod
    def _salted(digest: str, salt: str) -> str:
        return hashlib.sha256(f"{digest}{salt}".encode()).hexdigest()[: len(digest)] if salt else digest

    def _redirect(self, file: HubFile, headers: dict[str, str], salt: str) -> Reply:
        url = self.link(file)
        headers |= {
            "Location": url,
            "Content-Type": "text/plain; charset=utf-8",
            "Accept-Ranges": "bytes",
            "X-Linked-Size": str(file.size),
            "X-Linked-ETag": f'"{self._salted(file.sha256 or "", salt)}"',
        }
        return Reply(302, headers, body=b"Found. Redirecting to " + url.encode())

    # ---- the CDN ----

    def link(self, file: HubFile) -> str:
        """Issue a signed address, each time another one."""
        self._issued += 1
        name = quote(file.path.rpartition("/")[2])
        expires = int(time.time() + self.link_ttl_s)
        signature = self._sign(file.cdn_path, str(expires), str(self._issued))
        disposition = f"inline%3B+filename*%3DUTF-8%27%27{name}%3B+filename%3D%22{name}%22%3B"
        return (
            f"{self.cdn}{file.cdn_path}?response-content-disposition={disposition}"
            f"&Expires={expires}&Policy={self._issued}&Signature={signature}&Key-Pair-Id=KLOCALHUB"
        )

    def _sign(self, path: str, expires: str, issue: str) -> str:
        return hmac.digest(self._key, f"{path}|{expires}|{issue}".encode(), "sha256").hex()

    def revoke(self, path: str) -> Reply:
        """Refuse every link to this address issued so far; return the refusal."""
        self._revoked[path] = self._issued
        return self._denied()

    @staticmethod
    def _denied() -> Reply:
        return Reply(403, {"Content-Type": "application/xml", "X-Cache": "Error from cloudfront"}, body=_DENIED_XML)

    def stored_name(self, path: str) -> str:
        """Return the logical name of what is stored at a CDN path."""
        return self._stored[path][1] if path in self._stored else ""

    def cdn_reply(self, request: Incoming, salt: str = "") -> tuple[Reply, str]:
        """Answer a request to the CDN; also return the logical name of the file."""
        path = request.path
        name = self.stored_name(path)
        fields = dict(part.partition("=")[::2] for part in request.query.split("&"))
        expires, issue = fields.get("Expires", ""), fields.get("Policy", "")
        good = hmac.compare_digest(fields.get("Signature", "").encode(), self._sign(path, expires, issue).encode())
        if not good or not name or int(expires) < time.time() or int(issue) <= self._revoked.get(path, 0):
            return self._denied(), name
        if request.method not in ("GET", "HEAD"):
            return Reply(405), name
        file = self._stored[path][0]
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f'inline; filename="{file.path.rpartition("/")[2]}";',
            "X-Cache": "Hit from cloudfront",
        }
        etag = file.cdn_etag if not salt else f'"{self._salted(file.cdn_etag.strip(chr(34)), salt)}"'
        return serve_file(request, file.disk, file.size, etag, headers), name
