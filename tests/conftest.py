"""One thread for torch, unless a test asks for more or the environment says otherwise.

The models here are tiny, and two threads that wait for each other on a busy machine are ten times slower than one. Set before torch is
imported, so that the processes which tests start have it too.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.distributed.ranks import RankPool
from tests.quick import Quick
from tests.rewriting import rewrite_all
from tests.warm import differing, load_all_at_first, prepare, use_large_pages

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a pool of compilers takes longer to start than these models to compile
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")  # which vectors the machine has, it finds out by compiling a program for each
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are built from configs; nothing may be fetched
WARM = prepare()
AT_START = dict(os.environ)
STACKS = Path(tempfile.gettempdir()) / f"numscope-stacks-{os.getpid()}"
if sys.version_info < (3, 11):  # pyproject.toml leaves out what these need
    collect_ignore = [*(f"integrations/test_{name}.py" for name in ("notebook", "spark")), "docs"]

# Timings decide no test. --hypothesis-profile long tries twenty times as many examples where a test sets no number of its own.
# Not on Hypothesis's own profile for CI, which tries the same examples each time.
settings.register_profile(
    "numscope", settings.get_profile("default"), deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)
settings.register_profile("long", settings.get_profile("numscope"), max_examples=1000)  # docs/promises.md
settings.load_profile("numscope")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so does a shell's background job, and what tests start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="of each file the quickest tests, about a minute in all")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Quick(config))


def pytest_sessionstart(session: pytest.Session) -> None:
    """What is started with ``sys.executable`` has torch from its start, xdist's workers too; tests of a fresh interpreter take ``COLD``."""
    if session.config.pluginmanager.hasplugin("dsession"):
        load_all_at_first()  # before the workers come
        rewrite_all(session.config)
        STACKS.mkdir(exist_ok=True)
    told = getattr(session.config, "workerinput", None)
    if told is not None:
        faulthandler.enable(open(told["stack"], "w"))
    sys.executable = WARM
    multiprocessing.set_executable(WARM)  # it has made a note of the other one where a folder's conftest has imported torch


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker that dies leaves its stack in this file."""
    node.workerinput["stack"] = str(STACKS / node.gateway.id)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    if error:  # on the console: what the worker itself writes there comes much earlier
        status, stack = node.gateway._io.popen.wait(10), STACKS / node.gateway.id
        print(f"\n{node.gateway.id} has ended with status {status}\n{stack.read_text() if stack.exists() else ''}")


def pytest_sessionfinish() -> None:
    shutil.rmtree(STACKS, ignore_errors=True)
    from numscope.report import page

    page.take()  # of a run inside a test: nobody looks at it


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process for each core and two more, since some tests mostly wait; the tests of one file run in this one, which starts sooner."""
    files = {argument.partition("::")[0] for argument in config.args}
    return 0 if len(files) == 1 and files.pop().endswith(".py") else min(6, 2 + (os.cpu_count() or 1))


@pytest.fixture
def in_python() -> Iterator[None]:
    """Python's methods read all tensors, so that a test can count what is read, or make it fail."""
    from numscope.summary import native

    leave = (lambda on: None) if native.module is None else native.module.leave_to_python
    leave(True)
    yield
    leave(False)


# What takes longest begins first, so that nobody works alone at the end; what waits stands between what computes.
LONGEST = """
    integrations/test_frameworks replay/test_long_losses doctor/test_faults cli/test_script docs/test_blocks alerts/checks/test_lost_updates
    probe/test_compile_orders install/test_built faults/test_faults doctor/test_links harm/test_models cli/test_run_to
    alerts/checks/test_rank_bugs faults/test_transformers cli/test_printing summary/test_triton docs/test_site integrations/test_spark
    detect/test_again harm/test_own_errors probe/test_compiled doctor/test_control_launch cli/test_run page/test_page view/test_live_page
    runs/test_compaction storage/test_writing alerts/test_engine distributed/test_pipelines harm/test_compile doctor/test_child_faults
    precision/casting/test_scaling cli/test_gone compat/test_underflow_overflow doctor/test_control_faults alerts/checks/test_healthy
    cli/test_precision_scripts runs/test_comparison harm/test_generators faults/test_structures sinks/test_shared detect/test_skips
    replay/test_function_gradients simulated/test_device doctor/test_thousands cli/test_stats storage/test_reading
    view/test_slow_clients doctor/test_hub_attacked harm/test_operators runs/test_portions doctor/test_control_reach harm/test_replay
    forms/test_forms distributed/test_inspector_ranks inspect/test_shown_in_c detect/test_low_precision runs/test_foreign detect/test_eager
    integrations/test_notebook distributed/test_diverging parity/test_layouts precision/casting/test_native_cast test_contributing
    faults/test_structures report/test_page precision/test_modules_training view/test_live
""".split()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    turns = {folder / f"{name}.py": turn for turn, name in enumerate(LONGEST)}
    items.sort(key=lambda item: turns.get(item.path, len(turns)))


@pytest.fixture(autouse=True)
def watches_end_with_their_test() -> Iterator[None]:
    """A training that stops at a finding leaves its watch open, as a script would that ends there; the next test must not see it."""
    yield
    scope = sys.modules.get("numscope.scope.open_scopes")
    for left in scope.live() if scope is not None else ():
        left.close()
    if scope is not None:  # a mode that stays would watch all later tests, a hundred times slower
        from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

        assert _get_current_dispatch_mode_stack() == []
    applied = sys.modules.get("numscope.replay.function_gradients")
    assert applied is None or not applied._heard, "a watch that has ended left the forwards of autograd.Functions patched"


@pytest.fixture(autouse=True)
def remedies_are_tried_where_that_is_tested(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against one fault they do the same in each test that plants it, and are two fifths of what its finding costs."""
    diagnosis = sys.modules.get("numscope.detect.diagnosis")
    if diagnosis is not None and request.node.get_closest_marker("tried") is None:
        monkeypatch.setattr(diagnosis, "with_trials", lambda finding, *_: finding)


@pytest.fixture(autouse=True, scope="module")
def threads_that_are_left_only_wait() -> Iterator[None]:
    """Beside one at work nothing can be forked, and later tests in this process would be told less of a fault."""
    yield
    fork, torch = sys.modules.get("numscope.replay.fork"), sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # nothing is forked
        return
    deadline = time.monotonic() + 20
    while fork is not None and not fork.others_rest() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert fork is None or fork.others_rest(), f"this module leaves a thread at work: {threading.enumerate()}"


@pytest.fixture(autouse=True)
def records_stay_in_the_tests_own_folder() -> Iterator[None]:
    """A watch that is told neither ``log_dir`` nor a logger writes to where the tests are started from."""
    left = Path("numscope_logs").absolute()
    was_there = left.exists()
    yield
    assert was_there or not left.exists(), f"{left} is left by this test: give its watch a log_dir, or change the folder"


@pytest.fixture(autouse=True, scope="module")
def variables_are_left_as_they_were(request: pytest.FixtureRequest) -> Iterator[None]:
    """With others, what later tests start would no longer have torch from its start, and take five times as long."""
    yield
    if request.path.parent.name == "frameworks":  # in a process of its own
        return
    left = differing(os.environ, AT_START)
    assert not left, f"this module leaves {left} in the environment: set them for a part of it alone"


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    """Two real ranks: processes that live for the whole run and do one scenario after another in process groups of their own."""
    pool = RankPool(2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def pool_of_file(pool: RankPool) -> Iterator[RankPool]:
    yield pool
    pool.rest()


@pytest.fixture
def ranks(pool_of_file: RankPool, tmp_path: Path) -> RankPool:
    pool_of_file.folder = tmp_path
    return pool_of_file


@pytest.fixture(scope="session")
def pool_of_4() -> Iterator[RankPool]:
    pool = RankPool(4)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def pool_of_4_of_file(pool_of_4: RankPool) -> Iterator[RankPool]:
    yield pool_of_4
    pool_of_4.rest()


@pytest.fixture
def four_ranks(pool_of_4_of_file: RankPool, tmp_path: Path) -> RankPool:
    pool_of_4_of_file.folder = tmp_path
    return pool_of_4_of_file


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group of this process alone, over gloo.

    It goes when the test's models have gone. A DDP that outlives its group tears gloo down by itself, waiting, with the interpreter's
    lock in hand, for gloo's threads, one of which may be waiting for that lock: one run in some hundred never ended.
    """
    dist = pytest.importorskip("torch.distributed")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # else the host's own name is looked up
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=60))
    yield
    gc.collect()
    dist.destroy_process_group()


def pytest_collection(session: pytest.Session) -> None:
    gc.disable()  # what is imported and collected stays


def pytest_collection_finish(session: pytest.Session) -> None:
    """The collector, and a watch's search for optimizers, need not look through all that in each test."""
    settle()
    gc.enable()


num_loaded = 0  # modules, as objects were last frozen
num_settled = 0  # modules, as memory was last put into large pages


def settle() -> None:
    """What is there now stays: the collector leaves it alone, and replays fork in less time."""
    global num_settled
    freeze()
    if sys.platform == "linux" and len(sys.modules) > num_settled + 100:
        num_settled = len(sys.modules)
        use_large_pages()


def freeze() -> None:
    global num_loaded
    gc.freeze()
    num_loaded = len(sys.modules)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor through what this test has imported, in the next ones: 20 ms each time for a hundred thousand objects."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        settle()
    elif len(sys.modules) > num_loaded + 20:
        gc.collect()
        freeze()  # large pages, which cost 0.4 s, can wait for the file's end
