"""The script's own sys.settrace records the lines of its own file that run; nothing of it is lost or switched off.

Source: https://github.com/coveragepy/coveragepy/issues/683
"""
# PRELUDE
import threading
lines = {}
def tracer(frame, event, arg):
    if frame.f_code.co_filename != __file__:
        return None
    if event == "line": lines[frame.f_lineno] = lines.get(frame.f_lineno, 0) + 1
    return tracer
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4)
    def forward(self, x):
        y = self.l(x)
        return y * 2
torch.manual_seed(0); m = Net()
sys.settrace(tracer); threading.settrace(tracer)
r = train(m, torch.optim.SGD(m.parameters(), 0.1), 4)
print(sys.gettrace() is tracer)
sys.settrace(None)
print(r, H(sorted(lines.items())), len(lines), sum(lines.values()), M(m))
