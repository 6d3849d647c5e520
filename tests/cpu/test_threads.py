"""One answer whatever the number of threads, and callers that run beside each other."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.cpu.rig import Rig, package, policy_text

LONG = policy_text(heads="query 6 kv 3", dim="64", window="1200", storage="ring slack 8")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def answers(dtype: torch.dtype) -> list[torch.Tensor]:
    rig = Rig(LONG, rows=2, dtype=dtype)
    found = []
    for width in (1300, 1, 5, 300, 1, 8):
        read = rig.append(*rig.tokens(width))
        found += read.attend(rig.queries(width), return_lse=True)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bits_do_not_depend_on_threads(dtype, threads):
    threads(1)
    alone = answers(dtype)
    for count in (2, 3, 5):
        threads(count)
        for one, many in zip(alone, answers(dtype), strict=True):
            assert torch.equal(one, many), count


def test_bits_do_not_depend_on_the_batch():
    whole = Rig(LONG, rows=3)
    k, v = whole.tokens(1300)
    q = whole.queries(1300)
    k1, v1 = whole.tokens(1)
    q1 = whole.queries(1)
    read = whole.append(k, v)
    together = [read.attend(q), whole.append(k1, v1).attend(q1)]
    for row in range(3):
        cache = package(LONG).LocalCache(1, backend="cpu")
        one = slice(row, row + 1)
        alone = [
            cache.append_window(k[one], v[one]).attend(q[one]),
            cache.append_window(k1[one], v1[one]).attend(q1[one]),
        ]
        for a, b in zip(alone, together, strict=True):
            assert torch.equal(a, b[one])


def test_python_threads_on_caches_of_their_own():
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: answers(torch.bfloat16), range(4)):
            for one, other in zip(found, answers(torch.bfloat16), strict=True):
                assert torch.equal(one, other)


def test_python_threads_on_one_read():
    rig = Rig(LONG, dtype=torch.bfloat16)
    read = rig.append(*rig.tokens(700))
    queries = [rig.queries(700) for _ in range(4)]
    wanted = [read.attend(q) for q in queries]
    with ThreadPoolExecutor(4) as pool:
        for want, got in zip(wanted, pool.map(read.attend, queries), strict=True):
            assert torch.equal(want, got)


def test_a_new_python_thread_uses_as_many_as_torch(threads):
    threads(1)
    rig = Rig(LONG)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(rig.window, 3).result()
        assert pool.submit(rig.cache._kernels._library.pool_threads).result() in (0, 1)


def test_long_calls_let_other_threads_run():
    rig = Rig(LONG, dtype=torch.bfloat16)
    k, v = rig.tokens(1300)
    read, q = rig.append(k, v), rig.queries(1300)
    read.attend(q)
    ticks, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            ticks[0] += 1

    counter = threading.Thread(target=count)
    counter.start()
    before = ticks[0]
    read.attend(q)
    after = ticks[0]
    stop.set()
    counter.join()
    assert after - before > 100


def test_the_pool_is_the_one_torch_has_loaded():
    """No second OpenMP runtime comes with the kernels."""
    script = """
import sys; sys.path.insert(0, sys.argv[1])
import torch
runtimes = lambda: {line.split()[-1] for line in open("/proc/self/maps") if "gomp" in line or "libomp" in line}
before = runtimes()
from tests.cpu.rig import Rig, policy_text
rig = Rig(policy_text())
rig.window(5)
assert runtimes() == before, runtimes()
assert not before or rig.cache._kernels._library.pool_threads() == torch.get_num_threads()
"""
    root = __file__.rsplit("/tests/", 1)[0]
    subprocess.run([sys.executable, "-c", script, root], check=True, cwd=root, timeout=300)
