"""Benign: sampling for a picture during training, in float16 under no_grad, gives nan; the picture is only logged.
Source: huggingface/diffusers#9007 (black output); images of nan in validation while training goes on."""
import torch
from torch import nn
from diffusers import UNet2DModel, DDPMScheduler

torch.manual_seed(0)
unet = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8,), norm_num_groups=4, down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",))
noise = DDPMScheduler(num_train_timesteps=20)
opt = torch.optim.AdamW(unet.parameters(), lr=1e-4)
for step in range(3):
    x, eps, t = torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8), torch.randint(20, (2,))
    loss = (unet(noise.add_noise(x, eps, t), t).sample - eps).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    unet.eval()
    with torch.no_grad():
        picture = torch.randn(1, 1, 8, 8)
        for k in range(19, -1, -5):
            picture = (picture - unet(picture, k).sample) * 1e13  # a wrong sampler
    unet.train()
    print(step, loss.item(), picture.mean().item())
