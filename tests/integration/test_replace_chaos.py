"""A crowd that acquires, replaces, closes and dies at random: never two inside, and who comes afterwards is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.namespaces import needs_linux_root
from tests.support.processes import residue, run

pytestmark = needs_linux_root

CHAOS = """
import fcntl, random, select
resource, folder, seconds, vandalism = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
chance = random.Random(4)
reading, writing = os.pipe()
with open(folder + "/inside", "w") as file:
    file.write("0".zfill(20))

def note(text):
    os.write(writing, (text + "\\n").encode())

def come():
    if random.random() < 0.7:
        return ownership.acquire(resource, timeout=random.choice([0, 0.05, 60]))
    return ownership.replace(resource, grace=random.choice([0, 0.01, 0.05]), timeout=random.choice([None, 0.02, 1]))

def use(claim, inside):
    try:  # the kernel lets go of it when we are killed, before we count as dead
        fcntl.flock(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note("two inside")
    last = int(os.pread(inside, 20, 0))
    if claim.token <= last:
        note(f"token {claim.token} after {last}")
    os.pwrite(inside, str(claim.token).zfill(20).encode(), 0)
    if random.random() < 0.2:
        claim.on_stop_request(lambda request: None)
    if random.random() < 0.3:
        claim.announce("serving")
    claim.stop_request
    if random.random() < 0.3:
        time.sleep(random.random() * 0.05)
    claim.verify()

def go(claim):
    if random.random() < 0.7:
        claim.release()
        return
    claim.retire("to end")
    if random.random() < 0.5:
        os._exit(0)
    if random.random() < 0.5:
        claim.release()

def work():
    random.seed()
    inside = os.open(folder + "/inside", os.O_RDWR)
    while True:
        try:
            claim = come()
            try:
                use(claim, inside)
            except ownership.GuardTimeoutError:  # somebody was stopped inside
                pass
            fcntl.flock(inside, fcntl.LOCK_UN)
            go(claim)
            note(".")
        except (ownership.ContentionError, ownership.StopTimeoutError):
            pass
        except BaseException as error:
            note(f"{type(error).__name__}: {error}")
            os._exit(1)

def start():
    child = os.fork()
    if child == 0:
        work()
    return child

workers = [start() for _ in range(6)]
said, end = b"", time.monotonic() + seconds
while time.monotonic() < end:
    if select.select([reading], [], [], chance.uniform(0, 0.01))[0]:
        said += os.read(reading, 65536)
    for index, worker in enumerate(workers):
        if os.waitpid(worker, os.WNOHANG)[0]:  # it has ended itself, or was replaced
            workers[index] = start()
    index, dice = chance.randrange(len(workers)), chance.random()
    if vandalism == "files" and dice < 0.1:
        try:
            file = f"{folder}/.leases/resource.{chance.choice(['json', 'request'])}"
            os.unlink(file) if chance.random() < 0.5 else os.truncate(file, chance.randrange(100))
        except FileNotFoundError:
            pass
    elif dice < 0.15:
        os.kill(workers[index], signal.SIGSTOP)
        select.select([], [], [], chance.uniform(0, 0.02))
        os.kill(workers[index], signal.SIGCONT)
    elif dice < 0.3:
        os.kill(workers[index], signal.SIGKILL)
        unreaped, workers[index] = workers[index], start()
        os.waitpid(unreaped, 0)
for worker in workers:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
os.close(writing)
while chunk := os.read(reading, 65536):
    said += chunk
begun = time.monotonic()
ownership.acquire(resource).release()
ownership.replace(resource).release()
problems = sorted({line for line in said.decode().splitlines() if line != "."})
say({"problems": problems, "served": said.split().count(b"."), "took": time.monotonic() - begun})
"""


@pytest.mark.parametrize("vandalism", ["none", "files"])
@pytest.mark.parametrize("seconds", [1.2, pytest.param(200, marks=pytest.mark.slow)])
def test_a_crowd_that_replaces_each_other_never_has_two_inside(tmp_path: Path, seconds: float, vandalism: str) -> None:
    """And if somebody deletes or damages record and request all the while."""
    said = run(CHAOS, tmp_path / "resource", tmp_path, seconds, vandalism, patience=seconds + 120)
    assert said["problems"] == []
    assert said["served"] > 10
    assert said["took"] < 2.0
    assert not residue(tmp_path / "resource")
    assert (tmp_path / ".leases" / "resource.guard").stat().st_size == 511
