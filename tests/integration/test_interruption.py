"""Signals, exceptions and drops at any point of a call: a handle, or nothing of ours; and nobody is locked out."""

from __future__ import annotations

import gc
import random
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

import ownership
from tests.support.processes import Child, Contender, eventually, files, is_locked, lock_directory, residue, running

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors in /proc")

TOOLS = """
import ctypes, fcntl, gc, random, signal, warnings
import leases
from ownership.testing import FakeClock
from tests.support.injection import Interrupter
from tests.support.processes import eventually, lock_directory, open_descriptors, residue
from ownership import _keeper
from pathlib import Path
warnings.simplefilter("ignore")

class Interruption(BaseException):
    pass

def interrupt(*_):
    raise Interruption

resource, other = Path(sys.argv[1]), Path(sys.argv[2])
RECORD = lock_directory(resource) / f"{resource.name}.json"

def touch_record():
    try:
        os.utime(RECORD)
    except FileNotFoundError:
        pass

def dead_record():
    "The bytes that an owner who died has left."
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        claim = ownership.acquire(resource)
        os.write(writing, RECORD.read_bytes())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reading, 65536)

def guards_are_free():
    for name in os.listdir(lock_directory(resource)):
        if name.endswith(".guard"):
            number = os.open(lock_directory(resource) / name, os.O_RDWR)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            finally:
                os.close(number)
    return True

def in_a_thread(function):
    "What became of it there."
    outcome = []
    def perform():
        outcome.append(attempt(function))
    thread = threading.Thread(target=perform, daemon=True)
    thread.start()
    thread.join(20)
    return outcome[0] if outcome else "still waiting"

def acquire_and_release():
    ownership.acquire(resource, also=[other]).release()

def faults(kept=False):
    "What is wrong now; *kept*: a claim is held."
    found = []
    _keeper.KEEPER.tick()  # it may have to finish what was interrupted
    try:
        eventually(guards_are_free, 3)  # the keeper may be inside just now
    except AssertionError:
        found.append("a guard is locked")
    if not kept:
        if residue(resource):
            found.append(f"left behind: {residue(resource)}")
        if (outcome := attempt(acquire_and_release)) is not None:
            found.append(f"the same thread cannot acquire: {outcome}")
        if (outcome := in_a_thread(acquire_and_release)) is not None:
            found.append(f"another thread cannot acquire: {outcome}")
    return found
"""

EVERYWHERE = (
    TOOLS
    + """
def also(_):
    return ownership.acquire(resource, also=[other])

def held():
    return ownership.acquire(resource, also=[other])

def dead():
    RECORD.write_bytes(DEAD)

def touch(claim):
    os.utime(RECORD)
    claim.verify()

def put_back(claim):
    RECORD.unlink(missing_ok=True)
    claim.verify()

def late():
    clock = FakeClock()
    claim = ownership.acquire(resource, also=[other], ttl=1.0, auto_renew=False, clock=clock)
    clock.advance(1)
    return claim

def lease(_):
    return ownership.acquire(resource, ttl=1.0, gate=leases.Gate(resource.parent / "gate"))

def inside(claim):
    with claim.critical():
        claim.verify()

def offer(claim):
    try:
        with claim.handover(timeout=0):
            pass
    except ownership.HandoverError:
        pass

class Stranger:
    "Another process that owns, and is asked to go."
    held = False
    def __init__(self):
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # it ends with us
            claim = ownership.acquire(resource)
            os.write(writing, b".")
            while True:
                signal.pause()
        os.read(reading, 1)
        os.close(reading)
        os.close(writing)
    def end(self, _=None):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
    def release(self):
        "End it, and remove what it left, but nothing of ours."
        self.end()
        RECORD.unlink(missing_ok=True)

def ask(_):
    try:
        ownership.replace(resource, grace=60, timeout=0)
    except ownership.AcquireTimeoutError:
        pass

def replace(stranger):
    return ownership.replace(resource, grace=60, on_wait=stranger.end)

OPERATIONS = {  # what it finds, and what is done with that
    "retire": (held, lambda claim: claim.retire("to end")),
    "ask": (Stranger, ask),
    "replace": (Stranger, replace),
    "acquire": (lambda: None, lambda _: ownership.acquire(resource)),
    "acquire-over-a-dead-owner": (dead, lambda _: ownership.acquire(resource)),
    "acquire-several": (lambda: None, also),
    "acquire-and-release": (lambda: None, lambda _: ownership.acquire(resource).release()),
    "release": (held, lambda claim: claim.release()),
    "announce": (held, lambda claim: claim.announce("serving")),
    "verify": (held, touch),
    "put-back": (held, put_back),
    "hand-over": (held, offer),
    "reclaim": (dead, lambda _: ownership.reclaim(resource)),
    "inspect": (held, lambda _: ownership.inspect(resource)),
    "lease": (lambda: None, lease),
    "late": (late, lambda claim: claim.verify()),
    "critical": (held, inside),
}

prepare, operate = OPERATIONS[sys.argv[3]]
first, step = map(int, sys.argv[4:6])
acquire_and_release()
DEAD = dead_record()
acquire_and_release()
elsewhere = ("_kernel", "_sweep", "_watch") if sys.argv[3] in ("ask", "replace") else ()  # best effort, or hints only
interrupter = Interrupter(interrupt, ("<string>", *(one.__file__ for one in sys.modules.values()
                          if one.__name__.startswith("ownership.") and one.__name__.endswith(elsewhere))))

def count_descriptors():
    "Without those of a look at another process, of which one that is interrupted may leave some open."
    foreign = ("pidfd", "/proc/") if sys.argv[3] in ("ask", "replace") else ()
    return sum(not any(word in one for word in foreign) for one in open_descriptors())

_keeper.KEEPER.tick()
before = count_descriptors()
number = first
while True:
    claim, made = prepare(), None
    try:
        made = interrupter.run(number, lambda: operate(claim))
    except Interruption:
        pass
    except BaseException as error:
        say({"number": number, "point": interrupter.point, "faults": [repr(error)]})
        os._exit(1)
    if not interrupter.point:
        say({"points": number - 1})
        os._exit(0)
    found = [] if made is None else ["the exception was swallowed"]
    if claim is not None and claim.held:
        if (outcome := attempt(claim.verify)) is not None:
            found.append(f"a claim that is held does not verify: {outcome}")
        found += faults(kept=True)
        claim.release()
    elif claim is not None and sys.argv[3] in ("retire", "ask", "replace"):
        _keeper.KEEPER.tick()
        del made
        made = None
        claim.release()
    del claim, made
    if prepare is dead:
        RECORD.unlink(missing_ok=True)
    found += faults()
    try:
        eventually(lambda: count_descriptors() <= before, 2)
    except AssertionError:
        found.append(f"descriptors leaked: {open_descriptors()}")
    if number // step % 50 == 0:
        say("look")
        hear()
    if found:
        say({"number": number, "point": interrupter.point, "faults": found})
        os._exit(1)
    number += step
"""
)
OPERATIONS = [  # a claim handed over is announced, waited for and taken back: very many points
    "acquire",
    "acquire-over-a-dead-owner",
    "acquire-several",
    "acquire-and-release",
    "release",
    "announce",
    "verify",
    "put-back",
    "hand-over",
    "reclaim",
    "inspect",
    "lease",
    "late",
    "critical",
    "retire",
    "ask",
    "replace",
]


_STEPS = {"hand-over": 7, "ask": 23, "replace": 31}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_at_many_points_of_a_call_leaves_a_handle_or_nothing(tmp_path: Path, operation: str) -> None:
    assert interrupted_everywhere(tmp_path, operation, _STEPS.get(operation, 2)) > 30


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_at_any_point_of_a_call_leaves_a_handle_or_nothing(tmp_path: Path, operation: str) -> None:
    assert interrupted_everywhere(tmp_path, operation, 1) > 30


def interrupted_everywhere(folder: Path, operation: str, step: int) -> int:
    """Every *step*-th point where a signal handler may raise, one by one; what is left must be usable by everybody.

    :returns: how many points the operation has
    """
    resource, failures, first, points = folder / "resource", [], 1, 0
    with Contender() as contender:
        while not points and len(failures) < 8:
            with running(EVERYWHERE, resource, folder / "other", operation, first, step) as child:
                while (heard := child.hear()) == "look":
                    assert contender.passes(resource)
                    child.say("go on")
                points = heard.get("points", 0)
                if not points:
                    failures.append(f"{heard['number']} {heard['point']}: {heard['faults']}")
                    first = heard["number"] + step
    assert not failures, "\n".join(failures)
    return int(points)


NESTED = (
    TOOLS
    + """
interrupted, inner, step = sys.argv[3], sys.argv[4], int(sys.argv[5])
state = {}

def acquire():
    return ownership.acquire(resource)

OUTER = {
    "acquire": lambda claim: attempt(acquire),
    "release": lambda claim: claim.release(),
    "announce": lambda claim: claim.announce("serving"),
    "verify": lambda claim: (touch_record(), claim.verify()),
}

def handler():
    claim = state["claim"]
    if inner == "acquire":
        state["second"] = attempt(acquire)
        return
    state["outcome"] = attempt(getattr(claim, inner), *(["draining"] if inner == "announce" else []))
    if inner == "release":
        state["held"] = claim.held

interrupter = Interrupter(handler, ("<string>",))
number = 1
while True:
    claim = acquire()
    state = {"claim": claim}
    found = []
    outcome = attempt(interrupter.run, number, lambda: OUTER[interrupted](claim))
    if not interrupter.point:
        say({"points": number - 1})
        os._exit(0)
    if inner == "release":
        if state["held"]:
            found.append("still held after release")
        if state["outcome"] is not None:
            found.append(f"release: {state['outcome']}")
        if isinstance(outcome, str) and outcome not in ("OwnershipLostError", "AlreadyOwnedError", "GuardTimeoutError"):
            found.append(f"{interrupted}: {outcome}")
        try:  # at once, unless the keeper is about to do it just now
            isinstance(outcome, ownership.Claim) or eventually(lambda: not residue(resource), 0.1)
        except AssertionError:
            found.append("its record is still there")
    elif isinstance(outcome, str) and outcome not in ("AlreadyOwnedError", "GuardTimeoutError"):
        found.append(f"{interrupted}: {outcome}")
    inside = state.get("outcome")
    if inside not in (None, "OwnershipLostError", "GuardTimeoutError"):
        found.append(f"{inner} inside: {inside}")
    second = state.get("second")
    if isinstance(second, ownership.Claim):
        if claim.held:
            found.append("two handles")
        second.release()
    elif second not in (None, "AlreadyOwnedError", "GuardTimeoutError"):
        found.append(f"acquire inside: {second}")
    if isinstance(outcome, ownership.Claim):
        if claim.held:
            found.append("two handles")
        outcome.release()
    claim.release()
    found += faults()
    if found:
        say({"point": f"{number} {interrupter.point}", "faults": found})
        os._exit(1)
    number += step
"""
)


@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("inner", ["release", "verify", "announce", "acquire"])
@pytest.mark.parametrize("interrupted", ["acquire", "release", "announce", "verify"])
def test_a_signal_handler_may_call_anything_in_the_middle_of_any_call(
    tmp_path: Path, interrupted: str, inner: str, step: int
) -> None:
    """It never waits for its own thread; a release there is carried out by the time the interrupted call is over."""
    with running(NESTED, tmp_path / "resource", tmp_path / "other", interrupted, inner, step) as child:
        heard = child.hear()
    assert "faults" not in heard, heard
    assert heard["points"] > 10


ALARMED = (
    TOOLS
    + """
operation, count, longest, seed = sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
random.seed(seed)
signal.signal(signal.SIGALRM, interrupt)
acquire_and_release()
_keeper.KEEPER.tick()
before = len(open_descriptors())

def alarmed(delay, function):
    "Whether it was interrupted, and its value."
    value = None
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            value = function()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interruption:
        return True, value
    return False, value

interrupted = 0
for number in range(count):
    delay = max(1e-6, random.uniform(0, longest))
    claim = None if operation == "acquire" else ownership.acquire(resource)
    if operation == "acquire":
        hit, claim = alarmed(delay, lambda: ownership.acquire(resource))
    elif operation == "announce":
        hit, _ = alarmed(delay, lambda: claim.announce("serving", data={"number": number}))
    elif operation == "verify":
        touch_record()
        hit, _ = alarmed(delay, claim.verify)
    else:
        hit, _ = alarmed(delay, claim.release)
    interrupted += hit
    ours = residue(resource)
    if claim is not None and claim.held:
        claim.verify()
        claim.release()
        ours = residue(resource)
    claim = None
    if ours and not eventually(lambda: not residue(resource), 2):
        say({"number": number, "left": sorted(residue(resource))})
        os._exit(1)
    eventually(guards_are_free, 3)
    if number % 50 == 0:
        say("look")
        hear()
found = faults()
eventually(lambda: len(open_descriptors()) <= before, 5)
say({"interrupted": interrupted, "faults": found})
"""
)


@pytest.mark.parametrize(("longest", "count"), [(0.005, 300), (0.0003, 1000)], ids=["within-5-ms", "within-300-us"])
@pytest.mark.parametrize("operation", ["acquire", "release", "announce", "verify"])
def test_real_alarms_at_random_moments_leave_a_handle_or_nothing(
    tmp_path: Path, operation: str, longest: float, count: int
) -> None:
    alarmed(tmp_path, operation, count if operation == "acquire" else count // 8, longest, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("longest", [0.005, 0.001, 0.0003, 0.0001])
@pytest.mark.parametrize("operation", ["acquire", "release", "announce", "verify"])
def test_thousands_of_real_alarms_leave_a_handle_or_nothing(
    tmp_path: Path, operation: str, longest: float, seed: int
) -> None:
    alarmed(tmp_path, operation, 2000, longest, seed)


def alarmed(folder: Path, operation: str, count: int, longest: float, seed: int) -> None:
    with (
        Contender() as contender,
        running(ALARMED, folder / "resource", folder / "other", operation, count, longest, seed) as child,
    ):
        while (heard := child.hear()) == "look":
            assert contender.passes(folder / "resource", timeout=2)
            child.say("go on")
        assert not heard.get("left"), heard
        assert not heard["faults"], heard
        assert heard["interrupted"] > (0 if longest > 0.001 else count // 100)


ASYNCHRONOUS = (
    TOOLS
    + """
count = int(sys.argv[3])
random.seed(3)
acquire_and_release()
_keeper.KEEPER.tick()
before = len(open_descriptors())
hits = 0
for number in range(count):
    ready = threading.Event()
    outcome = []
    def work():
        try:
            ready.set()
            while True:
                claim = ownership.acquire(resource)
                claim.announce("serving")
                claim.verify()
                claim.release()
        except Interruption:
            outcome.append("interrupted")
        except BaseException as error:
            outcome.append(repr(error))
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    end = time.perf_counter() + random.uniform(0, 0.002)
    while time.perf_counter() < end:
        pass
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interruption))
    thread.join(20)
    if thread.is_alive() or outcome != ["interrupted"]:
        say({"number": number, "outcome": outcome})
        os._exit(1)
    if found := faults():
        say({"number": number, "outcome": found})
        os._exit(1)
eventually(lambda: len(open_descriptors()) <= before, 5)
say({"outcome": None})
"""
)


def test_an_exception_sent_into_a_thread_leaves_nothing_of_it(tmp_path: Path) -> None:
    with running(ASYNCHRONOUS, tmp_path / "resource", tmp_path / "other", 150) as child:
        heard = child.hear()
    assert heard["outcome"] is None, heard


@pytest.mark.slow
def test_thousands_of_exceptions_sent_into_threads_leave_nothing(tmp_path: Path) -> None:
    with running(ASYNCHRONOUS, tmp_path / "resource", tmp_path / "other", 5000) as child:
        heard = child.hear(600)
    assert heard["outcome"] is None, heard


HANDLER = """
claim = ownership.acquire(sys.argv[1])
seen = []
def stop(number, frame):
    claim.release("told to stop")
    seen.append(claim.held)
signal.signal(signal.SIGTERM, stop)
say("ready")
number = 0
while not seen:
    try:
        claim.announce("serving", data={"number": number})
        claim.verify()
    except ownership.OwnershipLostError:
        pass
    number += 1
say(seen)
hear()
"""


def test_a_handler_that_releases_ends_an_owner_that_is_busy_announcing(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    with Contender() as contender:
        for _ in range(5):
            with running(HANDLER, resource) as owner:
                assert owner.hear() == "ready"
                owner.signal(15)
                assert owner.hear() == [False]
                assert contender.passes(resource)


def test_a_claim_that_is_dropped_is_released_with_a_warning(tmp_path: Path) -> None:
    resource = tmp_path / "resource"
    claim = ownership.acquire(resource)
    with pytest.warns(ResourceWarning, match="unreleased"):
        del claim
    assert not residue(resource)
    with Contender() as contender:
        assert contender.passes(resource)


def test_a_claim_in_a_reference_cycle_is_released_by_the_collector(tmp_path: Path) -> None:
    """The finaliser may run in the middle of another acquire of the same resource; that one then sees it free."""
    resource = tmp_path / "resource"

    class Cycle:
        def __init__(self) -> None:
            self.claim = ownership.acquire(resource)
            self.itself = self

    gc.disable()  # not before we say so
    try:
        Cycle()
        assert residue(resource) == {"resource.json"}
        with pytest.warns(ResourceWarning, match="unreleased"):
            eventually(lambda: gc.collect() >= 0 and not residue(resource))  # the keeper may have found it first
    finally:
        gc.enable()


def test_a_dropped_claim_that_the_keeper_finds_first_is_warned_of_all_the_same(tmp_path: Path) -> None:
    """The collector clears weak references before it runs finalisers: in between the keeper may look."""
    resource = tmp_path / "resource"
    claim = ownership.acquire(resource)

    def drop() -> None:
        claim._holding.handle = weakref.ref(type("Dropped", (), {})())
        eventually(lambda: not residue(resource))

    with pytest.warns(ResourceWarning, match="unreleased"):
        drop()
    assert not claim.held


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_that_raises_while_the_keeper_is_started_leaves_one(tmp_path: Path, when: str) -> None:
    """In the very first call of a process."""
    body = """
    start = threading.Thread.start
    def interrupted(thread):
        threading.Thread.start = start
        if sys.argv[2] == "after":
            start(thread)
        raise KeyboardInterrupt
    threading.Thread.start = interrupted
    try:
        ownership.acquire(sys.argv[1])
    except KeyboardInterrupt:
        say("interrupted")
    with ownership.acquire(sys.argv[1]) as claim:
        deadline = time.monotonic() + 30
        while True:
            keepers = [thread for thread in threading.enumerate() if thread.name == "ownership-keeper"]
            if len(keepers) == 1:
                break
            assert time.monotonic() < deadline, keepers
            time.sleep(0.01)
        os.unlink(os.path.dirname(sys.argv[1]) + "/.leases/x.json")
        while not os.path.exists(os.path.dirname(sys.argv[1]) + "/.leases/x.json"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    say("kept")
    """
    with running(body, tmp_path / "x", when) as child:
        assert [child.hear(), child.hear()] == ["interrupted", "kept"]
    assert not residue(tmp_path / "x")


def test_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    """Eight threads, one resource: never two inside, tokens only grow, and all are served."""
    resource = tmp_path / "resource"
    inside: list[int] = []
    tokens: list[int] = []
    problems: list[Any] = []

    def work(number: int) -> None:
        for _ in range(15):
            try:
                with ownership.acquire(resource, timeout=60) as claim:
                    inside.append(number)
                    tokens.append(claim.token)
                    claim.verify()
                    if inside != [number]:
                        problems.append(list(inside))
                    inside.remove(number)
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert not problems
    assert len(tokens) == 120
    assert tokens == sorted(set(tokens))
    assert not residue(resource)


def test_threads_on_different_resources_do_not_wait_for_each_other(tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(30):
                with ownership.acquire(tmp_path / f"resource{number}") as claim:
                    claim.announce("serving")
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not problems
    assert not residue(tmp_path / "resource0")


def test_one_thread_may_release_what_another_is_announcing(tmp_path: Path) -> None:
    """Whoever comes second gets a typed error or a quiet no-op; the record is gone in the end."""
    resource = tmp_path / "resource"
    chance = random.Random(5)
    for _ in range(60):
        claim = ownership.acquire(resource, timeout=10)
        problems: list[BaseException] = []
        begin = threading.Barrier(2)

        def announce(claim: ownership.Claim = claim, begin: threading.Barrier = begin) -> None:
            begin.wait(30)
            try:
                claim.announce("serving", data={"number": chance.random()})
            except ownership.OwnershipLostError:
                pass
            except BaseException as error:
                problems.append(error)  # noqa: B023

        thread = threading.Thread(target=announce)
        thread.start()
        begin.wait(30)
        claim.release()
        thread.join(30)
        assert not problems
        assert not residue(resource), "an update put a released record back"


def test_a_process_that_exits_with_a_claim_leaves_it_to_the_next_one(tmp_path: Path) -> None:
    """No exit hook is needed: default signals, ``os._exit``, a plain end; the next acquire has it in a second."""
    resource = tmp_path / "resource"
    ends = {
        "os.kill(os.getpid(), signal.SIGTERM)": -15,
        "os.kill(os.getpid(), signal.SIGHUP)": -1,
        "os.kill(os.getpid(), signal.SIGKILL)": -9,
        "os._exit(7)": 7,
        "sys.exit(8)": 8,
        "os.abort()": -6,
    }
    with Contender() as contender:
        for end, code in ends.items():
            with running(f"claim = ownership.acquire({str(resource)!r}, timeout=10)\nsay(1)\n{end}\n") as owner:
                owner.hear()
                assert owner.process.wait(60) == code
                answer = contender.do("pass", resource)
                assert "value" in answer, (end, answer)
                assert answer["took"] < 1.0, end
            respawned: Child
            with running(f"with ownership.acquire({str(resource)!r}) as claim: say(claim.token)") as respawned:
                assert respawned.hear() > answer["value"]
                assert respawned.process.wait(60) == 0
        folder = lock_directory(resource)
        assert all(is_locked(folder / name) for name in files(resource) if name.endswith(".alive"))
    assert not residue(resource)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("how", ["acquire", "replace"])
def test_what_is_broken_off_again_while_it_is_given_up_is_given_up_by_the_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    module = sys.modules[ownership.acquire.__module__ if how == "acquire" else ownership.replace.__module__]

    def broken_off(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "Claim", broken_off)
    monkeypatch.setattr(module, "give_up", broken_off)
    with pytest.raises(KeyboardInterrupt):
        getattr(ownership, how)(tmp_path / "x")
    monkeypatch.undo()
    eventually(lambda: ownership.inspect(tmp_path / "x").verdict is ownership.Verdict.FREE)
    assert not residue(tmp_path / "x")
