r"""A zipapp: a zip with __main__.py given to python; its loader reads a resource and trains.

source: pex-tool/pex#1236 (zip and venv entry points)
meta: {"setup": "mkdir z; cp zipapp_script.py z/__main__.py; echo data > z/res.txt; python3 -c \"import zipapp; zipapp.create_archive('z', 'app.pyz')\"; rm -r z", "script": ["app.pyz"], "args": ["one"], "ignore": ["app.pyz"]}
"""
import os
import pkgutil
import sys
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

seed(116)
model = mlp()
watch(model)
say(__name__, os.path.basename(sys.argv[0]), sys.argv[1:], os.path.basename(sys.path[0]), __file__.rsplit("/", 2)[-2:], type(__loader__).__name__)
say(__loader__.get_data(os.path.join(os.path.dirname(__file__), "res.txt")), train(model, torch.optim.SGD(model.parameters(), 0.1), 2), sha(weights(model)))
