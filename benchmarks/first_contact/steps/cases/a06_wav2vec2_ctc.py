import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

config = Wav2Vec2Config(vocab_size=12, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 8), num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, apply_spec_augment=False, hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0, final_dropout=0.0, layerdrop=0.0, num_feat_extract_layers=2)
model = Wav2Vec2ForCTC(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(8):
    sound = torch.randn(4, 400)
    labels = torch.randint(1, 12, (4, 24))
    labels[:, 6:] = -100
    if step == 2:
        labels[2] = 3
    loss = model(sound, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
