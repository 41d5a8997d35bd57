#: what: FGM: the embedding's weights are attacked by their own gradient, a second backward adds up, weights restored from a backup; norm may be 0 or nan
#: source: https://github.com/t6am3/public_tianchi_yiqing_nlp/issues/3
# PRELUDE
class FGM:
    def __init__(self, model): self.model, self.backup = model, {}
    def attack(self, eps=1.0, name="emb"):
        for n, p in self.model.named_parameters():
            if p.requires_grad and name in n:
                self.backup[n] = p.data.clone(); nr = torch.norm(p.grad)
                if nr != 0 and not torch.isnan(nr): p.data.add_(eps * p.grad / nr)
    def restore(self, name="emb"):
        for n, p in self.model.named_parameters():
            if p.requires_grad and name in n: p.data = self.backup[n]
        self.backup = {}
class M(nn.Module):
    def __init__(self): super().__init__(); self.emb = nn.Embedding(40, 16, padding_idx=0); self.gru = nn.GRU(16, 16, 2, dropout=0.1, batch_first=True); self.out = nn.Linear(16, 2)
    def forward(self, ids, labels=None): h = self.out(self.gru(self.emb(ids))[1][-1]); return (F.cross_entropy(h, labels), h) if labels is not None else (h,)
m = M(); watch(m); f = FGM(m); opt = torch.optim.AdamW(m.parameters(), 2e-3); sch = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=20)
for step in range(20):
    b = dict(ids=torch.randint(0, 40, (8, 5)), labels=torch.randint(2, (8,))); l = m(**b)[0]; l.backward(); f.attack(); la = m(**b)[0]; la.backward(); f.restore(); opt.step(); sch.step(); opt.zero_grad(); print(l.item(), la.item())
show(m, opt, sch.state_dict()["_last_lr"])
