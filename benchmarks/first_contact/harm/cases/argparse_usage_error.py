"""The script's own argparse ends it with status 2 and its usage on stderr, after a training.

source: pytorch/pytorch#120601
meta: {"args": ["--stepz", "3"], "expect_status": [2]}
"""
import argparse
import torch
from fcw import mlp, say, seed, train, watch

seed(92)
model = mlp()
watch(model)
say(train(model, torch.optim.SGD(model.parameters(), 0.1), 2))
p = argparse.ArgumentParser(description="trains")
p.add_argument("--steps", type=int, default=3)
p.parse_args()
