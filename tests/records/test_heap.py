"""The search for objects of a class."""

from __future__ import annotations

import sys
import threading

import torch
from torch.optim import SGD, Adam, Optimizer

from numscope.records.heap import instances_of


class Slotted(SGD):
    __slots__ = ()


def test_instances_of_all_subclasses_are_found_and_nothing_else() -> None:
    parameters = [torch.zeros(2, requires_grad=True)]
    made: list[Optimizer] = [SGD(parameters), Adam(parameters), Slotted(parameters)]
    found = instances_of(Optimizer)
    assert all(any(one is other for other in found) for one in made)
    assert all(isinstance(one, Optimizer) for one in found)
    assert [one for one in instances_of(Slotted) if one in made] == [made[2]]


def test_other_threads_make_tuples_meanwhile() -> None:
    failed: list[BaseException] = []
    over = threading.Event()

    def make() -> None:
        try:
            while not over.is_set():
                tuple(i for i in range(100))
        except SystemError as error:
            failed.append(error)

    thread = threading.Thread(target=make)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        for _ in range(30):
            instances_of(Optimizer)
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not failed
