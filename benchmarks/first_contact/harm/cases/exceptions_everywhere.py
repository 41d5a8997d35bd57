"""The script's own exceptions in forward, hooks, backward of custom functions, closures, step hooks, schedulers; type, args, cause, notes.

source: pytorch/pytorch#42560
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(78)
WHERE = [None]


class Mine(Exception):
    def __init__(self, where, *, code):
        super().__init__(where)
        self.code = code


def hit(where):
    if WHERE[0] == where:
        WHERE[0] = None
        try:
            raise KeyError("inner")
        except KeyError as inner:
            e = Mine(where, code=17)
            e.add_note("a note")
            raise e from inner


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        hit("fn forward")
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        hit("fn backward")
        return g


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()

    def forward(self, x):
        hit("forward")
        y = Fn.apply(self.body(x))
        if y.requires_grad:
            y.register_hook(lambda g: hit("tensor hook"))
        return y


model = Net()
model.body[0].register_forward_pre_hook(lambda m, a: hit("pre hook"))
model.body[2].register_forward_hook(lambda m, a, o: hit("hook"))
model.body[2].register_full_backward_hook(lambda m, a, o: hit("backward hook"))
model.body[4].weight.register_post_accumulate_grad_hook(lambda p: hit("post accumulate"))
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
opt.register_step_pre_hook(lambda *a: hit("step pre"))
opt.register_step_post_hook(lambda *a: hit("step post"))
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: (hit("lambda"), 0.9**e)[1])
x, y = torch.randn(4, 8), torch.randn(4, 4)


def closure():
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    hit("closure")
    loss.backward()
    return loss


for where in (None, "forward", "pre hook", "hook", "fn forward", "fn backward", "tensor hook", "backward hook", "post accumulate", "step pre", "step post", "closure", "lambda"):
    WHERE[0] = where
    try:
        say(where, opt.step(closure).item().hex())
        sched.step()
    except Mine as e:
        say("caught", e.args, e.code, e.__notes__, repr(e.__cause__), e.__context__ is e.__cause__, e.__traceback__ is not None)
    except BaseException as e:
        say("another", type(e).__name__, e)
    say(torch.is_grad_enabled(), torch._C._len_torch_dispatch_stack(), sha(weights(model)))
WHERE[0] = None
say(train(model, opt, 3), rng())
