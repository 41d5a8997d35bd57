"""Layers frozen, thawed, replaced, weights swapped by swap_tensors and .data, param groups added in mid-run.

Source: https://github.com/pytorch/pytorch/issues/97500 (set_ and swaps)
"""
# PRELUDE
m = net(); W(m)
opt = torch.optim.Adam(m[4].parameters(), 1e-2)
m[0].requires_grad_(False); m[2].requires_grad_(False)
print(train(m, opt, 2))
m[2].requires_grad_(True); opt.add_param_group(dict(params=m[2].parameters(), lr=1e-3)); print(train(m, opt, 2))
m[0] = nn.Linear(8, 16); opt.add_param_group(dict(params=m[0].parameters())); print(train(m, opt, 2))
m[3] = nn.ELU(inplace=True); print(train(m, opt, 2))
a, b = nn.Parameter(torch.ones(16)), m[0].bias
torch.utils.swap_tensors(a, b); print(train(m, opt, 1)); m[2].weight.data = m[2].weight.data.t().clone(); print(train(m, opt, 1))
with torch.no_grad(): m[4].bias.set_(torch.zeros(4))
print(train(m, opt, 1), M(m), len(opt.param_groups), len(opt.state), R())
