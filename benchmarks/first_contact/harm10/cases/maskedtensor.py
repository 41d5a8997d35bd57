#: what: torch.masked: inputs as MaskedTensor over nan, masked mean and softmax as features, gradients of masked entries undefined and read with to_tensor
#: benign: nan under the mask of a tensor subclass
#: source: https://github.com/pytorch/tutorials/pull/2044/files
# PRELUDE
import warnings; warnings.filterwarnings("ignore")
from torch.masked import masked_tensor, as_masked_tensor
m = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 1)); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(15):
    x = torch.randn(8, 4); x[torch.rand(8, 4) < 0.3] = float("nan"); ok = ~torch.isnan(x); mt = masked_tensor(x, ok); mean = torch.mean(mt, 1).to_tensor(0.0); f = mt.to_tensor(0.0); f = f - mean[:, None] * ok
    a = masked_tensor(torch.randn(8, 4), ok, requires_grad=True); torch.exp(a).sum().backward(); p = m(f).squeeze(1); l = F.mse_loss(p, mean); opt.zero_grad(); l.backward(); opt.step(); print(l.item(), sha(a.grad.to_tensor(-1.0)), torch.isnan(x).sum().item())
show(m, opt)
