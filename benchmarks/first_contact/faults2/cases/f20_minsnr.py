"""TiankaiHang/Min-SNR-Diffusion-Training#4: min(snr, 5) / snr at zero terminal SNR; diffusers UNet
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from diffusers import UNet2DModel, DDPMScheduler
net = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
                  down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"))
sch = DDPMScheduler(num_train_timesteps=50, rescale_betas_zero_snr=True, prediction_type="epsilon")
acp = sch.alphas_cumprod.clone(); acp[-1] = 0.0
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(3):
    x, n = torch.randn(4, 1, 8, 8), torch.randn(4, 1, 8, 8); t = torch.tensor([3, 17, 25, 49 if step == 1 else 40])
    out = net(sch.add_noise(x, n, t), t).sample
    snr = acp[t] / (1 - acp[t])
    if CURED: snr = snr.clamp(min=1e-8)
    w = torch.minimum(snr, torch.tensor(5.0)) / snr  # FAULT
    loss = (w * (out - n).pow(2).mean((1, 2, 3))).mean(); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
