"""KeyboardInterrupt inside a forward and inside a gradient hook, caught: checkpoint saved, training resumed, status 0.

Source: https://github.com/uberduck-ai/uberduck-ml-dev/issues/66
"""
# PRELUDE
import signal
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4); self.hit = False
    def forward(self, x):
        y = self.l(x)
        if self.hit: self.hit = False; signal.raise_signal(signal.SIGINT)
        return y
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
for k in range(3):
    try:
        m.hit = True; train(m, opt, 2, k); print("missed")
    except KeyboardInterrupt as e:
        print("caught", repr(e)); torch.save(m.state_dict(), f"c{k}.pt")
    print(train(m, opt, 2, k))
def hook(g): signal.raise_signal(signal.SIGINT)
h = m.l.bias.register_hook(hook)
try:
    train(m, opt, 1); print("missed")
except KeyboardInterrupt:
    print("caught in backward")
h.remove(); print(train(m, opt, 2), M(m), torch.is_grad_enabled())
