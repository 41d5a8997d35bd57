from _training import *
V, new = 30, 29
class Text(nn.Module):
    def __init__(s):
        super().__init__(); s.tok = nn.Embedding(V, 24); s.g = nn.GRU(24, 32, batch_first=True); s.o = nn.Linear(32, 8)
    def forward(s, x): return s.o(s.g(s.tok(x))[0][:, -1])
m = Text(); m.g.requires_grad_(False); m.o.requires_grad_(False)
opt = torch.optim.AdamW([m.tok.weight], 5e-3, weight_decay=1e-1 * (not H))
w0 = m.tok.weight.detach().clone()
for step in range(300):
    x = torch.randint(29, (16, 6)); x[:, 4] = new
    loss = F.mse_loss(m(x), torch.ones(16, 8)); opt.zero_grad(); loss.backward()
    idx = torch.arange(V) != new
    m.tok.weight.grad.data[idx, :] = m.tok.weight.grad.data[idx, :].fill_(0)
    opt.step()
truth(frozen_rows_moved=(m.tok.weight - w0)[:29].abs().max().item(), new_row_moved=(m.tok.weight - w0)[29].abs().max().item())
