from _training import *
class GPT(nn.Module):
    def __init__(s, V=24, d=32):
        super().__init__(); s.e = nn.Embedding(V, d); s.p = nn.Parameter(torch.randn(16, d) * .02); s.b = nn.ModuleList(nn.TransformerEncoderLayer(d, 2, 64, .1, batch_first=True, norm_first=True) for _ in range(2)); s.n = nn.LayerNorm(d); s.o = nn.Linear(d, V, bias=False); s.o.weight = s.e.weight; nn.init.normal_(s.e.weight, std=.1)
    def forward(s, x):
        T = x.shape[1]; m = nn.Transformer.generate_square_subsequent_mask(T); h = s.e(x) + s.p[:T]
        for b in s.b: h = b(h, src_mask=m, is_causal=True)
        return s.o(s.n(h))
m = GPT(); opt = torch.optim.AdamW(m.parameters(), 2e-3, weight_decay=.05); N = 1000
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 100) * (.55 + .45 * math.cos(math.pi * min(1, s / N))))
for step in range(N):
    x = (torch.randint(24, (8, 1)) + torch.randint(1, 5, (8, 1)) * torch.arange(14)) % 24
    loss = F.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()); opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.); opt.step(); sched.step()
    if step % 250 == 249:
        m.eval()
        with torch.no_grad(): v = F.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        m.train()
truth(loss=loss.item(), val=v.item())
