"""python -m cProfile -o around the script: the script under the profiler trains with a Function, hooks and a scheduler; its output, bits and status."""
# PRELUDE
class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.o = nn.Linear(8, 8), nn.Linear(8, 4)
    def forward(self, x):
        x = self.l(x)
        for _ in range(2):
            x = Sq.apply(torch.tanh(x))
        return self.o(x)
m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
calls = []
m.l.register_forward_hook(lambda *a: calls.append(1))
m.o.weight.register_hook(lambda g: g * 0.5)
print(train(m, opt, 4), len(calls), M(m), R())
