# what: eager quantization-aware training: observers start at min=inf, max=-inf; state saved before, within and after
# benign: yes
# cmp: status stdout files left
# PRELUDE
import torch.ao.quantization as tq
class Net(nn.Module):
    def __init__(self): super().__init__(); self.q, self.d = tq.QuantStub(), tq.DeQuantStub(); self.c = nn.Conv2d(1, 4, 3); self.b = nn.BatchNorm2d(4); self.r = nn.ReLU(); self.f = nn.Linear(4 * 36, 4)
    def forward(self, x): return self.d(self.f(self.r(self.b(self.c(self.q(x)))).flatten(1)))
torch.backends.quantized.engine = "fbgemm" if "fbgemm" in torch.backends.quantized.supported_engines else torch.backends.quantized.supported_engines[-1]
m = Net().train(); m.qconfig = tq.get_default_qat_qconfig("fbgemm"); tq.fuse_modules_qat(m, [["c", "b", "r"]], inplace=True); tq.prepare_qat(m, inplace=True); W(m)
opt = torch.optim.SGD(m.parameters(), lr=.05); torch.save(m.state_dict(), "before.pt")
for s in range(4):
    if s == 2: m.apply(tq.disable_observer)
    if s == 3: m.apply(torch.ao.nn.intrinsic.qat.freeze_bn_stats)
    g = torch.Generator().manual_seed(s); x = torch.randn(4, 1, 8, 8, generator=g); opt.zero_grad(); l = m(x).pow(2).mean(); l.backward(); opt.step(); print(float(l.detach()).hex(), M(m))
    torch.save(m.state_dict(), f"s{s}.pt")
c = tq.convert(m.eval()); print(H(c(x)), R())
