"""From lucidrains/CoCa-pytorch issue 6.
Wrong: the Extractor around the image encoder keeps a clone().detach() of the embeddings: the image encoder is never trained.
Could know: yes, parameters in the optimizer that never get a gradient though their module runs.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class ViT(nn.Module):
    def __init__(self): super().__init__(); self.patch = nn.Linear(16, 32); self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True); self.norm = nn.LayerNorm(32)
    def forward(self, x): return self.norm(self.layer(self.patch(x)))
class Extractor(nn.Module):
    def __init__(self, vit): super().__init__(); self.vit = vit; self.latents = None; vit.norm.register_forward_hook(self._hook)
    def _hook(self, _, i, o): self.latents = o.clone() if H else o.clone().detach()
    def forward(self, x): self.vit(x); return self.latents
class CoCa(nn.Module):
    def __init__(self): super().__init__(); self.img = Extractor(ViT()); self.txt = nn.EmbeddingBag(50, 32); self.pi = nn.Linear(32, 32); self.pt = nn.Linear(32, 32); self.t = nn.Parameter(torch.tensor(1.))
    def forward(self, im, tx):
        i, t = F.normalize(self.pi(self.img(im).mean(1)), dim=-1), F.normalize(self.pt(self.txt(tx)), dim=-1); s = i @ t.t() * self.t.exp(); y = torch.arange(len(s))
        return (F.cross_entropy(s, y) + F.cross_entropy(s.t(), y)) / 2
m = CoCa(); opt = torch.optim.AdamW(m.parameters(), lr=2e-3); w0 = m.img.vit.patch.weight.detach().clone(); proto = torch.randn(50, 16)
for step in range(100):
    tx = torch.randint(0, 50, (32, 4)); im = proto[tx] + .1 * torch.randn(32, 4, 16); loss = m(im, tx); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: gradient at the image encoder", m.img.vit.patch.weight.grad is not None)
