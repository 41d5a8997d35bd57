#: what: LayerDrop with python's random inside forward, dropped layers have grads None, optimizer state appears late; best model by deepcopy with inf as best
#: benign: inf as the first best loss tensor
#: source: https://github.com/lucidrains/x-transformers/issues/294
# PRELUDE
import copy
class Enc(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True) for _ in range(4)); self.o = nn.Linear(16, 3); self.register_buffer("best", torch.tensor(float("inf")))
    def forward(self, x):
        for l in self.l:
            if self.training and random.random() < 0.4: continue
            x = l(x)
        return self.o(x.mean(1))
m = Enc(); watch(m); opt = torch.optim.AdamW(m.parameters(), 1e-3); best = None; wait = 0
for ep in range(6):
    m.train()
    for s in range(3): x = torch.randn(4, 5, 16); l = F.cross_entropy(m(x), torch.randint(3, (4,))); opt.zero_grad(set_to_none=True); l.backward(); opt.step()
    m.eval()
    with torch.no_grad(): v = F.cross_entropy(m(torch.ones(2, 5, 16)), torch.tensor([0, 1]))
    if v < m.best: m.best.copy_(v); best = copy.deepcopy(m)
    else: wait += 1
    print(ep, l.item(), v.item(), m.best.item(), len(opt.state))
show(best); show(m, opt)
