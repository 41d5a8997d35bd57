"""A wrapper takes the encoder's output from a forward hook that clones and detaches it: the encoder gets no gradient from any loss.
Source: https://github.com/lucidrains/CoCa-pytorch/issues/6
Truth: the image encoder's weights are their first bits (with AdamW(weight_decay=0)).
Could a tool know: yes: all parameters of a module that runs are in the optimizer and get no gradient; the cut is after that module.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Extractor(nn.Module):
    def __init__(self, vit):
        super().__init__()
        self.vit = vit
        self.latents = None
        vit.norm.register_forward_hook(self.hook)

    def hook(self, _, inp, out):
        self.latents = out.clone() if HEALTHY else out.clone().detach()

    def forward(self, img):
        self.vit(img)
        return self.latents


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(16, 32)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True), 1)
        self.norm = nn.LayerNorm(32)

    def forward(self, x):
        return self.norm(self.blocks(self.patch(x.unfold(1, 4, 4).unfold(2, 4, 4).reshape(x.shape[0], -1, 16))))


class CoCa(nn.Module):
    def __init__(self):
        super().__init__()
        self.img, self.txt = Extractor(ViT()), nn.EmbeddingBag(30, 32)
        self.proj, self.temp = nn.Linear(32, 32), nn.Parameter(torch.tensor(1.0))

    def forward(self, img, txt):
        a = nn.functional.normalize(self.proj(self.img(img).mean(1)), dim=-1)
        b = nn.functional.normalize(self.txt(txt), dim=-1)
        sim = a @ b.t() * self.temp.exp()
        lab = torch.arange(len(img))
        return nn.functional.cross_entropy(sim, lab) + nn.functional.cross_entropy(sim.t(), lab)


model = CoCa()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
before = model.img.vit.patch.weight.detach().clone()
pics = torch.randn(30, 8, 8)
for step in range(120):
    w = torch.randint(0, 30, (24, 2))
    loss = model(pics[w].mean(1) + 0.1 * torch.randn(24, 8, 8), w)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} encoder moved {(model.img.vit.patch.weight - before).abs().max():.2e}")
