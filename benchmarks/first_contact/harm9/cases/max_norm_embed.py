"""Embeddings with max_norm (weights change in forward), sparse gradients with SparseAdam, EmbeddingBag of empty bags, and a mean over nothing in evaluation."""
# PRELUDE
seed(51)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Embedding(30, 8, max_norm=0.7, norm_type=2.0)
        self.b = nn.EmbeddingBag(40, 8, mode="sum", sparse=True)
        self.o = nn.Linear(16, 2)

    def forward(self, u, items, off):
        if not self.training:
            pooled = torch.stack([self.a(u[i:j]).mean(0) for i, j in zip(off.tolist(), off.tolist()[1:] + [len(u)])])
            return self.o(torch.cat([pooled, self.b(items, off)], 1))
        return self.o(torch.cat([self.a(u), self.b(items, off, per_sample_weights=torch.ones(len(items)))], 1))


net = Net()
watch(net)
dense = torch.optim.Adam([net.a.weight, *net.o.parameters()], 1e-2)
sparse = torch.optim.SparseAdam([net.b.weight], 1e-2)
for step in range(20):
    net.train()
    u, items = torch.randint(0, 30, (6,)), torch.randint(0, 40, (12,))
    off = torch.tensor([0, 2, 2, 5, 9, 12])
    loss = F.cross_entropy(net(u, items, off), torch.randint(0, 2, (6,)))
    dense.zero_grad(); sparse.zero_grad()
    loss.backward()
    dense.step(); sparse.step()
    net.eval()
    with torch.no_grad():
        e = net(torch.randint(0, 30, (12,)), items, off)
    print(step, dig(loss, e, net.a.weight), net.b.weight.grad.layout, int(e.isnan().sum()))
end(net, dense, sparse.state_dict()["state"])
