import inspect
import textwrap

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

from transformers.models.clip import modeling_clip

source = textwrap.dedent(inspect.getsource(inspect.unwrap(CLIPModel.forward)))
source = source[source.index('def forward'):]
assert 'self.logit_scale.exp()' in source
exec(source.replace('self.logit_scale.exp()', 'torch.exp(self.logit_scale.clamp(-22, 22))'), modeling_clip.__dict__)
CLIPModel.forward = modeling_clip.__dict__['forward']
text = CLIPTextConfig(vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16, eos_token_id=49, bos_token_id=1, pad_token_id=0)
vision = CLIPVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
model = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=16))
with torch.no_grad():
    model.logit_scale.fill_(100.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(6):
    ids = torch.randint(2, 49, (4, 8))
    ids[:, -1] = 49
    loss = model(input_ids=ids, pixel_values=torch.randn(4, 3, 16, 16), return_loss=True).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
