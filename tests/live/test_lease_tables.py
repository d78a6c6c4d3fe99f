"""Leader election on a clock that the test moves: every answer of the server, every limit of time."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from dovetail.live import clocks
from dovetail.live.kubernetes.client import ApiClient, ApiError, MalformedError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.lease import RELEASE_IDENTITY, LeaderElection

Tree = dict[str, Any]
Answer = Tree | bytes | Exception


class Server:
    """Returns the given answers in order; records the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Tree | None, int]] = []

    async def request(self, method: str, path: str, *, body: bytes | None = None, tries: int = 0, **_: Any) -> bytes:
        """Return the next answer."""
        assert "/leases" in path
        self.asked.append((method, None if body is None else msgspec.json.decode(body), tries))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, bytes) else msgspec.json.encode(answer)

    def malformed(self, path: str, why: str) -> MalformedError:
        """Return the exception to raise."""
        return MalformedError(why)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time in a list, so that a test can set it."""
    now = [1000.0]
    fake = SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0], clock_gettime=lambda which: now[0])
    monkeypatch.setattr(clocks, "time", fake)
    return now


def election(*answers: Answer, **changes: Any) -> tuple[LeaderElection, Server, list[str]]:
    """Return a candidate, its server, and its callbacks and notes."""
    server, told = Server(*answers), list[str]()

    async def gained() -> None:
        told.append("gained")

    async def lost() -> None:
        told.append("lost")

    made = LeaderElection(
        client=cast("ApiClient", server), namespace="d", name="x", identity="me", gained=gained, lost=lost,
        note=told.append,
    )  # fmt: skip
    for key, value in changes.items():
        setattr(made, key, value)
    return made, server, told


def lease(holder: str | None = None, version: str = "7", **spec: Any) -> Tree:
    """Return a Lease as the server shows it."""
    return {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder, **spec}}


def error(status: int) -> ApiError:
    """Return a refusal."""
    return ApiError(status, "", "no")


def renewed(age: float, clock: list[float]) -> clocks.Moment:
    """Return the time of the last renewal."""
    return clocks.Moment(steady=clock[0] - age, wall=clock[0] - age)


# ---------------------------------------------------------------- what may be done when


@pytest.mark.parametrize(
    ("leading", "age", "acts"),
    [(True, 0.0, True), (True, 19.9, True), (True, 20.0, False), (False, 0.0, False), (True, None, False)],
)
def test_who_may_act(clock: list[float], leading: bool, age: float | None, acts: bool) -> None:
    """A leader may act for as long as no other can have taken over."""
    made, _, _ = election(leading=leading, _renewed=None if age is None else renewed(age, clock))
    assert made.may_act == acts
    assert made.age == pytest.approx(float("inf") if age is None else age)


@pytest.mark.parametrize(("silent", "alive"), [(0, True), (99.9, True), (100.0, False), (200.0, False)])
def test_who_is_alive(clock: list[float], silent: float, alive: bool) -> None:
    """A candidate is alive if it tried within a minute and twice the deadline."""
    made, _, _ = election(_beat=clock[0] - silent)
    assert made.is_alive == alive


# ---------------------------------------------------------------- one attempt


MINE = {"holderIdentity": "me", "leaseDurationSeconds": 30}


def tried(made: LeaderElection) -> bool | None:
    """Return the result of an attempt."""
    return asyncio.run(made._try())


def without_times(tree: Tree | None) -> Tree:
    """Return the written object without its times."""
    assert tree is not None
    spec = tree["spec"]
    assert spec.get("acquireTime", spec["renewTime"]) == spec["renewTime"]
    return {key: value for key, value in spec.items() if not key.endswith("Time")}


def test_a_lease_that_is_not_there_is_made(clock: list[float]) -> None:
    """A missing Lease is created with this replica as its holder."""
    made, server, _ = election(error(404), {"metadata": {"resourceVersion": "1"}})
    assert tried(made) is True
    assert [(method, tries) for method, _, tries in server.asked] == [("GET", 1), ("POST", 1)]
    assert without_times(server.asked[1][1]) == {**MINE, "leaseTransitions": 0}
    assert (server.asked[1][1] or {})["metadata"] == {"name": "x", "namespace": "d"}
    assert "acquireTime" in (server.asked[1][1] or {})["spec"]
    assert made._version == "1"


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        ({}, {**MINE, "leaseTransitions": 0}),
        ({"renewTime": "then"}, {**MINE, "leaseTransitions": 1}),
        ({"renewTime": "then", "leaseTransitions": 4}, {**MINE, "leaseTransitions": 5}),
        ({"leaseTransitions": 4}, {**MINE, "leaseTransitions": 4}),
        ({"holderIdentity": "", "renewTime": "then", "leaseTransitions": 4}, {**MINE, "leaseTransitions": 5}),
        ({"holderIdentity": "me", "renewTime": "then", "leaseTransitions": 4}, MINE),
    ],
)
def test_a_free_lease_is_taken(clock: list[float], spec: Tree, written: Tree) -> None:
    """A free Lease is taken at the version that was read; a change of the holder is counted."""
    made, server, _ = election({"metadata": {"resourceVersion": "7"}, "spec": spec}, lease("me", "8"), _noted="old")
    assert tried(made) is True
    method, body, tries = server.asked[1]
    assert (method, tries, (body or {})["metadata"]) == ("PATCH", 1, {"resourceVersion": "7"})
    assert without_times(body) == written
    assert (made._version, made._noted) == ("8", "")


def test_a_lease_without_a_spec_is_free(clock: list[float]) -> None:
    """A Lease without a spec, such as one created by hand, is free."""
    made, _, _ = election({"metadata": {"resourceVersion": "7"}}, lease("me", "8"))
    assert tried(made) is True


@pytest.mark.parametrize(
    ("duration", "waited", "held"),
    [
        (10, 0, False),
        (10, 9.9, False),
        (10, 10, True),
        (1, 1.9, False),
        (1, 2.0, True),
        (None, 1.9, False),
        (None, 2.0, True),
    ],
)
def test_a_lease_of_another_is_waited_for(clock: list[float], duration: int | None, waited: float, held: bool) -> None:
    """Another's Lease is waited for: its duration, at least one retry, since its last observed change."""
    theirs = lease("other", leaseDurationSeconds=duration, renewTime="then")
    made, server, _ = election(theirs, theirs, lease("me", "8"))
    assert tried(made) is False
    clock[0] += waited
    assert tried(made) is held
    assert [method for method, _, _ in server.asked] == ["GET", "GET", *(["PATCH"] if held else [])]


def test_a_lease_without_a_duration_is_waited_for_one_retry(clock: list[float]) -> None:
    """A Lease without a duration is waited for one retry."""
    theirs = lease("other", leaseDurationSeconds=0)
    made, _, _ = election(theirs, theirs, lease("me", "8"), retry_period=0.25)
    assert tried(made) is False
    clock[0] += 0.25
    assert tried(made) is True


@pytest.mark.parametrize("change", [{"renewTime": "later"}, {"leaseTransitions": 5}, {"holderIdentity": "third"}])
def test_a_lease_that_changes_is_waited_for_anew(clock: list[float], change: Tree) -> None:
    """A change of holder, time or transitions restarts the wait."""
    theirs = lease("other", leaseDurationSeconds=10, renewTime="then", leaseTransitions=4)
    changed = {**theirs, "spec": {**theirs["spec"], **change}}
    made, _, _ = election(theirs, changed, changed, changed, lease("me"))
    assert tried(made) is False
    clock[0] += 9
    assert tried(made) is False
    clock[0] += 9.9
    assert tried(made) is False
    clock[0] += 0.1
    assert tried(made) is True


def test_a_leader_renews_with_one_call(clock: list[float]) -> None:
    """A leader renews with one call on the version of its last write."""
    made, server, _ = election(lease("me", "9"), leading=True, _version="8", _noted="old", _renewed=renewed(0, clock))
    assert tried(made) is True
    [(method, body, tries)] = server.asked
    assert (method, tries, (body or {})["metadata"]) == ("PATCH", 1, {"resourceVersion": "8"})
    assert without_times(body) == MINE
    assert (made._version, made._noted) == ("9", "")


@pytest.mark.parametrize("status", [404, 409])
def test_a_leader_reads_where_somebody_wrote(clock: list[float], status: int) -> None:
    """After a conflict a leader reads the Lease, which may have another holder."""
    for holder, held in (("me", True), ("other", False)):
        made, server, _ = election(
            error(status), lease(holder, leaseDurationSeconds=5), lease("me", "9"),
            leading=True, _version="8", _renewed=renewed(0, clock),
        )  # fmt: skip
        assert tried(made) is held
        assert [method for method, _, _ in server.asked] == ["PATCH", "GET", *(["PATCH"] if held else [])]


@pytest.mark.parametrize(
    ("problem", "note"),
    [
        (error(403), "not allowed to use Leases in namespace d: add "),
        (error(500), "the Lease can't be renewed (500: no); trying again"),
        (error(409), ""),
        (error(410), "the Lease can't be renewed (410: no); trying again"),
        (UnreachableError("no route"), "the Lease can't be renewed (no route); trying again"),
        (TimeoutError(), "the Lease can't be renewed (no answer in time); trying again"),
        (b"{}x", "the Lease can't be renewed ("),
    ],
)
def test_what_is_said_when_it_fails(clock: list[float], problem: Answer, note: str) -> None:
    """A failure is logged once, the leader is unknown, and the next attempt reads first."""
    made, server, told = election(problem, problem, leading=True, _version="8", _renewed=renewed(0, clock))
    if isinstance(problem, ApiError) and problem.status == 409:
        server.answers.insert(1, error(409))
        server.answers.append(error(409))
    assert tried(made) is None
    assert made._version == ""
    assert tried(made) is None
    assert len(told) == (1 if note else 0)
    assert not note or told[0].startswith(note)
    assert [method for method, _, _ in server.asked][-1] == "GET"


def test_a_refusal_after_answers_is_no_missing_right_yet(clock: list[float]) -> None:
    """A server that has just restarted refuses for a moment; only a refusal that lasts names the rule."""
    made, _, told = election(lease(), lease("me"), error(403), error(403))
    assert tried(made) is True
    assert tried(made) is None
    clock[0] += 30
    assert tried(made) is None
    assert [note.partition(":")[0] for note in told] == [
        "the Lease can't be renewed (403",
        "not allowed to use Leases in namespace d",
    ]


def test_who_holds_the_lease_is_said_once(clock: list[float]) -> None:
    """A process that waits names the holder, and what to do where a release holds it."""
    said: list[str] = []
    held = lease(RELEASE_IDENTITY, leaseDurationSeconds=3600)
    made, _, _ = election(lease("you"), lease("you", renewTime="t"), held, held, waits=said.append)
    for _ in range(4):
        assert tried(made) is False
    assert said[0] == "waiting: you holds the Lease"
    assert len(said) == 2
    assert "release --stop-controller" in said[1]
    assert "60 min" in said[1]
    assert "delete the Lease" in said[1]


def test_a_lease_that_was_deleted_after_a_release_is_made_a_minute_later(clock: list[float]) -> None:
    """An uninstall deletes the Lease a moment before it ends this process, which must not lead again meanwhile."""
    gone, held = error(404), lease(RELEASE_IDENTITY, leaseDurationSeconds=3600)
    said: list[str] = []
    made, server, _ = election(held, gone, gone, gone, lease("me"), waits=said.append)
    assert [tried(made), tried(made)] == [False, False]
    clock[0] += 59
    assert tried(made) is False
    clock[0] += 1
    assert tried(made) is True
    assert [method for method, _, _ in server.asked] == ["GET", "GET", "GET", "GET", "POST"]
    assert len(said) == 2


@pytest.mark.parametrize(("seconds", "written"), [(30.0, 30), (0.2, 1), (1.6, 2), (0.0, 1)])
def test_duration_that_is_written(clock: list[float], seconds: float, written: int) -> None:
    """The written duration is in whole seconds, at least one."""
    made, server, _ = election(lease(), lease("me"), lease_duration=seconds)
    assert tried(made) is True
    assert (server.asked[1][1] or {})["spec"]["leaseDurationSeconds"] == written


@pytest.mark.parametrize(
    ("leading", "age", "patience"),
    [(False, 0.0, 20.0), (True, 0.0, 10.0), (True, 15.0, 5.0), (True, 19.95, 0.1), (True, 30.0, 0.1)],
)
def test_how_long_an_attempt_may_take(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, leading: bool, age: float, patience: float
) -> None:
    """An attempt has the deadline; a leader's has the remaining time, at most half of the deadline."""
    waited: list[float] = []
    real = asyncio.timeout

    def timeout(seconds: float) -> Any:
        waited.append(seconds)
        return real(60)

    made, _, _ = election(lease("me"), lease("me"), leading=leading, _renewed=renewed(age, clock))
    monkeypatch.setattr("dovetail.live.kubernetes.lease.asyncio.timeout", timeout)
    tried(made)
    assert waited[0] == pytest.approx(patience)


# ---------------------------------------------------------------- over time


def lived(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, attempts: list[tuple[bool | None, float]], *release: Answer
) -> tuple[list[str], list[float], Server, LeaderElection]:
    """Run a candidate through these attempts, each with its duration; then stop it."""
    made, server, told = election(*release)
    slept: list[float] = []
    left = list(attempts)

    async def attempt() -> bool | None:
        held, seconds = left.pop(0)
        clock[0] += seconds
        return held

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += max(0.0, seconds)
        if not left:
            raise asyncio.CancelledError

    async def live() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(LeaderElection, "_try", lambda self: attempt())
            patch.setattr("dovetail.live.kubernetes.lease.asyncio.sleep", sleep)
            await made.run()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(live())
    return told, slept, server, made


@pytest.mark.parametrize(
    ("attempts", "told"),
    [
        ([(True, 0)], ["gained"]),
        ([(True, 0), (True, 0)], ["gained"]),
        ([(False, 0), (None, 0)], []),
        ([(True, 0), (False, 0)], ["gained", "lost"]),
        ([(True, 0), (None, 0)], ["gained"]),
        ([(True, 0), (None, 17.9)], ["gained"]),
        ([(True, 0), (None, 18.0)], ["gained", "lost"]),
        ([(True, 0), (None, 9), (None, 9)], ["gained", "lost"]),
        ([(True, 0), (None, 9), (True, 9), (None, 9)], ["gained"]),
        ([(True, 0), (False, 0), (True, 0)], ["gained", "lost", "gained"]),
    ],
)
def test_leadership_comes_and_goes(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, attempts: list[tuple[bool | None, float]], told: list[str]
) -> None:
    """Leadership is lost to another at once, and without an answer at the deadline."""
    said, slept, server, made = lived(clock, monkeypatch, attempts, lease("me"), lease(None))
    assert said == told
    assert not made.leading
    assert slept == [pytest.approx(max(0.0, 2.0 - seconds)) for _, seconds in attempts]
    leads = bool(told) and told[-1] == "gained"
    assert [method for method, _, _ in server.asked] == (["GET", "PATCH"] if leads else [])


@pytest.mark.parametrize(
    ("answers", "writes"),
    [
        ((lease("me", "9"), lease(None)), True),
        ((lease("other"),), False),
        (({"metadata": {}},), False),
        ((error(500),), False),
        ((UnreachableError("gone"),), False),
    ],
)
def test_a_leader_that_stops_gives_the_lease_back(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, answers: tuple[Answer, ...], writes: bool
) -> None:
    """A leader that stops releases only its own Lease, and ignores a failure."""
    _, _, server, _ = lived(clock, monkeypatch, [(True, 0)], *answers)
    assert [method for method, _, _ in server.asked] == ["GET", *(["PATCH"] if writes else [])]
    if writes:
        body = server.asked[1][1] or {}
        assert body["spec"] == {"holderIdentity": None, "leaseDurationSeconds": 1}
        assert body["metadata"] == {"resourceVersion": "9"}


def test_a_beat_is_noted_at_every_attempt(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt is recorded when it begins."""
    _, _, _, made = lived(clock, monkeypatch, [(False, 0), (False, 1)])
    assert made._beat == 1002.0
