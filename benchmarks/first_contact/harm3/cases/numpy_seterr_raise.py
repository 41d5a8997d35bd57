"""np.seterr(all='raise') and np.seterrcall from the first line: tiny, huge and zero values in the model (denormals included) raise nothing; the setting is kept."""
# PRELUDE
np.seterr(all="raise")
m = net(1)
W(m)
with torch.no_grad():
    m[0].weight[0].fill_(1e-42)
    m[2].weight[:, 0].fill_(0)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 3))
d = net(2).double()
W(d)
with torch.no_grad():
    d[0].bias.fill_(1e-310)
o = torch.optim.SGD(d.parameters(), 0.05)
for s in range(3):
    x, t = batch(s)
    o.zero_grad()
    F.mse_loss(d(x.double() * 1e-200), t.double()).backward()
    o.step()
big = nn.Linear(4, 4)
W(big)
y = big(torch.full((2, 4), 1e30))
(y * 1e-30).sum().backward()
torch.optim.SGD(big.parameters(), 1e-35).step()
print(np.geterr(), M(m), M(d), M(big))
try:
    np.float32(1e30) * np.float32(1e30)
except FloatingPointError as e:
    print(e)
