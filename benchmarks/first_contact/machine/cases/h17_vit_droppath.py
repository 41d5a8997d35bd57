# opts: --check again:every=1
# truth: healthy (transformers' ViT with stochastic depth by Python's random, gradient checkpointing, layerwise lr decay)
import flips as C, torch, random
from torch import nn
from transformers import ViTConfig, ViTForImageClassification
random.seed(0); torch.manual_seed(0); m = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8, num_labels=3, hidden_dropout_prob=0.1)); m.train(); m.gradient_checkpointing_enable()
class Drop(nn.Module):
    def __init__(s, l): super().__init__(); s.l = l
    def forward(s, x): return s.l(x) * (0.0 if random.random() < 0.3 else 1.0)
m.classifier = Drop(m.classifier); o = torch.optim.RAdam([{"params": [p], "lr": 1e-3 * 0.9**i} for i, p in enumerate(m.parameters())])
for C.STEP in range(5):
    m(pixel_values=torch.randn(2, 3, 16, 16), labels=torch.randint(0, 3, (2,))).loss.backward(); o.step(); o.zero_grad()
C.finish(m, o)
