#: what: adversarial training 'for free': gradients of an input perturbation that lives across batches, the model replayed 3 times per batch
#: source: https://github.com/MadryLab/mnist_challenge/issues/3
# PRELUDE
m = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 3)); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
delta = torch.zeros(8, 1, 8, 8, requires_grad=True); eps = 0.1
for b in range(6):
    x, y = torch.rand(8, 1, 8, 8), torch.randint(3, (8,))
    for k in range(3):
        loss = F.cross_entropy(m((x + delta).clamp(0, 1)), y); opt.zero_grad(); delta.grad = None; loss.backward(); opt.step()
        delta.data.add_(eps * delta.grad.sign()).clamp_(-eps, eps)
    m.eval(); adv = x.clone().requires_grad_(); g, = torch.autograd.grad(F.cross_entropy(m(adv), y), adv); m.train(); print(b, loss.item(), sha(g, delta))
show(m, opt)
