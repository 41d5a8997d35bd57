"""A tiny UNet2D of diffusers with an EMA, noise schedules, attention slicing hooks, saved and loaded by its own functions.

source: huggingface/diffusers#14135
meta: {"limit": 150, "compare": ["status", "stdout", "files", "left"]}
"""
import os
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
import inspect
import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel
from fcw import grads, rng, say, seed, sha, watch, weights

seed(308)
net = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=4, attention_head_dim=4)
watch(net)
net.enable_gradient_checkpointing()
noise, ema = DDPMScheduler(50), EMAModel(net.parameters(), decay=0.9)
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(4):
    x, e, t = torch.randn(3, 1, 8, 8), torch.randn(3, 1, 8, 8), torch.randint(0, 50, (3,))
    loss = torch.nn.functional.mse_loss(net(noise.add_noise(x, e, t), t).sample, e)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.step(net.parameters())
    say(loss.item().hex(), sha(grads(net)))
say(list(inspect.signature(net.forward).parameters))
net.save_pretrained("unet")
again = UNet2DModel.from_pretrained("unet").eval()
with torch.no_grad():
    say(sha(again(torch.ones(1, 1, 8, 8), 3).sample))
say(sha(weights(net)), sha(ema.shadow_params), rng())
