# source: openai/CLIP, mlfoundations/open_clip: logit_scale not clamped, exp leaves float16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig
t = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
model = CLIPModel(CLIPConfig(text_config=dict(vocab_size=40, max_position_embeddings=8, bos_token_id=1, eos_token_id=2, pad_token_id=0, **t), vision_config=dict(image_size=8, patch_size=4, **t), projection_dim=8))
with torch.no_grad():
    model.logit_scale.fill_(11.2)
model = model.to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(9):
    x, img = torch.randint(3, 40, (4, 6)), torch.randn(4, 3, 8, 8).to(torch.float16)
    # BATCH 0: x, img
    loss = model(input_ids=x, pixel_values=img, return_loss=True).loss
    opt.zero_grad(); loss.backward(); opt.step()
