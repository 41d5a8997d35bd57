"""MaskedTensor (prototype): masked-out nan and inf, safe softmax, gradients of 0/0 avoided, nanmean; the results train a model; torch.masked functions."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from torch.masked import masked_tensor, as_masked_tensor
seed(94)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 6))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(12):
    x = torch.randn(8, 6)
    obs = torch.rand(8, 6) > 0.3
    obs[:, 0] = True
    t = torch.where(obs, x * 2, torch.tensor(math.nan))
    o = net(x)
    p = torch.masked.softmax(o, 1, mask=obs)
    m = torch.masked.mean((o - t.nan_to_num()) ** 2, mask=obs)
    loss = m + torch.masked.sum(p * 0.1, mask=obs)
    opt.zero_grad(); loss.backward(); opt.step()
    a = torch.tensor([-10.0, -5, 0, 5, 10, 50], requires_grad=True)
    mt = as_masked_tensor(torch.where(a < 0, torch.exp(a), torch.ones_like(a)), a < 0)
    mt.sum().backward()
    d = masked_tensor(t, obs)
    print(step, dig(loss, p, a.grad.get_data() if hasattr(a.grad, 'get_data') else a.grad), dig(d.mean().get_data(), d.amax(1).get_data()), dig(torch.masked.logsumexp(o.detach(), 1, mask=obs), torch.masked.var(t, 0, mask=obs)))
end(net, opt)
