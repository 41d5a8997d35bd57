"""A script whose options have the tool's own names, abbreviated ones too, and whose --help and errors are its own.

source: pytorch/pytorch#120601, hqucms/weaver-core PR 17, pytorch/pytorch#85615
meta: {"args": ["--log-dir", "L", "--json", "--conf", "c.yaml", "--alerts", "off", "--trace", "1,2", "--lev", "3", "--no-replay", "rest", "--", "--pdb"]}
"""
import argparse
import sys
import torch
from fcw import mlp, say, seed, train, watch

p = argparse.ArgumentParser()
p.add_argument("--log-dir")
p.add_argument("--json", action="store_true")
p.add_argument("--config")
p.add_argument("--alerts", choices=["on", "off"])
p.add_argument("--trace")
p.add_argument("--level", type=int)
p.add_argument("--no-replay", action="store_true")
p.add_argument("--pdb", action="store_true")
p.add_argument("words", nargs="*")
say(vars(p.parse_args()), p.prog, p.format_usage().split()[:2])
seed(91)
model = mlp()
watch(model)
say(train(model, torch.optim.SGD(model.parameters(), 0.1), 2))
