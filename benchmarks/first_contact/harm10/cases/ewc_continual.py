#: what: EWC over three tasks: Fisher by per-sample backward in eval mode, deepcopied old models, a head grown with add_module between tasks, optimizer.add_param_group
#: source: https://github.com/talreiss/PANDA/issues/3
# PRELUDE
import copy
class Net(nn.Module):
    def __init__(self): super().__init__(); self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU()); self.heads = nn.ModuleList()
    def grow(self): self.heads.append(nn.Linear(16, 2)); return self.heads[-1]
    def forward(self, x, t): return self.heads[t](self.body(x))
m = Net(); h = m.grow(); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9); mem = []
for t in range(3):
    if t: opt.add_param_group({"params": list(m.grow().parameters()), "lr": 0.1})
    for s in range(8):
        x = torch.randn(8, 6); y = (x[:, t] > 0).long(); l = F.cross_entropy(m(x, t), y); pen = sum((f * (p - o) ** 2).sum() for fish, old in mem for (n, p) in m.named_parameters() if n in fish for f, o in [(fish[n], old[n])]); opt.zero_grad(); (l + 50 * pen).backward(); opt.step()
    fish = {n: torch.zeros_like(p) for n, p in m.named_parameters()}; m.eval()
    for i in range(6):
        m.zero_grad(); x = torch.randn(1, 6); F.nll_loss(F.log_softmax(m(x, t), 1), m(x, t).argmax(1)).backward()
        for n, p in m.named_parameters(): fish[n] += (p.grad ** 2 / 6 if p.grad is not None else 0)
    m.train(); mem.append((fish, {n: p.detach().clone() for n, p in m.named_parameters()})); print(t, l.item(), float(pen), sha(fish)); old = copy.deepcopy(m)
show(m, opt); show(old)
