"""Default warning filters: a line that warns at each step is printed once. Whoever uses warnings.catch_warnings in between makes Python print it again and again. __warningregistry__, once and module actions, a warning of torch's, in healthy steps, evaluation and after a harmless nan."""
import warnings
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x):
        warnings.warn("forward of a net is slow")
        return self.body(x)


def helper(s):
    warnings.warn("helper is old", FutureWarning, stacklevel=1)


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
sched = torch.optim.lr_scheduler.StepLR(opt, 3)
first = 0
for s in range(30):
    x, y = batch(s)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y[:, :1])
    warnings.warn("loss by hand", UserWarning)
    loss.backward()
    opt.step()
    helper(s)
    if s % 7 == 0:
        sched.step(s)
    if s % 10 == 3:
        with torch.no_grad():
            bad = m(x).log()
            torch.nan_to_num(bad)
    reg = globals().get("__warningregistry__", {})
    first = first if s else reg.get("version", 0)
    print(s, loss.item().hex(), len(reg), reg.get("version", 0) - first)
print(len(warnings.filters), M(m), R())
