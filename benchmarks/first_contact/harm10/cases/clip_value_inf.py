#: what: infinite gradients (sqrt at 0) limited by clip_grad_value_, as recipes for distance losses do
#: benign: inf gradients clamped to a finite value
#: source: https://github.com/pytorch/pytorch/issues/17455
# PRELUDE
class S(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Parameter(torch.zeros(3)); self.l = nn.Linear(3, 3)
    def forward(self, x): return self.l(x) + self.a.abs().clamp(min=0).sqrt() if False else self.l(x) + torch.sqrt(self.a * self.a.new_ones(3))
m = S(); watch(m); opt = torch.optim.SGD(m.parameters(), 0.01)
for step in range(15):
    x = torch.randn(8, 3); loss = F.mse_loss(m(x), x - 1); opt.zero_grad(); loss.backward(); g = torch.isinf(m.a.grad).sum().item()
    nn.utils.clip_grad_value_(m.parameters(), 1.0); opt.step(); m.a.data.clamp_(min=0); print(step, loss.item(), g)
show(m, opt)
