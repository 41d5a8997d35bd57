"""Wav2Vec2ForCTC: a transcript longer than the frames gives an infinite loss.
Source: huggingface/transformers#19044, k2-fsa/icefall#135, ypwhs/captcha_break#29."""
import sys
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

CURED = "--cured" in sys.argv
torch.manual_seed(0)
cfg = Wav2Vec2Config(vocab_size=12, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8), conv_stride=(4, 4), conv_kernel=(8, 8), num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, ctc_zero_infinity=CURED, mask_time_prob=0.0, layerdrop=0.0, apply_spec_augment=False)
model = Wav2Vec2ForCTC(cfg)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    wave = torch.randn(2, 320)
    labels = torch.randint(1, 12, (2, 6))
    if step == 2:
        labels = torch.randint(1, 12, (2, 40))
    loss = model(input_values=wave, labels=labels).loss  # CALLER
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
