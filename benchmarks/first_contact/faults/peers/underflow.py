"""python peers/underflow.py CASE [ARGS]: the case with transformers' DebugUnderflowOverflow on each model, attached at its first call."""
import runpy
import sys
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers.debug_utils import DebugUnderflowOverflow

sys.argv = sys.argv[1:]
known, kept = set(), []


def first(module, args):
    if id(module) not in known and not isinstance(module, torch.nn.modules.loss._Loss):
        known.update(id(m) for m in module.modules())
        try:
            kept.append(DebugUnderflowOverflow(module))
        except Exception as error:  # what it can't watch, it does not watch
            print("DebugUnderflowOverflow:", repr(error)[:200], file=sys.stderr)


register_module_forward_pre_hook(first)
runpy.run_path(sys.argv[0], run_name="__main__")
