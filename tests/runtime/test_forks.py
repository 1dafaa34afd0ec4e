"""Forks while other threads trace and compile: every child calls, and compiles, at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = '''
import os, sys, threading, time
import numpy as np
import gradof

def function(k):
    def f(x):
        for _ in range(3):
            x = np.tanh(x * (k + 0.5)) + np.exp(-x * x)
        return x.sum()
    return f

x = np.linspace(-1.0, 1.0, 40_000)
shared = gradof.value_and_grad(function(-1))
want = function(-1)(x)
stop, made = False, []

def compile_on(first):
    k = first
    while not stop:
        gradof.value_and_grad(function(k))(x)
        shared(x[: 33_000 + k % 5])
        made.append(k)
        k += 8

threads = [threading.Thread(target=compile_on, args=(k,), daemon=True) for k in range(8)]
for t in threads:
    t.start()
while not made:
    time.sleep(0.01)
failed = 0
for n in range(CHILDREN):
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            value, _ = shared(x)                                 # locks of a function in use
            other, _ = gradof.value_and_grad(function(10_000 + n))(x)     # tracing and LLVM
            right = abs(value - want) < 1e-6 and abs(other - function(10_000 + n)(x)) < 1e-6
            code = 0 if right else 2
        finally:
            os._exit(code)
    until = time.monotonic() + 60
    status = None
    while time.monotonic() < until:
        pid, found = os.waitpid(child, os.WNOHANG)
        if pid:
            status = found
            break
        time.sleep(0.01)
    if status is None:
        os.kill(child, 9)
        os.waitpid(child, 0)
    failed += status != 0
stop = True
for t in threads:
    t.join()
print("compiled", len(made) > 0, "failed", failed)
'''


@pytest.mark.cases(1)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("backend", ["auto", "tiles"])
def test_children_of_a_process_that_compiles(backend: str) -> None:
    environment = {
        **os.environ, "GRADOF_BACKEND": backend, "GRADOF_CACHE_DIR": "off",
        "GRADOF_NUM_THREADS": "2",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.replace("CHILDREN", "4")],
        capture_output=True, text=True, env=environment, timeout=500, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "compiled True failed 0", done.stdout + done.stderr
