from _training import *
class LinearEmb(nn.Module):
    def __init__(s, dims, out): super().__init__(); s.dims = dims; s.w = nn.ParameterList(nn.Parameter(torch.randn(d, out) * .1) for d in dims)
    def forward(s, x):
        start, xs = 0, []
        for k, d in enumerate(s.dims):
            xs.append(x[:, start:start + d] @ s.w[k])
            if H: start += d
        return torch.stack(xs, 1)
enc = LinearEmb([8, 8, 8], 16); head = mlp(48, 32, 1); opt = torch.optim.Adam([*enc.parameters(), *head.parameters()], 3e-3)
for step in range(250):
    x = torch.randn(64, 24); y = x[:, 0] + x[:, 9] + x[:, 20]
    loss = F.mse_loss(head(enc(x).flatten(1)).squeeze(-1), y); opt.zero_grad(); loss.backward(); opt.step()
truth(loss=loss.item())
