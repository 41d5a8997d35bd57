"""``numscope run --pdb`` on a real terminal: where the prompt stands, what it can see, and when there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.cli.test_run import SOURCES, cli
from tests.distributed.test_torchrun import SCRIPT as RANKS

pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed: --pdb is tested on a terminal")

HEAD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, inputs):
        hidden = self.first(inputs)
        hidden = {forward}
        return self.last(hidden)

def loss_of(outputs, factor):
    scaled = outputs * factor
    return {loss}

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.{optimizer}(net.parameters(), lr=1e-3)
for step in range(4):
    batch = torch.full((2, 4), 0.0 if step == 2 else 1.0)
    optimizer.zero_grad()
{loop}
"""
TRAINED = """    loss = loss_of(net(batch), 2.0)
    loss.backward()
    optimizer.step()"""
FORWARD, LOSS = "hidden", "scaled.square().mean()"
IN_FORWARD = "torch.log(hidden * 0 + inputs.sum())"
TRAINER = """
from transformers import Trainer, TrainingArguments

class Model(Net):
    def forward(self, inputs, labels=None):
        return {"loss": super().forward(inputs).mean()}

data = [{"inputs": torch.full((4,), 0.0 if i == 2 else 1.0), "labels": 0} for i in range(4)]
arguments = TrainingArguments("out", per_device_train_batch_size=1, num_train_epochs=1, report_to=[], use_cpu=True, disable_tqdm=True)
Trainer(model=Model(), args=arguments, train_dataset=torch.utils.data.ConcatDataset([data]) and data, data_collator=None).train()
"""


def source(*, forward: str = FORWARD, loss: str = LOSS, optimizer: str = "SGD", loop: str = TRAINED) -> str:
    return HEAD.format(forward=forward, loss=loss, optimizer=optimizer, loop=loop)


def spawn(folder: Path, *words: str, command: tuple[str, ...] = ("-m", "numscope", "run", "--alerts", "off", "--pdb")):  # type: ignore[no-untyped-def]
    env = {**os.environ, "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1", "TERM": "dumb", "COLUMNS": "300"}
    return pexpect.spawn(
        sys.executable, [*command, *words, "train.py"], cwd=str(folder), env=env, encoding="utf-8", timeout=120, dimensions=(60, 300)
    )


def ask(child: object, *lines: str) -> list[str]:
    """What each line got for an answer; the first is what stands above the first prompt."""
    found = []
    for line in (*lines, None):
        child.expect_exact("(Pdb) ")  # type: ignore[attr-defined]
        found.append(child.before.replace("\r\n", "\n"))  # type: ignore[attr-defined]
        if line is not None:
            child.sendline(line)  # type: ignore[attr-defined]
    return found


def end(child: object, line: str = "c") -> tuple[int, str]:
    child.sendline(line)  # type: ignore[attr-defined]
    child.expect(pexpect.EOF)  # type: ignore[attr-defined]
    child.close()  # type: ignore[attr-defined]
    return child.exitstatus, child.before  # type: ignore[attr-defined]


def line_of(text: str, part: str) -> int:
    return next(n for n, one in enumerate(text.splitlines(), 1) if part in one)


def test_prompt_stands_in_the_forward_with_its_inputs_as_they_were(tmp_path: Path) -> None:
    text = source(forward=IN_FORWARD)
    (tmp_path / "train.py").write_text(text)
    child = spawn(tmp_path)
    said, inputs, hidden, listed, up, step, refused = ask(child, "p inputs", "p hidden.isfinite().all()", "list", "up", "p step", "n")
    assert f"numscope: --pdb: in Net.forward, {tmp_path}/train.py:{line_of(text, IN_FORWARD)}, just before aten.log." in said
    assert "This is the bad call done again" in said
    assert "tensor([[0., 0., 0., 0.],\n        [0., 0., 0., 0.]])" in inputs
    assert "tensor(True)" in hidden  # the line has not run: the name has its value from before
    assert f"->\thidden = {IN_FORWARD}".replace("\t", "") in listed.replace("\t", "").replace("  ", "")
    assert "train.py" in up and "<module>()" in up
    assert step.splitlines()[1] == "2"
    assert "Nothing can be run on from here" in refused
    status, rest = end(child)
    assert status == 3
    assert "numscope: watched Net, 2 steps" in rest


def test_prompt_stands_in_a_function_outside_of_modules_that_has_returned(tmp_path: Path) -> None:
    text = source(loss="torch.log(scaled).mean()", loop=TRAINED.replace("2.0", "batch.sum()"))
    (tmp_path / "train.py").write_text(text)
    child = spawn(tmp_path)
    said, scaled, factor, up = ask(child, "p scaled.shape", "p factor", "up")
    assert f"numscope: --pdb: in loss_of, {tmp_path}/train.py:{line_of(text, 'torch.log')}, which ran aten.log and has returned" in said
    assert "torch.Size([2, 1])" in scaled
    assert "tensor(" in factor
    assert "<module>()" in up
    assert end(child, "q")[0] == 3


def test_prompt_stands_in_the_script_where_its_own_line_is_at_fault(tmp_path: Path) -> None:
    loop = "    loss = torch.log(net(batch) * 0 + batch.sum()).sum()\n    loss.backward()\n    optimizer.step()"
    text = source(loop=loop)
    (tmp_path / "train.py").write_text(text)
    child = spawn(tmp_path)
    said, step = ask(child, "p step")
    line = line_of(text, "torch.log")
    assert f"numscope: --pdb: in <module>, {tmp_path}/train.py:{line}, which ran aten.log and is still at work" in said
    assert step.splitlines()[1] == "2"
    assert end(child)[0] == 3


def test_fault_in_backward_stops_at_the_line_of_the_forward(tmp_path: Path) -> None:
    text = source(forward="hidden + torch.sqrt(hidden - hidden.detach() + inputs.sum())")
    (tmp_path / "train.py").write_text(text)
    child = spawn(tmp_path)
    said, inputs = ask(child, "p inputs.sum()")
    line = line_of(text, "torch.sqrt")
    assert f"numscope: --pdb: in Net.forward, {tmp_path}/train.py:{line}, whose backward (aten.div) is at fault." in said
    assert "tensor(0.)" in inputs
    assert end(child)[0] == 3


def test_fault_inside_no_grad(tmp_path: Path) -> None:
    loop = "    with torch.no_grad():\n        net(batch)"
    (tmp_path / "train.py").write_text(source(forward=IN_FORWARD, loop=loop))
    child = spawn(tmp_path)
    said, inputs = ask(child, "p inputs")
    assert "numscope: --pdb: in Net.forward" in said
    assert "[0., 0., 0., 0.]" in inputs
    assert end(child)[0] == 0  # its result reaches no training: a note, at which the run goes on


def test_custom_backward_stops_in_its_own_code(tmp_path: Path) -> None:
    custom = """
class Halved(torch.autograd.Function):
    @staticmethod
    def forward(context, value, total):
        context.save_for_backward(total)
        return value / 2

    @staticmethod
    def backward(context, gradient):
        (total,) = context.saved_tensors
        return gradient / total, None
"""
    text = source(forward="Halved.apply(hidden, inputs.sum())").replace("from torch import nn\n", f"from torch import nn\n{custom}")
    (tmp_path / "train.py").write_text(text)
    child = spawn(tmp_path)
    said, total = ask(child, "p total")
    assert "numscope: --pdb: in Halved.backward" in said and f"train.py:{line_of(text, 'gradient / total')}, " in said
    assert "tensor(0.)" in total
    assert end(child)[0] == 3


def test_optimizers_own_fault_stops_in_the_script(tmp_path: Path) -> None:
    loop = f"    optimizer.param_groups[0]['lr'] = float('inf') if step == 2 else 1e-3\n{TRAINED}"
    (tmp_path / "train.py").write_text(source(loop=loop))
    child = spawn(tmp_path)
    said, step = ask(child, "p step")
    assert "the script stands here; an optimizer's update is done by its own code" in said
    assert step.splitlines()[1] == "2"
    assert end(child)[0] == 3


def test_script_that_raises_by_itself_gets_the_prompt_too(tmp_path: Path) -> None:
    loop = "    loss = net(batch).sum()\n    assert loss.isfinite(), 'bad loss'\n    loss.backward()\n    optimizer.step()"
    (tmp_path / "train.py").write_text(source(forward=IN_FORWARD, loop=loop))
    child = spawn(tmp_path)
    said, inputs, up = ask(child, "p inputs", "up")
    assert "numscope: --pdb: in Net.forward" in said
    assert "[0., 0., 0., 0.]" in inputs
    assert "<module>()" in up and "assert loss.isfinite()" in up
    status, rest = end(child)
    assert status == 1 and "AssertionError: bad loss" in said + rest


def test_prompt_under_hugging_faces_trainer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    text = HEAD.split("torch.manual_seed(0)")[0].format(forward=IN_FORWARD, loss=LOSS) + TRAINER
    (tmp_path / "train.py").write_text(text)
    child = spawn(tmp_path)
    said, inputs, up = ask(child, "p inputs", "up")
    assert f"numscope: --pdb: in Net.forward, {tmp_path}/train.py:{line_of(text, IN_FORWARD)}, just before aten.log." in said
    assert "[0., 0., 0., 0.]" in inputs
    assert "super().forward(inputs)" in up
    assert end(child)[0] == 3


def test_after_the_prompt_a_run_that_only_warns_goes_on_as_without_it(tmp_path: Path) -> None:
    loop = f"{TRAINED}\n    print('weights', net.first.weight.sum().item(), torch.rand(1).item())"
    (tmp_path / "train.py").write_text(source(forward="hidden + torch.rand(4) + torch.log(inputs.sum())", loop=loop))
    child = spawn(tmp_path, "--on-nonfinite", "warn")
    ask(child, "p torch.rand(3)", "up")
    status, rest = end(child)
    whole = (child.before + rest).replace("\r\n", "\n")
    plain = cli("run", "--alerts", "off", "--on-nonfinite", "warn", "--no-replay", "train.py", cwd=tmp_path)
    assert status == plain.returncode == 0
    printed = [line for line in whole.splitlines() if line.startswith("weights")]
    assert printed and plain.stdout.splitlines()[-len(set(printed)) :] == list(dict.fromkeys(printed))


def test_without_a_terminal_it_says_so_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(source(forward=IN_FORWARD))
    done = cli("run", "--pdb", "train.py", cwd=tmp_path)
    assert done.returncode == 3
    assert "numscope: --pdb: no prompt, because stdin is not a terminal here" in done.stderr


def test_ipythons_debugger_can_stand_in(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    (tmp_path / "train.py").write_text(source(forward=IN_FORWARD))
    child = spawn(tmp_path, command=("-m", "numscope", "run", "--alerts", "off", "--pdbcls", "IPython.core.debugger:Pdb"))
    child.expect_exact("ipdb> ")
    child.sendline("p inputs.sum()")
    child.expect_exact("ipdb> ")
    assert "tensor(0.)" in child.before
    assert end(child)[0] == 3


@pytest.mark.parametrize("name", ["pdb", "pdb:Pbd", "os:PathLike", "no.such:Pdb"])
def test_what_is_no_debugger_is_refused_before_the_scripts_first_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text("print('begun')")
    done = cli("run", "--pdbcls", name, "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"numscope: --pdbcls: got {name!r}, expected ")


def test_under_torchrun_only_the_rank_at_fault_asks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "numscope", "run", "--pdb")
    child = spawn(tmp_path, command=launcher)
    said, rank, inputs = ask(child, "p rank", "p x")
    assert said.count("numscope: --pdb: in ") == 1
    assert rank.splitlines()[1] == "1"
    assert "tensor([[-1.2800, -1.2800, -1.2800, -1.2800]," in inputs
    status, rest = end(child)
    assert status == 1 and "(Pdb)" not in rest
