"""Processes that a script starts: watched as the script is, or said not to be."""

from __future__ import annotations

import json
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.test_run import cli, last_line, line_of

NET = """
    import os, subprocess, sys
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from concurrent.futures import ProcessPoolExecutor
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
        def forward(self, x, step):
            return (self.first(x) * (4 - step)).log_softmax(-1) * (3 - torch.tensor(float(step))).log()

    def train(model, steps, end=True):
        torch.manual_seed(steps)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(2, 4), step).sum().backward()
            if end or step < 3:
                optimizer.step()

    def job(steps):
        train(Net(), steps)
        return steps

    def rank(rank, steps, folder):
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
        torch.manual_seed(0)
        train(nn.parallel.DistributedDataParallel(Net()), steps)
        dist.destroy_process_group()
"""
CALLED = "Net: called in a process made by os.fork"

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs the functions above and what is given, with or without a watch, and looks whether a temporary file of ours is left."""
    folder = tempfile.TemporaryDirectory()  # multiprocessing's sockets lie there, whose paths may have 107 characters
    temporary = Path(folder.name)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")

    def run(main: str, *words: str, watched: bool = True) -> CompletedProcess[str]:
        body = textwrap.indent(textwrap.dedent(main), "    ")
        (tmp_path / "s.py").write_text(f'{textwrap.dedent(NET)}\nif __name__ == "__main__":\n{body}')
        door = ("-m", "numscope", "run", *words) if watched else ()
        done = cli("s.py", cwd=tmp_path, command=door, TMPDIR=str(temporary), OMP_NUM_THREADS="1")
        left = [path.name for path in temporary.iterdir() if path.name.startswith("numscope-")]
        assert not left
        return done

    with folder:
        yield run


HOGWILD = """
    torch.manual_seed(0)
    model = Net().share_memory()
    {before}
    for steps in (2, 3):  # one after the other: together, nobody knows what comes out
        process = mp.get_context("{method}").Process(target=train, args=(model, steps))
        process.start()
        process.join()
        print(process.exitcode, model.first.weight.tolist())
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_that_share_a_model_are_watched_and_compute_the_same(run: Run, method: str) -> None:
    """With spawn, a model that is watched already goes through pickle."""
    script = HOGWILD.format(method=method, before="train(model, 1)" if method == "spawn" else "")
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(script, watched=False).stdout
    assert done.stdout.count("0 [[") == 2
    own = "Net, 1 step, n tensor observations: no finding; " if method == "spawn" else ""
    assert last_line(done) == f"numscope: watched {own}Net in 2 child processes, up to 3 steps each, n tensor observations: no finding"
    assert done.stderr.count("\n") == 1


def test_child_that_numscope_stops_ends_as_if_its_target_had_raised_and_the_run_with_status_3(run: Run, tmp_path: Path) -> None:
    script = """
        processes = [mp.get_context("fork").Process(target=train, args=(Net(), steps)) for steps in (2, 5, 3)]
        for process in processes: process.start()
        for process in processes: process.join()
        print([process.exitcode for process in processes])
    """
    done = run(script, "--json", "found.json", "--log-dir", "logs")
    assert (done.returncode, done.stdout) == (3, "[0, 1, 0]\n"), done.stderr
    assert done.stderr.count("Culprit") == 1
    assert f"s.py:{line_of(tmp_path / 's.py', '.log()')}" in done.stderr
    assert f"numscope: stopped at {tmp_path / 's.py'}:{line_of(tmp_path / 's.py', 'optimizer.step()')} in train" in done.stderr
    assert "Traceback" not in done.stderr
    said, _, link = done.stderr.rstrip().rpartition("\n")
    assert link == f"numscope: to look at it: {(tmp_path / 'logs' / 'child2' / 'report.html').as_uri()}"
    done.stderr = said
    assert last_line(done) == "numscope: watched Net in 3 child processes, up to 3 steps each, n tensor observations: 1 finding"
    counts = {path.name: len(json.loads(path.read_text())["findings"]) for path in tmp_path.glob("found*.json")}
    assert counts == {"found-child1.json": 0, "found-child2.json": 1, "found-child3.json": 0}  # each is rank 0 of its own training
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["child1", "child2", "child3"]


def test_finding_that_is_only_made_as_the_child_ends_counts_too(run: Run) -> None:
    done = run("""
        process = mp.get_context("fork").Process(target=train, args=(Net(), 4, False))
        process.start()
        process.join()
        print(process.exitcode)
    """)
    assert (done.returncode, done.stdout) == (3, "1\n"), done.stderr
    assert done.stderr.count("Culprit") == 1


def test_script_that_ends_by_a_status_of_its_own_keeps_it(run: Run) -> None:
    done = run("""
        process = mp.get_context("fork").Process(target=train, args=(Net(), 5))
        process.start()
        process.join()
        sys.exit(7 if process.exitcode else 0)
    """)
    assert done.returncode == 7
    assert done.stderr.count("Culprit") == 1


def test_ranks_that_the_script_spawns_end_together_with_one_report(run: Run, tmp_path: Path) -> None:
    done = run(f"mp.spawn(rank, (5, {str(tmp_path)!r}), 2)", "--json", "found.json", "--alerts", "off")
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("Culprit") == 1  # whole, though torch ends a rank when the other one has ended
    where = f"{tmp_path / 's.py'}:{line_of(tmp_path / 's.py', 'mp.spawn(')}"
    assert f"\nnumscope: stopped at {where} in <module>: mp.spawn(" in done.stderr
    assert "Traceback" not in done.stderr
    assert "child process" in last_line(done) and last_line(done).endswith("3 steps each, n tensor observations: 1 finding")
    assert len(json.loads((tmp_path / "found.json").read_text())["findings"]) == 1


def test_script_that_handles_a_rank_s_end_goes_on(run: Run, tmp_path: Path) -> None:
    done = run(f"""
        try:
            mp.start_processes(rank, (5, {str(tmp_path)!r}), 2, start_method="fork")
        except mp.ProcessRaisedException as error:
            print("NonFiniteError" in str(error))
    """)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert ": 1 finding" in last_line(done)


def test_abort_after_ends_spawned_ranks_in_good_order(run: Run, tmp_path: Path) -> None:
    done = run(f"mp.start_processes(rank, (5, {str(tmp_path)!r}), 2, start_method='fork'); print('end')", "--abort-after", "1")
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert last_line(done) == "numscope: watched Net in 2 child processes, 1 step each, n tensor observations: no finding"


@pytest.mark.parametrize("handled", [True, False])
def test_error_in_a_pools_task_reaches_the_script(run: Run, tmp_path: Path, handled: bool) -> None:
    done = run(f"""
        with ProcessPoolExecutor(1, mp_context=mp.get_context("fork")) as pool:
            for steps in (2, 5, 3):
                try:
                    print(pool.submit(job, steps).result())
                except ValueError as error:
                    if not {handled}: raise
                    print(type(error).__name__)
    """)
    assert done.stdout == ("2\nNonFiniteError\n3\n" if handled else "2\n"), done.stderr
    assert done.returncode == (0 if handled else 3)
    assert done.stderr.count("Culprit") == 1
    stop = f"numscope: stopped at {tmp_path / 's.py'}:{line_of(tmp_path / 's.py', 'pool.submit')} in <module>"
    assert (stop in done.stderr) is not handled


def test_process_made_by_os_fork_runs_bare_and_it_is_said_when_it_calls_a_model(run: Run) -> None:
    script = """
        model = Net()
        train(model, 1)
        for steps in (5, 0):
            pid = os.fork()
            if pid == 0:
                train(model, steps)
                print(len(model._forward_hooks), flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
    """
    done = run(script)
    assert (done.returncode, done.stdout) == (0, "0\n0\n"), done.stderr
    assert done.stderr == f"numscope: watched Net, 1 step, 12 tensor observations: no finding. Not watched: {CALLED}\n"


def test_python_processes_by_subprocess_are_said_not_to_be_watched(run: Run) -> None:
    done = run("""
        subprocess.run([sys.executable, "-c", "print(1)", "--token=x"])
        subprocess.run("python -V", shell=True, stdout=subprocess.DEVNULL)
        subprocess.run(["true"])
        subprocess.run([sys.executable, "-m", "numscope", "--version"], stdout=subprocess.DEVNULL)
        try:
            subprocess.run(["no-such-program"])
        except FileNotFoundError:
            import traceback; traceback.print_exc()
    """)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "src/numscope" not in done.stderr
    why = "a process of its own, put numscope run into its command"
    assert re.fullmatch(rf"numscope: nothing was watched: `python\S* -c`: {why}; `python -V`: {why}", last_line(done))


def test_child_that_outlives_the_script_speaks_for_itself(run: Run) -> None:
    script = """
        def late():
            import time
            time.sleep(1)
            train(Net(), 2)
        mp.get_context("fork").Process(target=late).start()
    """
    done = run(script)
    first, second = done.stderr.splitlines()
    assert first == "numscope: nothing was watched: 1 child process to the end: still at work, or killed"
    assert second.startswith("numscope: watched Net, 2 steps, ")


def test_processes_of_torch_and_python_themselves_are_left_alone(run: Run) -> None:
    done = run("""
        from numscope.scope import autowatch
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 2
            def __getitem__(self, i): return torch.tensor([i, len(autowatch._open), mp.current_process().run.__name__ == "run"])
        context = mp.get_context("fork")
        print(torch.cat(list(torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context=context))).tolist())
        with context.Manager() as manager:
            print(manager.list([1]), type(manager._process.run).__name__)
    """)
    assert (done.returncode, done.stdout) == (0, "[[0, 0, 1], [1, 0, 1]]\n[1] method\n"), done.stderr
