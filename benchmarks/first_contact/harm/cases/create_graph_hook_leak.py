"""backward(create_graph=True) with a full backward hook of the script's: living tensors are counted over 60 rounds.

source: pytorch/pytorch#82528, pytorch/pytorch#71068
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import gc
import warnings
warnings.simplefilter("ignore")
import torch
from fcw import mlp, say, seed, sha, watch, weights

seed(31)
model = mlp(4, 6, 2)
watch(model)
model[0].register_full_backward_hook(lambda m, gi, go: None)


def count():
    gc.collect()
    return sum(1 for o in gc.get_objects() if type(o) in (torch.Tensor, torch.nn.Parameter))


opt = torch.optim.SGD(model.parameters(), 0.01)
counts = []
for step in range(60):
    x = torch.randn(3, 4, requires_grad=True)
    model(x).square().mean().backward(create_graph=True)
    sum(p.grad.square().sum() for p in model.parameters()).backward()
    opt.step()
    for p in model.parameters():
        p.grad = None
    del x
    if step % 20 == 19:
        counts.append(count())
say("living tensors grow by", counts[-1] - counts[0], sha(weights(model)))
