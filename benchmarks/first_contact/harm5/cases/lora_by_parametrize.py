"""minLoRA: adapters as parametrizations registered on a model that is already watched, cached() forwards, two adapters stacked, merged (leave_parametrized) and removed, in a training."""
# PRELUDE
from torch.nn.utils import parametrize
class LoRA(nn.Module):
    def __init__(self, fi, fo, r=2):
        super().__init__()
        self.A, self.B = nn.Parameter(torch.randn(r, fi) * 0.1), nn.Parameter(torch.zeros(fo, r))
        self.drop = nn.Dropout(0.2)
        self.register_buffer("ones", torch.ones(1, fi))

    def forward(self, w):
        return w + self.B @ (self.A * self.drop(self.ones)) * 0.5


m = net(3)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 3), type(m[0]).__name__)
for l in (m[0], m[2]):
    parametrize.register_parametrization(l, "weight", LoRA(l.in_features, l.out_features))
for n, p in m.named_parameters():
    p.requires_grad_("LoRA" in n or ".A" in n or ".B" in n or n.endswith(("A", "B")))
lp = [p for p in m.parameters() if p.requires_grad]
print([n for n, p in m.named_parameters() if p.requires_grad], type(m[0]).__name__)
o2 = torch.optim.Adam(lp, 0.01)
print(train(m, o2, 4, 5))
with parametrize.cached():
    x, y = batch(50)
    (m(x) + m(x * 2) - y).square().mean().backward()
o2.step()
parametrize.register_parametrization(m[0], "weight", LoRA(8, 16))
o3 = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 0.01)
print(train(m, o3, 3, 10), M(m))
torch.save(m.state_dict(), "lora.pt")
parametrize.remove_parametrizations(m[0], "weight", leave_parametrized=True)
parametrize.remove_parametrizations(m[2], "weight", leave_parametrized=False) if False else parametrize.remove_parametrizations(m[2], "weight")
m.requires_grad_(True)
o4 = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, o4, 3, 20), type(m[0]).__name__, sorted(m.state_dict()), M(m), R())
