"""GRU-D: inputs have nan where nothing was measured; the model imputes with decays, torch.where and buffers; nan is an input, never a result."""
# PRELUDE
seed(22)


class GRUD(nn.Module):
    def __init__(self, d=5, h=16):
        super().__init__()
        self.cell, self.gx, self.o = nn.GRUCell(2 * d, h), nn.Linear(d, d), nn.Linear(h, 1)
        self.register_buffer("mean", torch.full((d,), float("nan")))
        self.h = h

    def fit_mean(self, x):
        self.mean.copy_(x.flatten(0, 1).nanmean(0))

    def forward(self, x, dt):
        h, last = x.new_zeros(x.shape[0], self.h), self.mean.expand(x.shape[0], -1)
        for t in range(x.shape[1]):
            m = ~x[:, t].isnan()
            last = torch.where(m, x[:, t], last)
            g = torch.exp(-F.relu(self.gx(dt[:, t])))
            xi = torch.where(m, x[:, t], g * last + (1 - g) * self.mean)
            h = self.cell(torch.cat([xi, m.float()], 1), h)
        return self.o(h)


net = GRUD()
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
X = torch.randn(48, 7, 5)
X[torch.rand_like(X) < 0.5] = float("nan")
y = X.nanmean((1, 2))[:, None].nan_to_num()
dt = torch.rand(48, 7, 5)
net.fit_mean(X)
for epoch in range(6):
    for i in torch.randperm(48).split(16):
        loss = F.mse_loss(net(X[i], dt[i]), y[i])
        opt.zero_grad(); loss.backward(); opt.step()
    print(epoch, dig(loss, net.mean))
end(net, opt)
