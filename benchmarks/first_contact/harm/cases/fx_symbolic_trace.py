"""torch.fx.symbolic_trace, Interpreter and a Transformer over a model in training; the traced one trains on.

source: pytorch/pytorch#105445, pytorch/vision#5193
"""
import torch
from torch import fx, nn
from fcw import rng, say, seed, sha, train, watch, weights

seed(14)
model = nn.Sequential(nn.Linear(8, 8), nn.Hardtanh(), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 4)))
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 3))
traced = fx.symbolic_trace(model)
say(traced.code, [n.format_node() for n in traced.graph.nodes])
say(torch.equal(fx.Interpreter(traced).run(torch.ones(2, 8)), model(torch.ones(2, 8))))


class Swap(fx.Transformer):
    def call_module(self, target, args, kwargs):
        return torch.sigmoid(args[0]) if target == "1" else super().call_module(target, args, kwargs)


other = Swap(traced).transform()
say(other.code)
watch(traced)
say(train(traced, torch.optim.Adam(traced.parameters(), 1e-3), 3))
say([list(m._forward_hooks.values()) for m in traced.modules()], sha(weights(model)), rng())
