"""A hub on 127.0.0.1 that speaks as much of the protocol as one model upload and download need."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeHub(ThreadingHTTPServer):
    """`files[repo]` holds what was committed; `private[repo]` how the repository was made."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.private = {}, {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, value, status=200, headers=()):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in [("Content-Length", str(len(body))), *headers]:
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self):
        hub, path = self.server, self.path.split("?")[0]
        if path == "/api/validate-yaml":  # of a model card
            self.answer({"errors": [], "warnings": []})
        elif self.headers.get("authorization") != "Bearer hf_test":
            self.answer({"error": "who are you"}, 401)
        elif path == "/api/repos/create":
            asked = json.loads(self.body())
            repo = f"{asked.get('organization', 'me')}/{asked['name']}"
            hub.files.setdefault(repo, {})
            hub.private[repo] = asked.get("visibility") == "private" or asked.get("private")
            self.answer({"url": f"{hub.address}/{repo}", "name": repo})
        elif "/preupload/" in path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(self.body())["files"]
            ]
            self.answer({"files": files})
        elif "/commit/" in path:
            self.commit(path.removeprefix("/api/models/").split("/commit/")[0])
        else:
            self.answer({"error": path}, 404)

    def commit(self, repo):
        for line in self.body().splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                content = base64.b64decode(entry["value"]["content"])
                self.server.files[repo][entry["value"]["path"]] = content
        url = f"{self.server.address}/{repo}/commit/{'0' * 40}"
        self.answer({"commitUrl": url, "commitOid": "0" * 40, "pullRequestUrl": None})

    def do_GET(self):
        hub, path = self.server, self.path.split("?")[0]
        if path.startswith("/api/models/"):
            repo = "/".join(path.split("/")[3:5])
            if repo not in hub.files:
                self.answer(
                    {"error": "Repository not found"}, 404, [("X-Error-Code", "RepoNotFound")]
                )
                return
            if "/tree/" in path:
                entries = hub.files[repo].items()
                self.answer(
                    [{"type": "file", "path": n, "size": len(c), "oid": "0"} for n, c in entries]
                )
                return
            listed = [{"rfilename": name} for name in hub.files[repo]]
            self.answer({"id": repo, "sha": "0" * 40, "siblings": listed})
            return
        repo, _, rest = path[1:].partition("/resolve/")
        name = rest.split("/", 1)[-1]
        content = hub.files.get(repo, {}).get(name)
        if content is None:
            self.answer({"error": "Entry not found"}, 404, [("X-Error-Code", "EntryNotFound")])
            return
        tag = hashlib.sha256(content).hexdigest()
        self.answer(content, 200, [("ETag", f'"{tag}"'), ("X-Repo-Commit", "0" * 40)])

    do_HEAD = do_GET
