"""DeepSpeed's real engine on CPU, where it is installed: it comes as source and changes what other packages import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent

import pytest

from tests.distributed.ranks import RankPool
from tests.integrations.page import lines_of
from tests.parity import zero
from tests.parity.cases import train

pytestmark = pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed (./dev setup)")

SCRIPT = r"""
import sys
import deepspeed, torch
import numscope
from torch import nn

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # of CPUs alone, and minutes to compile: gloo serves


def train(bad, stage, watched=0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 1))
    adam = {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}
    zero = {"stage": stage, "reduce_bucket_size": 1 << 16, "allgather_bucket_size": 1 << 16}  # else buffers of 500 million elements
    config = {"train_batch_size": 8, "gradient_accumulation_steps": 1, "zero_optimization": zero, "optimizer": adam}
    if watched:
        {watched}
    else:
        {bare}
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    x = torch.rand(8, 4, generator=torch.Generator().manual_seed(1)).chunk(ranks)[rank]
    for step in range(5):
        result = engine(x)
        if step == bad and rank == ranks - 1:
            result = torch.log(result - 100)  # HERE
        loss = (result**2).mean()
        engine.backward(loss)
        engine.step()
    print(f"trained to {loss.item()} {[p.double().sum().item() for p in model.parameters()]}\n", end="", flush=True)


for word in sys.argv[1:]:  # all in one process: importing DeepSpeed takes longer than these trainings
    train(*map(int, word.split(":")))
"""
BARE = [line for line in lines_of("DeepSpeed").splitlines() if "numscope" not in line]
for name, lines in (("watched", lines_of("DeepSpeed").strip().splitlines()), ("bare", BARE)):
    SCRIPT = SCRIPT.replace(f"        {{{name}}}", indent("\n".join(lines), " " * 8))
LINE = next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# HERE"))


Ran = Callable[..., tuple[str, str]]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs a script as the only rank, or as one of several; gives the lines of what they trained to, and what they wrote to stderr."""
    ports = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29700", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    for name, value in {**ports, "DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo"}.items():
        monkeypatch.setenv(name, value)

    def run(script: str, *words: str, by: Sequence[str] = (), ranks: int = 1) -> tuple[str, str]:
        path = tmp_path / "train.py"
        path.write_text(script)
        (tmp_path / "mlflow.py").write_text("raise ImportError('half of the time to load DeepSpeed')\n")
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
        command = [sys.executable, *launch, *by, str(path), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path)
        trained = (line for line in done.stdout.splitlines() if line.startswith("trained to"))
        return "\n".join(trained) or done.stderr, done.stderr

    return run


def test_engine_is_seen_through_at_each_zero_stage_and_by_the_pages_lines(ran: Ran) -> None:
    healthy, faulty = (["-1:0", "-1:1", "-1:2", "-1:3"], ["3:0", "3:1", "3:2", "3:3"])
    bare, words = ran(SCRIPT, *healthy, "3:2:1")
    assert "When     step 3" in words and f"train.py:{LINE}" in words
    watched, words = ran(SCRIPT, *healthy, *faulty, by=["-m", "numscope", "run", "--on-nonfinite", "warn"])
    assert bare.splitlines() == watched.splitlines()[:4] and "watched Sequential" in words
    found = [line for line in words.splitlines() if line.startswith("When")]
    assert len(found) == 4 and all(line.startswith("When     step 3") for line in found), words
    assert words.count("aten.log (loss)") >= 4 and f"train.py:{LINE}" in words


def test_of_two_ranks_the_one_at_fault_is_named(ran: Ran) -> None:
    trained, words = ran(SCRIPT, "-1:1", "3:1", by=["-m", "numscope", "run"], ranks=2)
    assert trained.count("trained to") == 2, "the healthy training, on both ranks"
    assert "When     step 3" in words and "rank 1, Sequential" in words and f"train.py:{LINE}" in words


Played = tuple[Path, list[tuple[dict[str, list[float]], dict[str, list[str]]]]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The folder of tests/parity/zero.py's cases, and what its two ranks returned."""
    pool, folder = RankPool(2), tmp_path_factory.mktemp("zero")
    pool.folder = folder
    told = pool.run(zero.play, [*zero.CASES, *(f"{name}, bare" for name in BARE_TOO)], folder)
    pool.close()
    return folder, [one.value for one in told]


BARE_TOO = [f"ZeRO {stage}, two micro-batches" for stage in (1, 2, 3)]


def test_two_layouts_of_which_one_is_zeros(played: Played) -> None:
    folder, told = played
    for name in sorted({case.reference for case in zero.CASES.values()} - zero.CASES.keys()):
        for reference in (name, f"{name}, disturbed"):
            train(reference, folder)
    assert all(losses[name] == losses[f"{name}, bare"] for name in BARE_TOO for losses, _ in told)
    assert not {name: found for name in zero.CASES if not zero.is_right(name, found := zero.judged(name, folder))}


def test_a_resume_that_loses_states_of_zero_is_named(played: Played) -> None:
    begins = ["Resumed at step 3: AdamW begins without state (exp_avg, exp_avg_sq, step)."]
    num_here = {1: (6, 13), 2: (6, 13), 3: (17, 17)}  # parameters of which a rank has something
    for rank, (_, found) in enumerate(played[1]):
        for stage, nums in num_here.items():
            of_stage = {loads: found[f"ZeRO {stage} {loads}".strip()] for loads in ("", *zero.LOADS)}
            reset = [f"Resumed at step 3: AdamW's exp_avg is zero in {nums[rank]} parameters."]
            assert of_stage == {"": [], "all": [], "weights alone": begins, "moments are reset": reset}
