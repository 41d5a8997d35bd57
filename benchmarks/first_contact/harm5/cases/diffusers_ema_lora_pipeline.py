"""diffusers: EMAModel (store, copy_to, restore), min-SNR weights, LoRA adapters added to the UNet, DDIM pipeline in the middle of training, save_pretrained and load."""
# PRELUDE
from diffusers import UNet2DConditionModel, DDIMScheduler, DDPMScheduler
from diffusers.training_utils import EMAModel, compute_snr
from peft import LoraConfig
u = UNet2DConditionModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4, cross_attention_dim=8, attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))
W(u)
sch = DDPMScheduler(num_train_timesteps=50, prediction_type="v_prediction")
ema = EMAModel(u.parameters(), decay=0.95, use_ema_warmup=True, model_cls=UNet2DConditionModel, model_config=u.config)
def steps(opt, n):
    for s in range(n):
        x, c = torch.randn(2, 1, 8, 8), torch.randn(2, 3, 8)
        e, t = torch.randn_like(x), torch.randint(0, 50, (2,))
        out = u(sch.add_noise(x, e, t), t, c).sample
        snr = compute_snr(sch, t)
        w = torch.stack([snr, 5.0 * torch.ones_like(t)], 1).min(1)[0] / (snr + 1)
        loss = (F.mse_loss(out, sch.get_velocity(x, e, t), reduction="none").mean((1, 2, 3)) * w).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(u.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        ema.step(u.parameters())
    return float(loss.detach()).hex()
def sample():
    d = DDIMScheduler.from_config(sch.config)
    d.set_timesteps(4)
    x = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for t in d.timesteps:
            x = d.step(u(x, t, torch.ones(1, 3, 8)).sample, t, x).prev_sample
    return H(x)
opt = torch.optim.AdamW(u.parameters(), 1e-3)
print(steps(opt, 4))
ema.store(u.parameters())
ema.copy_to(u.parameters())
print(sample())
ema.restore(u.parameters())
print(sample(), M(u))
u.requires_grad_(False)
u.add_adapter(LoraConfig(r=2, lora_alpha=2, init_lora_weights="gaussian", target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
ema = EMAModel([p for p in u.parameters() if p.requires_grad])
ema.step = lambda p: None
print(steps(torch.optim.AdamW([p for p in u.parameters() if p.requires_grad], 1e-3), 4), sample())
u.fuse_lora()
print(sample())
u.unfuse_lora()
u.delete_adapters("default")
u.save_pretrained("unet")
print(M(u), R())
