"""What tests do on the simulated accelerator, each in a process of its own: the device is the whole process's."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import numscope
from numscope.summary import dispatch
from tests.simulated import accelerator
from tests.summary.oracle import EXACT, summary_of

DEVICE = "simulated:0"


class Blocks(nn.Module):
    """Two blocks that may lie on two devices."""

    def __init__(self, first: str = DEVICE, second: str = DEVICE) -> None:
        super().__init__()
        self.devices = first, second
        self.lower = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)).to(first)
        self.upper = nn.Linear(16, 4).to(second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.lower(x.to(self.devices[0]))
        return self.upper(torch.log(hidden.square() + self.add).to(self.devices[1]))

    add = 0.1


def batches(steps: int, device: str = DEVICE) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(5, 8, generator=generator).to(device) for _ in range(steps)]


def train(
    watched: bool, steps: int = 5, devices: tuple[str, str] = (DEVICE, DEVICE), **options: Any
) -> tuple[list[torch.Tensor], list[list[str]]]:
    """The weights after some steps, and what the host waited for in each."""
    torch.manual_seed(0)
    model = Blocks(*devices)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    scope = numscope.watch(model, **options) if watched else None
    for x in batches(steps, devices[0]):
        accelerator.waits()
        accelerator.launches.clear()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        found.append(accelerator.waits())
    if scope is not None:
        scope.close()
    return [p.detach().cpu() for p in model.parameters()], found


def the_host_can_not_read_its_memory() -> None:
    x = torch.arange(4.0, device=DEVICE)
    child = os.fork()
    if not child:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(x.data_ptr(), 4)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV


def what_makes_the_host_wait_is_counted() -> None:
    x = torch.arange(4.0).to(DEVICE)
    accelerator.waits()
    late = torch.zeros(4, pin_memory=True)
    late.copy_(x + 1, non_blocking=True)
    assert late.tolist() == [0, 0, 0, 0] and accelerator.waits() == [] and accelerator.async_copies() == 1
    torch.accelerator.current_stream(x.device).synchronize()
    assert late.tolist() == [1, 2, 3, 4] and accelerator.waits() == ["synchronizeStream"]
    assert x.sum().item() == 6 and x.cpu().tolist() == [0, 1, 2, 3]
    assert accelerator.waits() == ["item", "copy to the host"]


def training_is_bitwise_the_same_and_waits_once_a_step() -> None:
    bare, none = train(False)
    assert none == [[]] * 5
    for kernel in (False, True):
        if kernel:
            accelerator.use_kernel()
        accelerator.async_copies()
        watched, waited = train(True)
        assert all(map(torch.equal, bare, watched)), kernel
        assert waited == [["synchronizeStream"]] * 5, (kernel, waited)
        copies = accelerator.async_copies()
        # Two a step, of activations and gradients, and of weights; in the first four also a few of what checks look at.
        assert 2 * 5 <= copies <= 2 * 5 + 4 * 8, copies


def a_call_is_read_in_one_launch_and_so_are_all_gradients_and_all_weights() -> None:
    accelerator.use_kernel()
    train(True)
    # Of the last step: three layers and the last one, one tensor each that was not seen before (two where an input is new), the block, the
    # loss; four gradients of outputs and that of the loss; six parameters' gradients; six weights.
    assert accelerator.launches[-2:] == [6, 6]
    assert len(accelerator.launches) <= 16, accelerator.launches


def nothing_grows_on_the_device_once_it_is_warm() -> None:
    accelerator.use_kernel()
    model = Blocks()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scope = numscope.watch(model)
    used = []
    for x in batches(1) * 12:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        used.append(accelerator.memory())
    scope.close()
    assert len(set(used[4:])) == 1, used  # checks look at each parameter in the first four steps


def a_fault_is_found_on_its_line() -> None:
    for kernel in (False, True):
        if kernel:
            accelerator.use_kernel()
        torch.manual_seed(0)
        model = Blocks()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scope = numscope.watch(model, on_nonfinite="raise")
        try:
            for step, x in enumerate(batches(4)):
                model.add = -1.0 if step == 2 else 0.1
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            raise AssertionError("nothing found")
        except numscope.NonFiniteError as error:
            finding = error.finding
        finally:
            scope.close()
        assert finding.culprit is not None and finding.step == 2
        assert finding.culprit.op == "aten.log" and "torch.log(hidden.square() + self.add)" in str(finding.culprit), finding


def a_model_on_the_host_and_on_two_devices_is_watched_as_one() -> None:
    accelerator.use_kernel()
    for devices in (("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, "simulated:1")):
        bare, _ = train(False, devices=devices)
        watched, _ = train(True, devices=devices)
        assert all(map(torch.equal, bare, watched)), devices


def a_model_that_moves_is_watched_where_it_is() -> None:
    accelerator.use_kernel()
    torch.manual_seed(0)
    model = Blocks("cpu", "cpu")
    scope = numscope.watch(model, on_nonfinite="raise")
    found = False
    try:
        for step, x in enumerate(batches(4)):
            if step == 2:
                model.to(DEVICE)
                model.devices = DEVICE, DEVICE
            model.add = -1.0 if step == 3 else 0.1
            model.zero_grad()
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
            model(x.to(model.devices[0])).square().mean().backward()
            optimizer.step()
    except numscope.NonFiniteError as error:
        found = error.finding.step == 3
    finally:
        scope.close()
    assert found


def every_layout_is_read_where_it_lies() -> None:
    accelerator.use_kernel()
    x = torch.randn(6, 8, 10, generator=torch.Generator().manual_seed(0))
    x[0, 0, :2] = torch.tensor([float("nan"), 0.0])
    views: list[Callable[[torch.Tensor], torch.Tensor]] = [
        *(lambda x: x, lambda x: x.transpose(0, 2), lambda x: x[:, 2:5], lambda x: x[..., 3], lambda x: x[::2], lambda x: x[:, 1:3, 2:5]),
        *(lambda x: x[0, 0, :1].expand(3, 7), lambda x: x[:0], lambda x: x[:, ::2, ::3], lambda x: x.half(), lambda x: x.long()),
    ]
    there = x.to(DEVICE)
    for view in views:
        got, right = dispatch.summarize(view(there)), summary_of(view(x))
        assert all(getattr(got, name) == getattr(right, name) for name in EXACT), (tuple(view(x).shape), view(x).stride(), got, right)


def a_kernel_that_fails_leaves_it_to_torch() -> None:
    from numscope.summary import device_batch

    def fails(device: torch.device) -> Any:
        raise RuntimeError("no compiler")

    device_batch.KERNELS["simulated"] = fails
    bare, _ = train(False)
    watched, waited = train(True)
    assert all(map(torch.equal, bare, watched)) and waited == [["synchronizeStream"]] * 5


SIX = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]


class Kept:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], float] = {}

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        self.values[iteration, name] = value


def asked(freq: int = 1) -> dict[str, Any]:
    feature = {"enabled": True, "stats": SIX, "tensors": ["activation", "weight", "gradient"], "freq": freq}
    return {"all": {"enabled": True, "layers": {"layer_name_regex_pattern": "lower.0|upper"}, "statistics": feature}}


def statistics_are_the_hosts_and_wait_once_a_step() -> None:
    expected = Kept()
    train(True, devices=("cpu", "cpu"), on_nonfinite=None, config=asked(), loggers=(expected,))
    bare, _ = train(False)
    for kernel in (False, True):
        if kernel:
            accelerator.use_kernel()
        found = Kept()
        watched, waited = train(True, on_nonfinite=None, config=asked(), loggers=(found,))
        assert all(map(torch.equal, bare, watched)), kernel
        assert waited == [["synchronizeStream"]] * 5, (kernel, waited)
        assert found.values.keys() == expected.values.keys() and len(found.values) == 5 * 2 * 3 * len(SIX)
        wrong = {key: (value, expected.values[key]) for key, value in found.values.items() if abs(value - expected.values[key]) > 1e-5}
        assert not wrong, (kernel, wrong)


def a_step_off_the_schedule_launches_nothing_and_waits_for_nothing() -> None:
    accelerator.use_kernel()
    accelerator.launches.clear()
    _, waited = train(True, on_nonfinite=None, config=asked(freq=4), loggers=(Kept(),))
    assert [len(calls) for calls in waited] == [1, 0, 0, 0, 1], waited
    train(True, steps=4, on_nonfinite=None, config=asked(freq=4), loggers=(Kept(),))
    assert not accelerator.launches  # of the last step


def statistics_beside_detection_read_nothing_twice() -> None:
    accelerator.use_kernel()
    bare, _ = train(False)
    train(True)
    alone = sum(accelerator.launches)
    found = Kept()
    watched, waited = train(True, config=asked(), loggers=(found,))
    assert all(map(torch.equal, bare, watched)) and found.values
    assert sum(accelerator.launches) == alone, (accelerator.launches, alone)
    assert all(calls == ["synchronizeStream"] * len(calls) and len(calls) <= 2 for calls in waited), waited


def a_sentinel_waits_at_most_once_a_step_and_finds_the_step() -> None:
    accelerator.use_kernel()
    bare, _ = train(False)
    watched, waited = train(True, level="sentinel")
    assert all(map(torch.equal, bare, watched))
    assert all(calls in ([], ["synchronizeStream"]) for calls in waited), waited
    torch.manual_seed(0)
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    try:
        with numscope.watch(model, level="sentinel", on_nonfinite="raise"):
            for step, x in enumerate(batches(5)):
                model.add = -1.0 if step == 2 else 0.1
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        raise AssertionError("nothing found")
    except numscope.NonFiniteError as error:
        assert error.finding.step == 2, error.finding


def checks_of_data_and_precision_work_on_the_device_and_make_nobody_wait() -> None:
    from numscope.alerts.checks import batches as again
    from numscope.alerts.checks import checker, dead_units, lost_updates
    from numscope.scope import model_watch

    model_watch.CHECKS = (dead_units.DeadUnits, lost_updates.UpdatesLost, again.Batches)
    checker.EVERY, lost_updates.SPAN = 2, 3
    torch.manual_seed(0)
    model = Blocks().to(torch.bfloat16)
    with torch.no_grad():
        model.lower[0].bias[:12] = -1000.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-7)
    (x,) = batches(1)
    scope = numscope.watch(model)
    for _ in range(20):
        accelerator.waits()
        optimizer.zero_grad()
        model(x.to(torch.bfloat16)).square().mean().backward()
        optimizer.step()
        assert accelerator.waits() == ["synchronizeStream"]  # detection's
    found = {alert.rule: (alert.step, alert.layer) for alert in scope.alerts}
    assert found == {"updates lost": (3, "upper"), "dead units": (14, "lower.0"), "same batch again": (15, "")}, found


def checksums_of_the_device_are_those_of_the_host() -> None:
    from numscope.summary.checksum import Checksums, checksum

    tensors = [torch.randn(300, 70), torch.randn(70, 300).t(), torch.arange(5000), torch.randn(9, 9).to(torch.bfloat16), torch.zeros(0)]
    here = [tensor.to(DEVICE) for tensor in tensors]
    accelerator.waits()
    sums = Checksums(here)
    assert accelerator.waits() == [] and not sums.are_here
    assert sums.read() == [checksum(tensor) for tensor in tensors]
    assert accelerator.waits() == ["synchronizeStream"]


def nothing_is_done_while_the_script_captures_a_graph() -> None:
    """A wait would end the capture, a launch would be in each replay; steps before and after are watched."""
    from types import SimpleNamespace

    from numscope.probe import calls

    accelerator.use_kernel()
    capturing: list[int] = []
    calls._cuda, calls._is_capturing = SimpleNamespace(_initialized=True), lambda: bool(capturing)  # type: ignore[assignment]
    for options in ({}, {"level": "sentinel"}, {"config": asked(), "loggers": (Kept(),)}):
        bare, _ = train(False)
        torch.manual_seed(0)
        model = Blocks()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found = []
        with numscope.watch(model, **options) as scope:
            for step, x in enumerate(batches(5)):
                capturing[:] = [step] if step in (1, 2) else []
                accelerator.waits()
                accelerator.async_copies()
                accelerator.launches.clear()
                optimizer.zero_grad()
                model(x).square().mean().backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1e9)
                optimizer.step()
                found.append((len(accelerator.launches), accelerator.async_copies(), accelerator.waits()))
        assert found[1] == found[2] == (0, 0, []), (options, found)
        assert all(launches for launches, _, _ in (found[0], *found[3:])), (options, found)
        assert scope.num_steps == 3 and all(map(torch.equal, bare, [p.detach().cpu() for p in model.parameters()]))
