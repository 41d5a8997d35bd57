"""The native kernel in processes of its own: without it, after a fork, at exit, beside other threads."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from numscope.summary import dispatch, native

needs_kernel = pytest.mark.skipif(native.module is None, reason="the native kernel was not built")
BIG = "torch.ones(1_000_000)"


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ.copy())


def test_without_the_kernel_torch_does_the_work_and_the_log_says_so_once() -> None:
    run = python(
        "import sys; sys.modules['numscope.summary._native'] = None\n"
        "import logging; logging.basicConfig(format='%(name)s %(message)s')\n"
        "import torch; from numscope.summary import dispatch\n"
        f"x = {BIG}; x[5] = float('nan')\n"
        "for _ in range(3): s = dispatch.summarize(x)\n"
        "print(s.numel, s.num_nan, s.mean)\n"
    )
    assert run.stdout == "1000000 1 1.0\n"
    assert run.stderr.count("numscope numscope works without its native kernel") == 1


def test_importing_says_nothing_of_a_missing_kernel() -> None:
    run = python("import sys; sys.modules['numscope.summary._native'] = None\nimport numscope.summary.dispatch")
    assert (run.stdout, run.stderr, run.returncode) == ("", "", 0)


@needs_kernel
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_threads_of_its_own() -> None:
    run = python(
        "import os, torch; from numscope.summary import dispatch\n"
        f"torch.set_num_threads(3); x = {BIG}\n"
        "assert dispatch.summarize(x).sum == 1e6\n"
        "for _ in range(5):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        assert dispatch.summarize(x).sum == 1e6\n"
        "        os._exit(7)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "print(dispatch.summarize(x).sum)\n"
    )
    assert (run.stdout, run.returncode) == ("1000000.0\n", 0), run.stderr


@needs_kernel
def test_sleeping_threads_do_not_hold_up_the_exit() -> None:
    run = python(f"import torch; from numscope.summary import dispatch; torch.set_num_threads(4); print(dispatch.summarize({BIG}).numel)")
    assert (run.stdout, run.returncode) == ("1000000\n", 0), run.stderr


@needs_kernel
def test_callers_in_several_threads_get_their_own_numbers() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    wrong: list[float] = []

    def work(value: float) -> None:
        x = torch.full((600_000,), value)
        for _ in range(20):
            s = dispatch.summarize(x)
            if s.sum != 600_000 * value or s.numel != 600_000:
                wrong.append(s.sum)

    threads = [threading.Thread(target=work, args=(float(value),)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.set_num_threads(before)
    assert wrong == []


@needs_kernel
def test_the_kernel_needs_no_symbol_of_torch() -> None:
    run = python("import importlib.util, sys; from numscope.summary import _native; print(_native.isa(), 'torch' in sys.modules)")
    assert run.stdout.split()[1:] == ["False"], run.stderr


@needs_kernel
def test_a_second_interpreter_of_the_process_is_refused() -> None:
    run = python(
        "try: import _interpreters as interpreters\n"
        "except ImportError: import _xxsubinterpreters as interpreters\n"
        "import torch\n"
        "from numscope.detect.journal import Journal\n"
        "from numscope.summary import native\n"
        "second = '''\n"
        "from importlib import util\n"
        "spec = util.spec_from_file_location('numscope.summary._native', %r)\n"
        "try: spec.loader.exec_module(util.module_from_spec(spec))\n"
        "except ImportError: print('refused', flush=True)\n"
        "'''\n"
        "interpreters.run_string(interpreters.create(), second % native.module.__file__)\n"
        "print(Journal().ledger.observe(torch.ones(2)))\n"
    )
    assert (run.stdout, run.returncode) == ("refused\n0\n", 0), run.stderr
