"""CLIP whose logit_scale has no ceiling: exp overflows after a too large update.
Source: openai/CLIP#530, openai/CLIP#46."""
import sys
import torch
from transformers import CLIPConfig, CLIPModel

CURED = "--cured" in sys.argv
torch.manual_seed(0)
tower = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
model = CLIPModel(CLIPConfig(text_config=dict(vocab_size=50, max_position_embeddings=12, **tower), vision_config=dict(image_size=16, patch_size=8, **tower), projection_dim=8))
rest = [p for n, p in model.named_parameters() if n != "logit_scale"]
opt = torch.optim.SGD([{"params": rest, "lr": 1e-3}, {"params": [model.logit_scale], "lr": 1e4}])
for step in range(5):
    images = torch.randn(4, 3, 16, 16)
    out = model(input_ids=torch.randint(50, (4, 7)), pixel_values=images, return_loss=True)  # CALLER
    opt.zero_grad()
    out.loss.backward()
    model.logit_scale.grad.copy_(-torch.ones(()) * 0.01)  # all pairs want a sharper softmax
    opt.step()
    if CURED:
        model.logit_scale.data.clamp_(max=4.6)
    print(step, out.loss.item())
