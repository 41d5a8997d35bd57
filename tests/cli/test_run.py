"""``numscope run``: its options, its refusals, and real scripts under watch."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest

import numscope
from numscope.cli import command
from numscope.cli.import_hook import when_imported
from numscope.cli.run import TorchWatch, run
from numscope.cli.script import Target
from numscope.config.options import WatchOptions
from tests.cli.calling import called

ROOT = Path(__file__).resolve().parents[2]
SOURCES = str(Path(numscope.__file__).parent.parent)
OPTIONS = "--abort-after, --alerts, --check, --config, --features, --frames, --json, --level, …"
ITS_OWN = "The script's own options go after its name: numscope run train.py"
COMMANDS = ", ".join([*command.COMMANDS][:8]) + ", …"  # beside a hint
EXPECTED = "expected numscope run [options] train.py ARGS…  or  numscope run [options] -m module ARGS…."


def cli(*words: str, cwd: Path, command: tuple[str, ...] = ("-m", "numscope"), **env: str) -> subprocess.CompletedProcess[str]:
    clean = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONIOENCODING": "utf-8", **env}
    whole = [sys.executable, *command, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(whole, cwd=cwd, env=clean, text=True, start_new_session=True, **pipes) as process:
        try:
            stdout, stderr = process.communicate(timeout=280)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks of a torchrun too
            raise
    return subprocess.CompletedProcess(whole, process.returncode, stdout, stderr)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], f"numscope: got no script, {EXPECTED}"),
        (["run", "-m"], f"numscope: got no script, {EXPECTED}"),
        (["run", "--trce", "1", "s.py"], f"""numscope: got '--trce', expected one of {OPTIONS}. Did you mean '--trace'?"""),
        (["run", "-x", "s.py"], f"numscope: got '-x', expected one of {OPTIONS}. {ITS_OWN} -x …"),
        (["run", "--lr", "1", "s.py"], f"numscope: got '--lr', expected one of {OPTIONS}. {ITS_OWN} --lr …"),
        (
            ["run", "--trace", "a", "s.py"],
            "numscope: --trace: got 'a', expected batch numbers from 0 with commas in between, such as 149,150.",
        ),
        (["run", "--trace", "3,-1", "s.py"], "numscope: --trace: got -1, expected a whole number of at least 0."),
        (["run", "--frames"], "numscope: --frames: got nothing, expected a value. See numscope run --help."),
        (["run", "--frames", "0", "s.py"], "numscope: --frames: got 0, expected a whole number of at least 1."),
        (["run", "--frames", "2.5", "s.py"], "numscope: --frames: got '2.5', expected a whole number."),
        (
            ["run", "--on-nonfinite", "warm", "s.py"],
            "numscope: --on-nonfinite: got 'warm', expected one of 'raise', 'warn', 'note', 'skip', 'heal', 'off'. Did you mean 'warn'?",
        ),
        (
            ["run", "--level", "module", "s.py"],
            "numscope: --level: got 'module', expected one of 'modules', 'sentinel'. Did you mean 'modules'?",
        ),
        (["run", "--json", "no/f", "s.py"], "numscope: --json: got 'no/f', expected a file in a folder that exists. Make 'no' first."),
        (["run", "--json", "d", "s.py"], "numscope: --json: got 'd', expected a file's path. It is a folder: add a file's name."),
        (
            ["run", "--log-dir", "s.py", "s.py"],
            "numscope: --log-dir: got 's.py', expected a folder, or a path where one can be created. It is a file.",
        ),
        (["s.py"], f"""numscope: got 's.py', expected one of {COMMANDS}. Did you mean 'numscope run s.py'?"""),
        (["rnu", "s.py"], f"""numscope: got 'rnu', expected one of {COMMANDS}. Did you mean 'run'?"""),
        (["--trace", "3", "s.py"], """numscope: got '--trace', expected a command first. Did you mean 'numscope run --trace'?"""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_refused_before_the_script_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "s.py").write_text("print('ran')")
    done = called(*words)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", message + "\n")


def parsed(*words: str) -> tuple[Target, WatchOptions]:
    plan = run.main(list(words), standalone_mode=False)
    target, watch = plan.args
    assert isinstance(watch, TorchWatch)
    return target, watch._options


def test_options_before_the_script_are_ours_and_after_it_the_scripts() -> None:
    target, options = parsed("--frames", "5", "train.py", "--frames", "7", "-m", "--", "--json")
    assert target == Target("train.py", ("--frames", "7", "-m", "--", "--json"))
    assert options == WatchOptions(frames=5)


def test_options_after_the_modules_name_are_the_modules() -> None:
    target, options = parsed("--level", "sentinel", "-m", "pack.train", "--level", "x", "-m")
    assert target == Target("pack.train", ("--level", "x", "-m"), is_module=True)
    assert options == WatchOptions(level="sentinel")


def test_each_option_reaches_the_watch(tmp_path: Path) -> None:
    file, folder = str(tmp_path / "f.json"), str(tmp_path / "logs")
    words = ["--trace", "149,150", "--abort-after", "151", "--frames", "3", "--on-nonfinite", "warn", "--level", "sentinel"]
    words += ["--json", file, "--log-dir", folder, "s.py"]
    assert parsed(*words)[1] == WatchOptions(
        trace=(149, 150),
        abort_after=151,
        frames=3,
        on_nonfinite="warn",
        level="sentinel",
        json=file,
        log_dir=folder,
    )


def test_unset_options_keep_the_watchs_defaults() -> None:
    assert parsed("s.py")[1] == WatchOptions()
    options = {p.name for p in run.params if isinstance(p, click.Option)} - {"is_module", "pdbcls", "recipe"}
    assert options <= {f.name for f in dataclasses.fields(WatchOptions)}


def test_version_and_help() -> None:
    assert called("--version").stdout == f"numscope {numscope.__version__}\n"
    assert called("run", "--help").exit_code == 0
    bare = called()
    assert bare.exit_code == 2
    assert "Usage: numscope" in bare.stderr


# --------------------------------------------------------------------------------------------------------------------------


def test_callback_comes_once_right_after_the_first_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arriving.py").write_text("import sys\nhere = True\nloader = type(__loader__).__name__\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    calls: list[object] = []
    before = list(sys.meta_path)
    when_imported("arriving", lambda: calls.append(sys.modules["arriving"].here))
    assert importlib.util.find_spec("arriving") is not None  # asking whether it is there, as transformers asks for torch
    assert calls == []
    import arriving  # type: ignore[import-not-found]

    assert calls == [True]
    assert arriving.loader == "SourceFileLoader"
    assert "exec_module" not in vars(arriving.__loader__)
    assert sys.meta_path == before
    when_imported("arriving", lambda: calls.append("at once"))
    assert calls == [True, "at once"]
    del sys.modules["arriving"]


def test_missing_module_stays_missing() -> None:
    before = list(sys.meta_path)
    when_imported("nothing_of_this_name", lambda: pytest.fail("never imported"))
    with pytest.raises(ModuleNotFoundError, match="No module named 'nothing_of_this_name'"):
        __import__("nothing_of_this_name")
    assert len(sys.meta_path) == len(before) + 1  # it may yet be installed and imported
    sys.meta_path[:] = before


# --------------------------------------------------------------------------------------------------------------------------

TRAIN = """
    import os, sys
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
        def forward(self, x, step):
            h = self.first(x)
            return (h * 0 + 3 - step).log()

    def main():
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4), step).sum()
            loss.backward()
            optimizer.step()
            print(step, flush=True)
        print("end", torch.get_num_threads(), sys.argv[1:])

    if __name__ == "__main__":
        main()
"""


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A script whose fourth step takes the logarithm of zero, its fifth of a negative number."""
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(TRAIN), encoding="utf-8")
    return path


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Without the number of tensors, which is any but 0."""
    said = [line for line in done.stderr.splitlines() if not line.startswith(("numscope: next: ", "  numscope "))]
    return re.sub(r"[1-9][\d,]* tensor observations", "n tensor observations", said[-1])


def line_of(path: Path, text: str) -> int:
    return next(n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def test_first_escape_stops_the_run_with_status_3(train: Path, tmp_path: Path) -> None:
    done = cli("run", "--json", "found.json", "train.py", "a", "--json", "b", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "0\n1\n2\n"
    assert "Traceback" not in done.stderr
    where = f"{train}:{line_of(train, '.log()')}"
    assert where in done.stderr.replace("\n", "")
    assert done.stderr.splitlines()[-3].startswith(f"numscope: stopped at {train}:")
    assert last_line(done) == "numscope: watched Net, 3 steps, n tensor observations: 1 finding"
    assert json.loads((tmp_path / "found.json").read_text())


def test_warned_run_goes_on_to_its_own_end(train: Path, tmp_path: Path) -> None:
    done = cli("run", "--on-nonfinite", "warn", "train.py", "a", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("['a', '--json']")
    assert str(train) in done.stderr.replace("\n", "")


def test_environment_that_the_script_sets_before_torch_counts(train: Path, tmp_path: Path) -> None:
    """numscope must not load torch first: OMP_NUM_THREADS is read while torch loads."""
    bare = cli(cwd=tmp_path, command=("train.py",), OMP_NUM_THREADS="2").stdout
    watched = cli("run", "--on-nonfinite", "warn", "train.py", cwd=tmp_path, OMP_NUM_THREADS="2").stdout
    assert watched == bare
    assert "end 1 []" in bare


@pytest.mark.parametrize(
    ("death", "status"),
    [
        ("assert model.first.weight.grad.isfinite().all(), 'bad gradient'", 1),
        ("if not model.first.weight.grad.isfinite().all(): sys.exit('bad gradient')", 1),
        ("if not model.first.weight.grad.isfinite().all(): sys.exit(5)", 5),
    ],
)
def test_script_that_dies_of_what_was_not_judged_yet_keeps_its_end_and_gets_the_report(
    train: Path, tmp_path: Path, death: str, status: int
) -> None:
    source = train.read_text().replace("loss.backward()", f"loss.backward(); atexit.register(print, 'exit')\n        {death}")
    train.write_text(f"import atexit\n{source}")
    bare = cli(cwd=tmp_path, command=("train.py",))
    watched = cli("run", "train.py", cwd=tmp_path)
    assert (watched.returncode, watched.stdout) == (bare.returncode, bare.stdout)
    assert bare.returncode == status
    assert last_line(watched) in ("numscope: watched Net, 3 steps, n tensor observations: 1 finding", bare.stderr.strip())
    assert bare.stderr in watched.stderr.replace(next(line for line in watched.stderr.splitlines() if "watched Net" in line) + "\n", "")
    assert watched.stderr.count("Culprit") == 1
    assert f"{train}:{line_of(train, '.log()')}" in watched.stderr
    assert "stopped at" not in watched.stderr


def test_abort_after_ends_the_run_in_good_order(train: Path, tmp_path: Path) -> None:
    done = cli("run", "--abort-after", "1", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "end" not in done.stdout
    assert "Traceback" not in done.stderr
    assert "stopped after batch 1" in done.stderr


def test_uncaught_error_of_a_watched_model_shows_no_frame_of_ours(train: Path, tmp_path: Path) -> None:
    train.write_text(train.read_text().replace("return (h * 0", "if step == 2: self.first(x[:, :3])\n        return (h * 0"))
    bare = cli(cwd=tmp_path, command=("train.py",))
    watched = cli("run", "train.py", cwd=tmp_path)
    assert (watched.returncode, watched.stdout) == (bare.returncode, bare.stdout) == (1, "0\n1\n")
    assert "src/numscope" not in watched.stderr
    *ours, last = [line for line in watched.stderr.splitlines() if "train.py" in line or not line.startswith(" ")]
    assert ours == [
        line for line in bare.stderr.splitlines() if "train.py" in line or not line.startswith(" ")
    ]  # torch's own differ: it runs hooks
    assert last.startswith("numscope: watched Net, 2 steps, ")


def test_console_script_is_no_caller_of_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nnet = torch.nn.Linear(2, 2)\n(net(torch.ones(1, 2)).sum() * 0).log().backward()\n")
    (tmp_path / "door.py").write_text("from numscope.cli.command import main\nmain()\n")
    done = cli("run", "train.py", cwd=tmp_path, command=("door.py",))
    assert f"Line     {tmp_path / 'train.py'}:3\n" in done.stderr
    assert "called from" not in done.stderr


def test_script_without_torch_is_told_that_nothing_was_watched(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("print(1)")
    done = cli("run", "s.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr == "numscope: nothing was watched: this process never imported torch\n"


def test_words_that_a_script_ends_with_come_before_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import atexit, sys; atexit.register(print, 'left'); sys.exit('no data')")
    done = cli("run", "s.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "left\n")
    assert done.stderr == "no data\nnumscope: nothing was watched: this process never imported torch\n"


@pytest.mark.parametrize("code", ["import torch", "1 / 0"])
def test_files_that_were_asked_for_are_there_though_nothing_was_watched(tmp_path: Path, code: str) -> None:
    (tmp_path / "s.py").write_text(code)
    done = cli("run", "--json", "a.json", "--sarif", "a.sarif", "s.py", cwd=tmp_path)
    assert done.returncode == int(code == "1 / 0"), done.stderr
    found = json.loads((tmp_path / "a.json").read_text())
    assert (found["findings"], found["alerts"], found["meta"]["steps"], found["meta"]["ended"]) == ([], [], 0, True)
    (run,) = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    assert run["results"] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("torch.ones(2).sum()", "nothing was watched: no torch.nn.Module was called"),
        ("nn.ReLU()(torch.ones(2))", "nothing was watched: the modules that were called have no parameters"),
        (
            "torch.jit.script(nn.Linear(4, 4))(torch.ones(2, 4))",
            "nothing was watched: RecursiveScriptModule: torch.jit runs it without Python",
        ),
        (
            "nn.Linear(4, 4)(torch.ones(2, 4))",
            "watched Linear, 0 steps, n tensor observations: no finding. Not watched: backward of Linear: none was called on its outputs",
        ),
        ("with torch.no_grad():\n    nn.Linear(4, 4)(torch.ones(2, 4))", "watched Linear, 0 steps, n tensor observations: no finding"),
        (
            "import numscope; scope = numscope.watch(net := nn.Linear(4, 4)); net(torch.ones(2, 4)).sum().backward()",
            "watched Linear, 0 steps, n tensor observations: no finding",  # left open: the step is never over
        ),
        (
            "import numscope.probe.compiled as c; c.GRADIENTS = False  # as with torch 2.10\n"
            "torch.compile(nn.Linear(4, 4), backend='eager')(torch.ones(2, 4)).sum().backward()",
            "watched Linear, 1 step, n tensor observations: no finding. "
            "Not watched: gradients within compiled graphs of Linear, but for those of its weights: torch shows them from 2.11 on",
        ),
        (
            "from numscope.scope.model_watch import ModelWatch; ModelWatch.leave = lambda *_: 1 / 0; nn.Linear(4, 4)(torch.ones(2, 4))",
            "watched Linear, 0 steps, n tensor observations: no finding. "
            "Not watched: Linear: numscope failed and left it alone: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_last_line_tells_a_blind_run_from_a_clean_one(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "s.py").write_text(f"import torch\nfrom torch import nn\n{code}")
    done = cli("run", "s.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert last_line(done) == f"numscope: {said}"


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_data_loader_workers_run_without_a_watch(tmp_path: Path, method: str) -> None:
    source = f"""
        import sys, torch
        from torch.nn.modules import module as hooks
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, i):
                watched = "numscope.scope.autowatch" in sys.modules if {method!r} == "spawn" else False
                return torch.tensor([i, int(watched), int(__name__ == "__mp_main__")])
        if __name__ == "__main__":
            loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context={method!r})
            print(torch.cat(list(loader)).tolist())
    """
    (tmp_path / "s.py").write_text(textwrap.dedent(source))
    done = cli("run", "s.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == cli(cwd=tmp_path, command=("s.py",)).stdout
    assert done.stdout == f"{[[i, 0, int(method == 'spawn')] for i in range(4)]}\n"


def test_torchrun_starts_a_watched_script_on_each_rank(train: Path, tmp_path: Path) -> None:
    source = train.read_text().replace("def main():", "def main():\n    torch.distributed.init_process_group('gloo')")
    train.write_text(source.replace("model = Net()", "model = nn.parallel.DistributedDataParallel(Net())"))
    words = ["--standalone", "--nproc-per-node", "2", "-m", "numscope", "run"]
    words += ["--json", "found.json", "--log-dir", "logs", "train.py", "--json", "x"]
    done = cli(*words, cwd=tmp_path, command=("-m", "torch.distributed.run"), OMP_NUM_THREADS="1")
    assert done.returncode == 1, done.stderr  # torchrun's own status for a failed rank
    page = tmp_path / "logs" / "report.html"
    assert done.stderr.count("numscope: to look at it:") == done.stderr.count(f"numscope: to look at it: {page.as_uri()}") == 1
    assert '"killed":[]' in page.read_text(encoding="utf-8"), "the ranks had written their files"
    assert "exitcode  : 3" in done.stderr
    assert "aten.log at" in done.stderr
    assert sorted("".join(done.stdout.split())) == list("001122")  # two processes write their lines into each other


def test_small_t5_overflows_by_itself_and_the_line_is_named(tmp_path: Path) -> None:
    """The demo: nothing is planted, the overflow is float16's own."""
    found = tmp_path / "found.json"
    done = cli("run", "--json", str(found), "examples/train_t5.py", "--lr", "0.6", "--batch", "1", cwd=ROOT)
    assert done.returncode == 3, done.stderr
    steps = [line for line in done.stdout.splitlines() if line.startswith("step")]
    losses = [float(line.split()[-1]) for line in steps]
    assert len(losses) > 3
    assert min(losses[1:]) < 0.7 * losses[0], "the loss falls first"
    assert all(loss == loss for loss in losses)
    assert "modeling_t5.py:" in done.stderr
    assert "overflow of the dtype" in done.stderr
    assert "float16" in done.stderr


def test_recipe_names_are_those_that_recipe_of_knows() -> None:
    from numscope.cli.preparing import RECIPES
    from numscope.precision.gemm.recipes import RECIPES as KNOWN

    assert set(RECIPES) == set(KNOWN) - {"high_precision", "custom"}


def test_an_option_behind_the_scripts_name_is_said_where_the_script_refuses_or_ignores_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    said = "came behind the script's name, so the script got it"
    assert f"numscope: --log-dir {said}" in cli("run", "train.py", "--log-dir=runs/a", cwd=tmp_path).stderr
    assert said not in cli("run", "train.py", "--own", cwd=tmp_path).stderr
    (tmp_path / "train.py").write_text("print(1)\n")
    assert cli("run", "train.py", "--log-dir", "runs/a", cwd=tmp_path).stderr.splitlines()[-1].startswith(f"numscope: --log-dir {said}")
    (tmp_path / "train.py").write_text("print('log_dir')\n")
    assert said not in cli("run", "train.py", "--log-dir", "runs/a", cwd=tmp_path).stderr
