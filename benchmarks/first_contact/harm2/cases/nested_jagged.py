"""Nested tensors of jagged layout through linear layers and attention.

Source: https://github.com/pytorch/pytorch/issues/118107
"""
# PRELUDE
import warnings; warnings.simplefilter("ignore")
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3):
    nt = torch.nested.nested_tensor([torch.randn(n, 4) for n in (2, 5, 3)], layout=torch.jagged)
    out = m(nt); print(out.is_nested, out.layout, out.offsets().tolist(), type(out).__name__)
    loss = out.values().square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(float(loss.detach()).hex())
st = torch.nested.nested_tensor([torch.randn(n, 4) for n in (2, 5)])
print(H(torch.nested.to_padded_tensor(m(st), 0.0)), M(m))
