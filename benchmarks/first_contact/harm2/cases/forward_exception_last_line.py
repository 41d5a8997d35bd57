"""Exceptions in forwards, hooks, backward, optimizer hooks and losses: type, text, args, context, notes, last frame of the script; then one uncaught (status 1).

Source: https://github.com/pytorch/pytorch/issues/42560
"""
# PRELUDE
import traceback
class Boom(Exception):
    def __init__(self, a, b): super().__init__(a, b); self.b = b
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4); self.do = None
    def forward(self, x):
        y = self.l(x)
        if self.do: self.do()
        return y
def boom(*a): raise Boom("x", 2)
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
def attempt(f):
    try:
        f(); print("nothing")
    except BaseException as e:
        tb = [f"{s.name}:{s.lineno}" for s in traceback.extract_tb(e.__traceback__) if s.filename == __file__]
        print(type(e).__name__, e.args if type(e) is Boom else str(e)[:60], type(e.__context__).__name__, type(e.__cause__).__name__, getattr(e, "__notes__", None), tb)
m.do = boom; attempt(lambda: train(m, opt, 1)); m.do = None; print(train(m, opt, 1))
h = m.l.register_forward_hook(boom); attempt(lambda: train(m, opt, 1)); h.remove()
h = m.register_forward_pre_hook(boom); attempt(lambda: train(m, opt, 1)); h.remove()
h = m.l.weight.register_hook(boom); attempt(lambda: train(m, opt, 1)); h.remove()
h = opt.register_step_pre_hook(boom); attempt(lambda: train(m, opt, 1)); h.remove()
attempt(lambda: m(torch.ones(2, 7))); attempt(lambda: m()); attempt(lambda: m(torch.ones(2, 8), 3)); attempt(lambda: m.nothing); attempt(lambda: m(torch.ones(2, 8)).backward())
attempt(lambda: m(torch.ones(2, 8).double())); attempt(lambda: F.cross_entropy(m(torch.ones(2, 8)), torch.tensor([9, 1])))
print(train(m, opt, 2), M(m)); m.do = boom; train(m, opt, 1)
