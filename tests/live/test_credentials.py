"""Kubeconfig forms, exec plugins, token files and service accounts; no secret is ever shown."""

import asyncio
import base64
import json
import sys
import textwrap
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.live.kubernetes import credentials
from dovetail.live.kubernetes.credentials import Connection, CredentialsError, connect

SECRET = "s3cr3t-token"


def _write(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, name: str = "config") -> Path:
    path = folder / name
    tree = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "ctx", "context": {"cluster": "c", "user": "u", "namespace": "ours"}}],
        "current-context": "ctx",
    }
    path.write_text(yaml.safe_dump(tree))
    return path


def _token(connection: Connection) -> str:
    return asyncio.run(connection.tokens.token())


def _plugin(folder: Path, body: str) -> dict[str, Any]:
    script = folder / "plugin.py"
    script.write_text(textwrap.dedent(body))
    return {"command": sys.executable, "args": [str(script)], "apiVersion": "client.authentication.k8s.io/v1"}


def test_token(tmp_path: Path) -> None:
    """The kubeconfig has a token, the server without its last slash, and the context's namespace."""
    found = connect(str(_write(tmp_path, {"token": SECRET})))
    assert (found.server, found.namespace, found.name, _token(found)) == ("https://127.0.0.1:1", "ours", "ctx", SECRET)


def test_nothing_shows_a_secret(tmp_path: Path) -> None:
    """The repr of a connection and its parts has no token."""
    plugin = _plugin(tmp_path, "print('no')") | {"env": [{"name": "PASSWORD", "value": SECRET}]}
    for user in ({"token": SECRET}, {"exec": plugin}):
        assert SECRET not in repr(connect(str(_write(tmp_path, user))))


def test_several_files_are_merged_the_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$KUBECONFIG may list files; the first definition wins, and a missing file is ignored."""
    first = _write(tmp_path, {"token": "first"}, name="a")
    second = _write(tmp_path, {"token": "second"}, {"server": "https://other"}, name="b")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{first}:{second}")
    assert _token(connect()) == "first"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}")
    with pytest.raises(CredentialsError, match="does not exist"):
        connect()


def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotated token is read when it is due or when the server refuses the old one; a missing file is tolerated."""
    file = tmp_path / "token"
    file.write_text("one\n")
    found = connect(str(_write(tmp_path, {"token": "older", "tokenFile": "token"})))

    async def context() -> None:
        assert await found.tokens.token() == "one"
        file.write_text("two\n")
        assert await found.tokens.token() == "one", "not read for every request"
        found.tokens._renewed_at -= 10
        assert found.tokens.forget("one") is True
        assert await found.tokens.token() == "two"
        assert found.tokens.forget("one") is True, "a late refusal of the old one"
        assert found.tokens.forget("two") is False, "not again within seconds"
        file.unlink()
        found.tokens._until = 0.0
        assert await found.tokens.token() == "two"

    asyncio.run(context())


def test_an_exec_plugin_with_an_end(tmp_path: Path) -> None:
    """A plugin runs once while its token is valid and again after it; it gets the cluster if it asks."""
    ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    plugin = _plugin(
        tmp_path,
        f"""
        import json, os, pathlib
        info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
        assert info["kind"] == "ExecCredential" and info["spec"]["interactive"] is False
        count = pathlib.Path({str(tmp_path / "count")!r})
        runs = int(count.read_text()) + 1 if count.exists() else 1
        count.write_text(str(runs))
        token = f"token-{{runs}}-{{os.environ['EXTRA']}}-{{info['spec']['cluster']['server']}}"
        print(json.dumps({{"status": {{"token": token, "expirationTimestamp": {ends!r}}}}}))
        """,
    )
    plugin |= {"env": [{"name": "EXTRA", "value": "x"}], "provideClusterInfo": True}
    found = connect(str(_write(tmp_path, {"exec": plugin})))

    async def context() -> None:
        assert await found.tokens.token() == "token-1-x-https://127.0.0.1:1/"
        assert await asyncio.gather(*(found.tokens.token() for _ in range(5))) == ["token-1-x-https://127.0.0.1:1/"] * 5
        left = found.tokens._until - time.monotonic()
        assert 3500 < left <= 3541, "until a minute before it ends"
        found.tokens._until = 0.0
        assert (await found.tokens.token()).startswith("token-2")

    asyncio.run(context())


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("raise SystemExit(3)", "failed with exit status 3"),
        ("print('hello')", "printed no ExecCredential"),
        ("print('{}')", "printed no ExecCredential"),
        (
            "import sys; sys.exit('SSO token has expired; run aws sso login')",
            "exit status 1; it says: SSO token has expired; run aws sso login",
        ),
        ("import sys; print('first', file=sys.stderr); sys.exit('then\\x1b[2J')", r"it says: first / then\\u{1b}"),
        ("import sys; print('no account', file=sys.stderr)", "printed no ExecCredential; it says: no account"),
    ],
)
def test_a_plugin_that_fails(tmp_path: Path, body: str, wanted: str) -> None:
    """A plugin's error is one sentence, with its standard error and without its output."""
    found = connect(str(_write(tmp_path, {"exec": _plugin(tmp_path, body)})))
    with pytest.raises(CredentialsError, match=wanted):
        _token(found)


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    """The kubeconfig's install hint is printed; a relative path starts at the kubeconfig's folder."""
    found = connect(str(_write(tmp_path, {"exec": {"command": "./absent", "installHint": "run the installer"}})))
    with pytest.raises(CredentialsError, match="run the installer"):
        _token(found)
    assert found.tokens.plugin is not None
    assert found.tokens.plugin.command == str(tmp_path / "absent")


def test_a_plugin_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that hangs is killed."""
    monkeypatch.setattr(credentials, "_EXEC_TIMEOUT_SECONDS", 0.3)
    found = connect(str(_write(tmp_path, {"exec": _plugin(tmp_path, "import time; time.sleep(60)")})))
    with pytest.raises(CredentialsError, match="no answer"):
        _token(found)


def test_an_expired_looking_token_is_not_asked_for_at_every_request(tmp_path: Path) -> None:
    """With a wrong clock a token looks expired at once: the plugin does not run for every request."""
    old = {"status": {"token": "old", "expirationTimestamp": "2020-01-01T00:00:00Z"}}
    body = f"print({json.dumps(json.dumps(old))})"
    found = connect(str(_write(tmp_path, {"exec": _plugin(tmp_path, body)})))

    async def context() -> None:
        assert await found.tokens.token() == "old"
        assert found.tokens._until > time.monotonic()

    asyncio.run(context())


def test_acting_as_somebody_a_server_name_and_a_proxy(tmp_path: Path) -> None:
    """`as`, `tls-server-name` and `proxy-url` are used."""
    user = {"token": "t", "as": "jane", "as-groups": ["dev", "ops"]}
    found = connect(str(_write(tmp_path, user, {"tls-server-name": "api", "proxy-url": "http://p:3128"})))
    assert found.headers == (("Impersonate-User", "jane"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))
    assert (found.server_name, found.proxy) == ("api", "http://p:3128")


def test_uid_and_extra_fields_of_somebody_are_sent(tmp_path: Path) -> None:
    """`as-uid` and `as-user-extra` are headers, too, with keys encoded as kubectl encodes them."""
    extra = {"scopes": ["view", "edit"], "example.com/tenant": ["a"]}
    user = {"token": "t", "as": "jane", "as-uid": "u-1", "as-user-extra": extra}
    assert sorted(connect(str(_write(tmp_path, user))).headers) == [
        ("Impersonate-Extra-example.com%2Ftenant", "a"),
        ("Impersonate-Extra-scopes", "edit"),
        ("Impersonate-Extra-scopes", "view"),
        ("Impersonate-Uid", "u-1"),
        ("Impersonate-User", "jane"),
    ]


@pytest.mark.parametrize(
    ("user", "wanted"),
    [
        ({"as-uid": "u"}, "without as"),
        ({"as-groups": ["g"]}, "without as"),
        ({"as-user-extra": {"a": ["b"]}}, "without as"),
        ({"as": "jane", "as-groups": "g"}, "must be a list"),
        ({"as": "jane", "as-user-extra": ["a"]}, "map of lists"),
        ({"as": "jane", "as-user-extra": {"a": "b"}}, "map of lists"),
        ({"as": "ja\nne"}, "no header"),
    ],
)
def test_half_an_identity_is_refused(tmp_path: Path, user: dict[str, Any], wanted: str) -> None:
    """What can't be sent as written is an error, never ignored: the rights would be those of somebody else."""
    with pytest.raises(CredentialsError, match=wanted):
        connect(str(_write(tmp_path, {"token": "t", **user})))


@pytest.mark.parametrize(
    ("user", "cluster", "wanted"),
    [
        ({"auth-provider": {"name": "gcp"}}, {}, "auth-provider"),
        ({}, {"certificate-authority-data": base64.b64encode(b"junk").decode()}, "damaged or cut"),
        ({}, {"certificate-authority": "absent.crt"}, "absent.crt"),
        ({"client-certificate-data": "!!", "client-key-data": "!!"}, {}, "can't be read"),
    ],
)
def test_what_can_not_be_used(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], wanted: str) -> None:
    """Broken certificates and removed providers fail with one sentence."""
    with pytest.raises(CredentialsError, match=wanted):
        connect(str(_write(tmp_path, user, cluster)))


@pytest.mark.parametrize("text", ["- a list", "[", "clusters: [x]\n"])
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    """The error names the file."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CredentialsError, match="config"):
        connect(str(path))


def test_an_unknown_context_names_those_that_exist(tmp_path: Path) -> None:
    """An unknown `--context` lists the existing ones."""
    with pytest.raises(CredentialsError, match="no context 'prod'; it has: ctx"):
        connect(str(_write(tmp_path, {})), "prod")


def test_in_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kubeconfig the pod's own account is used; its token is read again when it is rotated."""
    from tests.support.certificates import write_certificates

    write_certificates(tmp_path)
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "namespace").write_text("dovetail-system")
    monkeypatch.setattr(credentials, "_ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    found = connect()
    assert (found.server, found.namespace, found.name) == ("https://[fd00::1]:6443", "dovetail-system", "in-cluster")
    assert _token(found) == "pod-token"
    (tmp_path / "ca.crt").write_text("junk")
    with pytest.raises(CredentialsError, match=r"ca\.crt"):
        connect()
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(CredentialsError, match="no cluster to talk to"):
        connect()
