"""SGD with differentiable=True: gradients flow through optimizer steps to a learned learning rate.

Source: https://github.com/pytorch/pytorch/issues/79205
"""
# PRELUDE
torch.manual_seed(0)
lr = torch.tensor(0.1, requires_grad=True)
hyper = torch.optim.Adam([lr], 1e-2)
for s in range(3):
    p = torch.randn(4, requires_grad=True).clone()
    opt = torch.optim.SGD([p], lr=lr, differentiable=True)
    for _ in range(2):
        (gr,) = torch.autograd.grad(p.clone().square().sum(), p, create_graph=True)
        p.grad = gr; opt.step()
    loss = p.square().sum(); hyper.zero_grad(); loss.backward(); hyper.step()
    print(float(loss.detach()).hex(), float(lr.detach()).hex())
