from _training import *
class VQ(nn.Module):
    def __init__(s): super().__init__(); s.enc = mlp(8, 16, 4); s.register_buffer("book", torch.randn(12, 4))
    def encode(s, x):
        z = s.enc(x); k = torch.cdist(z, s.book).argmin(-1)
        if s.training:
            with torch.no_grad():
                oh = F.one_hot(k.flatten(), 12).float(); n = oh.sum(0).clamp(min=1)[:, None]; s.book.lerp_((oh.t() @ z.reshape(-1, 4)) / n, .05)
        return k
class GPT(nn.Module):
    def __init__(s):
        super().__init__(); s.vq = VQ().requires_grad_(False); s.e = nn.Embedding(12, 32); s.g = nn.GRU(32, 32, batch_first=True); s.o = nn.Linear(32, 12)
    def forward(s, x):
        if H: s.vq.eval()
        with torch.no_grad(): k = s.vq.encode(x)
        return F.cross_entropy(s.o(s.g(s.e(k[:, :-1]))[0]).flatten(0, 1), k[:, 1:].flatten())
m = GPT(); m.train(); b0 = m.vq.book.clone(); opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 3e-3)
for step in range(200):
    x = torch.randn(16, 1, 8) + .5 * torch.randn(16, 10, 8).cumsum(1); loss = m(x); opt.zero_grad(); loss.backward(); opt.step()
truth(codebook_moved=(m.vq.book - b0).abs().max().item(), loss=loss.item())
