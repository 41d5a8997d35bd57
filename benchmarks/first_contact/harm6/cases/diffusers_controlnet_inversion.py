"""ControlNet training beside a frozen tiny UNet (zero convolutions, residuals passed down and mid), then textual inversion: only one row of the embedding may move, other rows are put back after each step; sampling with a DDIM loop in between."""
# PRELUDE
import warnings
warnings.simplefilter("ignore")
from diffusers import ControlNetModel, DDIMScheduler, DDPMScheduler, UNet2DConditionModel

torch.manual_seed(0)
unet = UNet2DConditionModel(sample_size=8, in_channels=3, out_channels=3, block_out_channels=(8, 16), layers_per_block=1, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=8, attention_head_dim=4, norm_num_groups=4)
control = ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(4, 8))
words = nn.Embedding(10, 8)
unet.requires_grad_(False)
W(control)
W(unet)
noise_s = DDPMScheduler(100)
opt = torch.optim.AdamW(control.parameters(), 1e-3)
for s in range(4):
    g = torch.Generator().manual_seed(s)
    x, cond = torch.rand(2, 3, 8, 8, generator=g), torch.rand(2, 3, 64, 64, generator=g)[:, :, ::1, ::1]
    cond = F.interpolate(cond, size=(64 // 8 * 2, 16))
    t = torch.randint(0, 100, (2,))
    n = torch.randn_like(x)
    noisy = noise_s.add_noise(x, n, t)
    text = words(torch.tensor([[1, 2, 3]] * 2)).detach()
    if cond.shape[-1] != 16:
        raise SystemExit("shape")
    down, mid = control(noisy, t, encoder_hidden_states=text, controlnet_cond=cond, conditioning_scale=0.8, return_dict=False)
    pred = unet(noisy, t, encoder_hidden_states=text, down_block_additional_residuals=down, mid_block_additional_residual=mid).sample
    loss = F.mse_loss(pred, n)
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    print(s, loss.item().hex(), M(control), [p.grad is None for p in unet.parameters()].count(False))
W(words)
opt = torch.optim.AdamW(words.parameters(), 5e-3)
kept = words.weight.detach().clone()
for s in range(4):
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(50 + s))
    t, n = torch.randint(0, 100, (2,)), torch.randn_like(x)
    pred = unet(noise_s.add_noise(x, n, t), t, encoder_hidden_states=words(torch.tensor([[1, 2, 9]] * 2))).sample
    loss = F.mse_loss(pred, n)
    loss.backward()
    opt.step()
    opt.zero_grad()
    keep = torch.ones(10, dtype=torch.bool)
    keep[9] = False
    with torch.no_grad():
        words.weight[keep] = kept[keep]
    print(s, loss.item().hex(), H(words.weight), words.weight[:9].equal(kept[:9]))
ddim = DDIMScheduler(100)
ddim.set_timesteps(4)
z = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(7))
with torch.inference_mode():
    for t in ddim.timesteps:
        z = ddim.step(unet(z, t, encoder_hidden_states=words(torch.tensor([[1, 2, 9]]))).sample, t, z).prev_sample
print(H(z), M(unet), R())
