"""From Lornatang/ESRGAN-PyTorch issue 39 (two lines of train_gan.py both name g_optimizer).
Wrong: after the discriminator's backward g_optimizer steps, again; the discriminator's own optimizer never does.
Could know: yes, gradients come and are cleared and d's optimizer has not stepped once.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
g_model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2))
d_model = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 16, 3, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(16 * 16, 1))
g_optimizer = torch.optim.Adam(g_model.parameters(), 1e-3); d_optimizer = torch.optim.Adam(d_model.parameters(), 1e-3); w0 = d_model[0].weight.detach().clone()
for step in range(80):
    hr = F.interpolate(torch.rand(8, 1, 8, 8), size=16, mode="bilinear"); lr = F.avg_pool2d(hr, 2)
    for p in d_model.parameters(): p.requires_grad = False
    g_optimizer.zero_grad(set_to_none=True); sr = g_model(lr); gl = F.l1_loss(sr, hr) + 5e-3 * F.binary_cross_entropy_with_logits(d_model(sr), torch.ones(8, 1)); gl.backward(); g_optimizer.step()
    for p in d_model.parameters(): p.requires_grad = True
    d_optimizer.zero_grad(set_to_none=True); dl = F.binary_cross_entropy_with_logits(d_model(hr), torch.ones(8, 1)) + F.binary_cross_entropy_with_logits(d_model(sr.detach()), torch.zeros(8, 1)); dl.backward()
    (d_optimizer if H else g_optimizer).step()
    if step % 20 == 0: print(step, round(gl.item(), 4), round(dl.item(), 4))
print("check: change of the discriminator", (d_model[0].weight - w0).abs().max().item())
