"""python -m package.train with relative imports, a __main__.py, __spec__ that is set, and pickles of its classes.

source: pex-tool/pex#1236, python/cpython#64177
meta: {"setup": "mkdir -p pkg/sub; echo 'NAME = __name__' > pkg/__init__.py; echo 'from .. import NAME' > pkg/sub/__init__.py; cp module_package.py pkg/sub/train.py; echo 'from .train import main; main(__spec__.name)' > pkg/sub/__main__.py", "script": ["-m", "pkg.sub.train"], "args": ["-m", "x"]}
"""
import os
import pickle
import sys
import torch
from fcw import mlp, say, seed, sha, train, watch, weights


class Config:
    pass


def main(name):
    seed(114)
    model = mlp()
    watch(model)
    say(name, train(model, torch.optim.SGD(model.parameters(), 0.1), 2), sha(weights(model)))
    say(__name__, __package__, __spec__ and (__spec__.name, os.path.basename(__spec__.origin)), sys.argv[1:], os.path.basename(sys.argv[0]), os.path.basename(__file__), os.path.samefile(sys.path[0], "."))
    say(Config.__module__, type(pickle.loads(pickle.dumps(Config()))) is Config, sorted(m for m in sys.modules if m.startswith("pkg")))


if __name__ == "__main__":
    from . import NAME

    main(NAME)
