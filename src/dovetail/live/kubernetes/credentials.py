"""How to reach an API server and with which identity: kubeconfig files, exec plugins, in-cluster service accounts.

Returns a `Connection`: address, TLS context (always verifying, unless the kubeconfig explicitly disables that) and a
source of bearer tokens that renews them. Tokens live in memory only and never reach a log or an error message.
"""

import asyncio
import base64
import binascii
import json
import os
import ssl
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail.model.text import safe

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_REREAD_SECONDS: Final = 60.0
_EXEC_TIMEOUT_SECONDS: Final = 60.0
_RENEW_AT_MOST_EVERY: Final = 5.0
_RENEW_BEFORE_END: Final = 60.0
_WORDS_MAX: Final = 4
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz"


class UnreachableError(Exception):
    """No answer: the server is away, or the connection broke."""


class CredentialsError(UnreachableError):
    """The cluster can't be reached as configured; one sentence for people, without any secret."""


@dataclass(slots=True, kw_only=True)
class Connection:
    """Where the API server is and how to talk to it. `headers`: impersonation, if the kubeconfig has it."""

    server: str
    ssl_context: ssl.SSLContext | None
    tokens: "TokenSource"
    namespace: str = "default"
    name: str = ""
    server_name: str | None = None
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, kw_only=True)
class TokenSource:
    """A bearer token that is renewed: fixed, from a file that the kubelet rotates, or from an exec plugin."""

    fixed: str = field(default="", repr=False)
    file: Path | None = None
    plugin: "Plugin | None" = None
    ssl_context: ssl.SSLContext | None = None
    _token: str = field(default="", repr=False)
    _until: float = 0.0
    _renewed_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def token(self) -> str:
        """Return the token to use now, or nothing if a client certificate is used."""
        if self.file is None and self.plugin is None:
            return self.fixed
        if time.monotonic() < self._until:
            return self._token
        async with self._lock:
            if time.monotonic() >= self._until:
                await self._renew()
        return self._token

    def forget(self, token: str) -> bool:
        """Forget a token that the server refused; return whether another may be fetched (every few seconds at most)."""
        if self.file is None and self.plugin is None:
            return False
        if token != self._token:
            return True  # it has been renewed since that request was sent
        if time.monotonic() - self._renewed_at < _RENEW_AT_MOST_EVERY:
            return False
        self._until = 0.0
        return True

    async def _renew(self) -> None:
        self._renewed_at = time.monotonic()
        if self.file is not None:
            self._read_file(self.file)
        elif self.plugin is not None:
            status = await self.plugin.run()
            token = str(status.get("token") or "")
            if token and not _is_token(token):
                raise CredentialsError(f"the exec plugin {self.plugin.command!r} printed no usable token")
            self._token = token
            self._until = time.monotonic() + _seconds_left(status.get("expirationTimestamp"))
            certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
            if certificate and key and self.ssl_context is not None:
                _load_pair(self.ssl_context, str(certificate).encode(), str(key).encode())

    def _read_file(self, file: Path) -> None:
        """Read the file's token; if it can't be read just now, keep the last one."""
        try:
            token = file.read_text().strip()
            problem = "" if _is_token(token) else "it holds no token"
        except OSError as error:
            token, problem = "", error.strerror or "unreadable"
        except UnicodeDecodeError:
            token, problem = "", "it is not text"
        if problem and not self._token and not self.fixed:
            raise CredentialsError(f"the token file {file} can't be read ({problem})")
        self._token = (self._token or self.fixed) if problem else token
        self._until = time.monotonic() + _TOKEN_REREAD_SECONDS


def _is_token(text: str) -> bool:
    """Return whether a text can be sent as a token: one printable ASCII word."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """Return the cluster of the given kubeconfig, $KUBECONFIG, ~/.kube/config, or the one this pod runs in."""
    paths = _kubeconfig_paths(kubeconfig)
    if paths:
        return _from_kubeconfig(_merge(paths), context)
    if "KUBERNETES_SERVICE_HOST" in os.environ and (_ACCOUNT / "token").exists():
        return _in_cluster()
    raise CredentialsError(
        "no cluster to talk to: there is no kubeconfig ($KUBECONFIG or ~/.kube/config) and this is not a pod; "
        "pass --kubeconfig FILE (plan and others that only look also take -f FILE, a captured cluster)"
    )


def _kubeconfig_paths(given: str | None) -> list[Path]:
    if given:
        path = Path(given).expanduser()
        if not path.exists():
            raise CredentialsError(f"the kubeconfig {given} does not exist; check the name after --kubeconfig")
        return [path]
    listed = os.environ.get("KUBECONFIG", "")
    if listed:
        found = [Path(entry).expanduser() for entry in listed.split(os.pathsep) if entry]
        existing = [path for path in found if path.exists()]
        if not existing:
            raise CredentialsError(
                f"$KUBECONFIG names {listed}, which does not exist; correct it, or pass --kubeconfig FILE"
            )
        return existing
    home = Path("~/.kube/config").expanduser()
    return [home] if home.exists() else []


def _merge(paths: list[Path]) -> dict[str, Any]:
    """Merge kubeconfigs as kubectl does: the first to name a thing wins."""
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for path in paths:
        try:
            tree = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            raise CredentialsError(f"the kubeconfig {path} can't be read: it is no YAML") from None
        if not isinstance(tree, dict):
            raise CredentialsError(f"the kubeconfig {path} holds no configuration")
        for section, inner in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for entry in tree.get(section) or []:
                if not isinstance(entry, dict) or not isinstance(entry.get(inner) or {}, dict):
                    raise CredentialsError(f"the kubeconfig {path} has an entry under {section} that is not a map")
                body = {**(entry.get(inner) or {}), "_folder": path.parent}
                merged[section].setdefault(entry.get("name", ""), body)
        merged["current-context"] = merged["current-context"] or tree.get("current-context") or ""
    return merged


def _from_kubeconfig(config: dict[str, Any], wanted: str | None) -> Connection:
    name = wanted or config["current-context"]
    context = config["contexts"].get(name)
    if context is None:
        known = ", ".join(sorted(config["contexts"])) or "none"
        raise CredentialsError(f"the kubeconfig has no context {name!r}; it has: {known}")
    cluster = config["clusters"].get(context.get("cluster", ""))
    if cluster is None or not cluster.get("server"):
        raise CredentialsError(f"context {name!r} names cluster {context.get('cluster')!r}, which has no server")
    user = config["users"].get(context.get("user", ""), {"_folder": Path()})
    ssl_context = _ssl_context(cluster, user) if str(cluster["server"]).startswith("https") else None
    tokens = TokenSource(fixed=str(user.get("token") or ""), ssl_context=ssl_context)
    if user.get("tokenFile"):
        tokens.file = user["_folder"] / user["tokenFile"]
    elif not tokens.fixed and user.get("exec"):
        tokens.plugin = Plugin(spec=user["exec"], folder=user["_folder"], cluster=cluster)
    elif user.get("auth-provider"):
        raise CredentialsError(
            f"user {context.get('user')!r} uses an auth-provider, which Kubernetes has removed; use its exec plugin"
        )
    return Connection(
        server=str(cluster["server"]).rstrip("/"),
        ssl_context=ssl_context,
        tokens=tokens,
        namespace=context.get("namespace") or "default",
        name=name,
        server_name=cluster.get("tls-server-name") or None,
        proxy=cluster.get("proxy-url") or None,
        headers=_impersonation(user),
    )


def _impersonation(user: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the headers that act as somebody else: user, uid, groups and extra fields, as kubectl sends them."""
    somebody, uid = user.get("as"), user.get("as-uid")
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not somebody:
        if uid or groups or extra:
            raise CredentialsError("the kubeconfig has as-uid, as-groups or as-user-extra without as: add the user")
        return ()
    lists = [groups, *(extra.values() if isinstance(extra, dict) else [None])]
    if not all(isinstance(entry, list) for entry in lists):
        raise CredentialsError("as-groups must be a list and as-user-extra a map of lists in the kubeconfig")
    headers = [("Impersonate-User", str(somebody)), *([("Impersonate-Uid", str(uid))] if uid else [])]
    headers += [("Impersonate-Group", str(group)) for group in groups]
    headers += [(f"Impersonate-Extra-{_header_name(key)}", str(text)) for key in extra for text in extra[key]]
    if any(not text.isprintable() for _, text in headers):
        raise CredentialsError("a name to impersonate in the kubeconfig has characters that no header can have")
    return tuple(headers)


def _header_name(key: object) -> str:
    """Return a key of an extra field as it may stand in a header's name: all else percent-encoded, as kubectl does."""
    legal = frozenset(b"!#$&'*+-.^_`|~" + b"0123456789" + _LETTERS + _LETTERS.upper())
    return "".join(chr(byte) if byte in legal else f"%{byte:02X}" for byte in str(key).encode())


def _in_cluster() -> Connection:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if ":" in host:
        host = f"[{host}]"
    try:
        context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    except (OSError, ssl.SSLError):
        raise CredentialsError(f"the cluster's certificate {_ACCOUNT / 'ca.crt'} can't be read") from None
    namespace = _ACCOUNT / "namespace"
    return Connection(
        server=f"https://{host}:{port}",
        ssl_context=context,
        tokens=TokenSource(file=_ACCOUNT / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        name="in-cluster",
    )


def _ssl_context(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    try:
        authority = _material(cluster, "certificate-authority")
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify") is True:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = _material(user, "client-certificate"), _material(user, "client-key")
        if certificate and key:
            _load_pair(context, certificate, key)
    except (ssl.SSLError, UnicodeDecodeError, binascii.Error):
        raise CredentialsError("the kubeconfig's certificates can't be read: a damaged or cut PEM block") from None
    except OSError as error:
        raise CredentialsError(
            f"the kubeconfig names {error.filename}, which can't be read ({error.strerror})"
        ) from None
    return context


def _material(section: dict[str, Any], key: str) -> bytes | None:
    """Return PEM bytes given inline (`key-data`) or by file name, relative to the kubeconfig."""
    inline = section.get(f"{key}-data")
    if inline:
        return base64.b64decode("".join(str(inline).split()), validate=True)
    if section.get(key):
        return (section["_folder"] / section[key]).read_bytes()  # type: ignore[no-any-return]
    return None


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate from a private temporary file: the ssl module takes it only from a file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


@dataclass(slots=True, kw_only=True)
class Plugin:
    """An exec plugin of a kubeconfig (client.authentication.k8s.io)."""

    spec: dict[str, Any] = field(repr=False)
    folder: Path
    cluster: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def command(self) -> str:
        """Return the program; one that is given with a folder is found from the kubeconfig's own."""
        given = str(self.spec.get("command") or "")
        return str(self.folder / given) if "/" in given else given

    async def run(self) -> dict[str, Any]:
        """Run it and return the status of the ExecCredential that it printed."""
        command = self.command
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *[str(argument) for argument in self.spec.get("args") or []],
                env=self._environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError:
            hint = self.spec.get("installHint") or f"install {command} or put it on the PATH"
            raise CredentialsError(f"the kubeconfig's exec plugin {command!r} can't be run: {hint}") from None
        try:
            async with asyncio.timeout(_EXEC_TIMEOUT_SECONDS):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            patience = f"{_EXEC_TIMEOUT_SECONDS:g} s"
            raise CredentialsError(f"the exec plugin {command!r} gave no answer in {patience}") from None
        if process.returncode != 0:
            said = _last_words(err)
            raise CredentialsError(f"the exec plugin {command!r} failed with exit status {process.returncode}{said}")
        try:
            return dict(json.loads(out)["status"])
        except (ValueError, KeyError, TypeError):
            said = _last_words(err)
            raise CredentialsError(f"the exec plugin {command!r} printed no ExecCredential{said}") from None

    def _environment(self) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": False}
        if self.spec.get("provideClusterInfo"):
            spec["cluster"] = {key: value for key, value in self.cluster.items() if not key.startswith("_")}
        version = self.spec.get("apiVersion") or "client.authentication.k8s.io/v1"
        environment = dict(os.environ)
        environment.update({str(entry["name"]): str(entry["value"]) for entry in self.spec.get("env") or []})
        environment["KUBERNETES_EXEC_INFO"] = json.dumps(
            {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        )
        return environment


def _seconds_left(expiry: object) -> float:
    """Return how long a plugin's token may be used: until a minute before it expires; a day if it doesn't say.

    Never less than a few seconds: with a wrong local clock every token looks expired, and the server decides.
    """
    if not isinstance(expiry, str):
        return 86400.0
    try:
        ends = datetime.fromisoformat(expiry)
    except ValueError:
        return _RENEW_AT_MOST_EVERY
    return max(_RENEW_AT_MOST_EVERY, ends.timestamp() - time.time() - _RENEW_BEFORE_END)


def _last_words(err: bytes) -> str:
    """Return what a plugin wrote to its standard error, as the end of a sentence: it usually says what to do."""
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    return f"; it says: {safe(' / '.join(lines[-_WORDS_MAX:]), 500)}" if lines else ""
