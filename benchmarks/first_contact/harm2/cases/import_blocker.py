"""After its set-up the script forbids every further import of files (a finder that raises): training must go on.

Source: invented
"""
# PRELUDE
import torch._dynamo, torch.distributed, torch.utils.data, traceback, tempfile, json, inspect, linecache, pickle, copy, subprocess, multiprocessing
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 1))
class Block:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        raise ImportError(f"{name} is forbidden here")
sys.meta_path.insert(0, Block)
print(train(m, opt, 5), M(m), R())
sys.meta_path.remove(Block)
import colorsys; print(colorsys.__name__)
