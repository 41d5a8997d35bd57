"""AutoencoderKL in float16: an up-block's convolution overflows, as SDXL's VAE does.
Source: leejet/stable-diffusion.cpp#888, cumulo-autumn/StreamDiffusion#114."""
import sys
import torch
from diffusers import AutoencoderKL

CURED = "--cured" in sys.argv
torch.manual_seed(0)
vae = AutoencoderKL(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",), up_block_types=("UpDecoderBlock2D",), block_out_channels=(8,), layers_per_block=1, latent_channels=2, norm_num_groups=2, sample_size=8)
dtype = torch.float32 if CURED else torch.float16
vae = vae.to(dtype)
opt = torch.optim.SGD(vae.parameters(), lr=1e-6)
for step in range(4):
    if step == 2:
        with torch.no_grad():
            vae.decoder.mid_block.resnets[0].conv2.weight.mul_(3e5 / 10)
            vae.decoder.mid_block.resnets[0].norm2.weight.fill_(30.0)
    x = torch.randn(1, 3, 8, 8, dtype=dtype)
    posterior = vae.encode(x).latent_dist
    out = vae.decode(posterior.sample()).sample  # CALLER
    loss = (out.float() - x.float()).abs().mean() + 1e-6 * posterior.kl().float().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
