#: what: eager quantization-aware training: observers' min_val/max_val buffers start as inf/-inf; observers off, batch norm frozen in later epochs; converted at the end
#: benign: buffers that hold inf and -inf
#: source: https://github.com/pytorch/pytorch/issues/87708
# PRELUDE
import warnings; warnings.filterwarnings("ignore")
import torch.ao.quantization as tq
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.late = nn.Identity(); self.q, self.dq = tq.QuantStub(), tq.DeQuantStub()
        self.c = nn.Conv2d(1, 4, 3); self.b = nn.BatchNorm2d(4); self.r = nn.ReLU(); self.f = nn.Linear(4 * 36, 5)
    def forward(self, x): return self.dq(self.f(self.r(self.b(self.c(self.q(x)))).flatten(1)))
m = Net().eval(); m = tq.fuse_modules(m, [["c", "b"]]) if False else m
m.qconfig = tq.get_default_qat_qconfig("x86"); m.train()
tq.fuse_modules_qat(m, [["c", "b", "r"]], inplace=True); tq.prepare_qat(m, inplace=True)
watch(m); opt = torch.optim.SGD(m.parameters(), 0.05)
for ep in range(4):
    m.train()
    if ep > 1: m.apply(tq.disable_observer)
    if ep > 2: m.apply(torch.nn.intrinsic.qat.freeze_bn_stats)
    for _ in range(5):
        loss = F.cross_entropy(m(torch.randn(8, 1, 8, 8)), torch.randint(5, (8,))); opt.zero_grad(); loss.backward(); opt.step()
    print(ep, loss.item(), sorted((k, v.item()) for k, v in m.state_dict().items() if k.endswith(("min_val", "max_val")) and v.numel() == 1)[:3], "inf buffers", sum(torch.isinf(b).any().item() for b in m.buffers() if b.is_floating_point() and b.numel()))
show(m, opt)
c = tq.convert(__import__("copy").deepcopy(m).eval()); print(sha(c(torch.randn(4, 1, 8, 8))), c.f.scale)
torch.save(m.state_dict(), "qat.pt")
