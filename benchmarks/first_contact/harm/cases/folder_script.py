"""A folder with __main__.py given as the script, next to modules of common names (utils, config, statistics).

source: python/pymanager#361 (entry points)
meta: {"setup": "mkdir proj; cp folder_script.py proj/__main__.py; echo 'A = 1' > proj/utils.py; echo 'A = 2' > proj/config.py; echo 'A = 3' > proj/records.py; echo 'A = 4' > proj/probe.py", "script": ["proj"]}
"""
import os
import sys
import torch
import config
import probe
import records
import utils
from fcw import mlp, say, seed, sha, train, watch, weights

seed(117)
model = mlp()
watch(model)
say(utils.A, config.A, records.A, probe.A, os.path.basename(sys.path[0]), __name__, __package__, train(model, torch.optim.SGD(model.parameters(), 0.1), 2), sha(weights(model)))
say(sys.argv, __file__.rsplit("/", 2)[-2:])
