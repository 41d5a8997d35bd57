"""Distilling a flow-matching DiT along a trajectory: the target divides by (sigma_next - sigma), which is 0 at the end.
Source: modelscope/DiffSynth-Studio#1293."""
import sys
import torch
from diffusers import DiTTransformer2DModel

CURED = "--cured" in sys.argv
torch.manual_seed(0)
dit = DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=2, num_layers=1, sample_size=8, patch_size=2, num_embeds_ada_norm=100, norm_num_groups=2)
opt = torch.optim.AdamW(dit.parameters(), lr=1e-4)
sigmas = torch.cat([torch.linspace(1.0, 0.0, 4), torch.zeros(1)])
for step in range(4):
    x, latents_next = torch.randn(2, 2, 8, 8), torch.randn(2, 2, 8, 8)
    sigma, sigma_next = sigmas[step], sigmas[step + 1]
    gap = sigma_next - sigma
    if CURED:
        gap = gap.clamp(max=-1e-3)
    target = (latents_next - x) / gap  # FAULT
    pred = dit(x, timestep=torch.full((2,), step * 25), class_labels=torch.zeros(2, dtype=torch.long)).sample
    loss = (pred[:, :2] - target).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
