"""Parametrizations: orthogonal by three maps, a symmetric and a positive one stacked, parametrize.cached() across several forwards in a step, right_inverse assignments, removal in mid-training, copies and state dicts, how often each parametrization runs."""
import copy
# PRELUDE
import torch.nn.utils.parametrize as P
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

calls = []


class Symmetric(nn.Module):
    def forward(self, x):
        calls.append("sym")
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, x):
        return x.triu()


class Positive(nn.Module):
    def forward(self, x):
        calls.append("pos")
        return F.softplus(x)

    def right_inverse(self, y):
        return torch.log(torch.expm1(y))


torch.manual_seed(5)
m = nn.Sequential(orthogonal(nn.Linear(8, 8), orthogonal_map="cayley"), nn.Tanh(), orthogonal(nn.Linear(8, 8), orthogonal_map="matrix_exp"), orthogonal(nn.Linear(8, 8), orthogonal_map="householder"),
                  nn.Linear(8, 8), weight_norm(nn.Linear(8, 8)), spectral_norm(nn.Linear(8, 4)))
P.register_parametrization(m[4], "weight", Symmetric())
P.register_parametrization(m[4], "weight", Positive())
m[4].weight = torch.rand(8, 8) + 0.1
W(m)
opt = torch.optim.SGD(m.parameters(), 0.02)
for s in range(6):
    x, y = batch(s)
    opt.zero_grad()
    calls.clear()
    if s % 2:
        with P.cached():
            loss = F.mse_loss(m(x), y) + F.mse_loss(m(x + 1), y) + 0.01 * m[4].weight.square().sum()
            same = m[0].weight is m[0].weight
            loss.backward()
    else:
        loss = F.mse_loss(m(x), y) + F.mse_loss(m(x + 1), y)
        same = m[0].weight is m[0].weight
        loss.backward()
    opt.step()
    w = m[0].weight
    print(s, loss.item().hex(), same, list(calls), H(w @ w.t()), M(m), P._cache_enabled, len(P._cache))
    if s == 2:
        P.remove_parametrizations(m[4], "weight")
        opt = torch.optim.SGD(m.parameters(), 0.02)
        print(type(m[4]).__name__, m[4].weight.is_leaf)
    if s == 3:
        m[2].weight = torch.linalg.qr(torch.randn(8, 8))[0]
        twin = copy.deepcopy(m)
        print(type(twin[0]).__name__, H(dict(twin.state_dict())), list(twin.state_dict())[:4])
        torch.save(m.state_dict(), "m.pt")
print(P.type_before_parametrizations(m[0]).__name__, type(m[0]).__module__, P.is_parametrized(m), R())
