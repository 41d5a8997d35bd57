"""PGD and free adversarial training: gradients with respect to inputs, sign steps, gradients of weights accumulated by the attack and thrown away, eval inside train."""
# PRELUDE
m = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)


def pgd(x, y):
    m.eval()
    d = torch.zeros_like(x).uniform_(-0.1, 0.1)
    for _ in range(3):
        d.requires_grad_()
        F.cross_entropy(m(x + d), y).backward()
        d = (d.detach() + 0.05 * d.grad.sign()).clamp(-0.1, 0.1)
    m.train()
    return (x + d).detach()


free = torch.zeros(6, 8)
for s in range(6):
    x, t = batch(s)
    y = t.argmax(1)
    adv = pgd(x, y)
    opt.zero_grad()
    loss = F.cross_entropy(m(adv), y)
    loss.backward()
    opt.step()
    for _ in range(2):
        noise = free.clone().requires_grad_()
        l2 = F.cross_entropy(m(x + noise), y)
        opt.zero_grad()
        l2.backward()
        free = (free + 0.05 * noise.grad.sign()).clamp(-0.1, 0.1)
        opt.step()
    print(s, float(loss.detach()).hex(), float(l2.detach()).hex(), H(adv, free))
print(M(m), R())
