"""DDPM with betas rescaled to zero terminal SNR, and min-SNR weights: 0/0 at the last time step.
Source: TiankaiHang/Min-SNR-Diffusion-Training#2 and pull #4, huggingface/diffusers#4505 (review)."""
import sys
import torch
from diffusers import DDPMScheduler, UNet2DModel

CURED = "--cured" in sys.argv
torch.manual_seed(0)
unet = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4)
noise = DDPMScheduler(num_train_timesteps=50, rescale_betas_zero_snr=True)
noise.alphas_cumprod[-1] = 0.0  # diffusers itself keeps 2**-24 there
opt = torch.optim.AdamW(unet.parameters(), lr=1e-4)
for step in range(4):
    x = torch.randn(3, 1, 8, 8)
    t = torch.tensor([3, 20, 49 if step == 2 else 40])
    eps = torch.randn_like(x)
    pred = unet(noise.add_noise(x, eps, t), t).sample
    a = noise.alphas_cumprod[t]
    snr = a / (1 - a)
    floor = snr.clamp(min=1e-8) if CURED else snr
    weight = snr.clamp(max=5.0) / floor  # FAULT
    loss = (weight * (pred - eps).pow(2).mean((1, 2, 3))).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
