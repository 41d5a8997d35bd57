"""CLIP from a tiny configuration: symmetric contrastive loss, logit_scale clamped by hand after each step, frozen text tower; gradients and weights."""
# PRELUDE
from transformers import CLIPConfig, CLIPModel

c = CLIPConfig(text_config=dict(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=12, eos_token_id=2, bos_token_id=1, pad_token_id=0),
               vision_config=dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8), projection_dim=8)
m = CLIPModel(c)
W(m)
for p in m.text_model.parameters():
    p.requires_grad_(False)
opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-3)
for s in range(5):
    g = torch.Generator().manual_seed(s)
    ids = torch.randint(3, 50, (4, 8), generator=g)
    ids[:, -1] = 2
    out = m(input_ids=ids, pixel_values=torch.randn(4, 3, 16, 16, generator=g), return_loss=True)
    opt.zero_grad()
    out.loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    with torch.no_grad():
        m.logit_scale.clamp_(0, float(np.log(100)))
    print(s, out.loss.item().hex(), norm.item().hex(), H(out.logits_per_image))
print(M(m), [n for n, p in m.named_parameters() if p.grad is None][:3], R())
