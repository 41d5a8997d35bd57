"""Eager quantization-aware training, convert to int8, dynamic quantization; observers' buffers, outputs, state dict.

Source: https://docs.pytorch.org/docs/stable/quantization.html
"""
# PRELUDE
import warnings; warnings.simplefilter("ignore")
import torch.ao.quantization as q
torch.backends.quantized.engine = "fbgemm" if "fbgemm" in torch.backends.quantized.supported_engines else "qnnpack"
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self): super().__init__(); self.q, self.d = q.QuantStub(), q.DeQuantStub(); self.a, self.r, self.b = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)
    def forward(self, x): return self.d(self.b(self.r(self.a(self.q(x)))))
m = Net().train(); m.qconfig = q.get_default_qat_qconfig("fbgemm")
q.prepare_qat(m, inplace=True); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
print(train(m, opt, 4), M(m))
m.eval(); c = q.convert(m); o = c(batch(0)[0]); print(H(o), type(c.a).__name__, H(c.a.weight().int_repr()))
dn = q.quantize_dynamic(net(), {nn.Linear}, dtype=torch.qint8); print(H(dn(batch(0)[0])), type(dn[0]).__name__)
print(sorted(c.state_dict())[:4])
