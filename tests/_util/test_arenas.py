"""Memory goes back to the system in the command, and nothing is asked of a program around the library."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from kinprint._util import arenas
def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * 4096
if sys.argv[1] == "command":
    arenas.one_arena()
kept = []
for _ in range(2000):  # what is given back lies between what stays
    gone = bytearray(100_000)
    gone[:] = b"x" * len(gone)
    kept.append((bytearray(1_000), gone))
kept = [one for one, _ in kept]
before = resident()
arenas.give_back()
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
@pytest.mark.parametrize(
    ("where", "least", "most"), [("command", 50_000_000, 10**9), ("library", -1_000_000, 1_000_000)]
)
def test_only_the_command_gives_back_what_is_free(where, least, most):
    done = subprocess.run([sys.executable, "-c", PROGRAM, where], capture_output=True, text=True, check=True)
    assert least <= int(done.stdout) <= most
