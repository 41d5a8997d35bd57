# source: huggingface/transformers Wav2Vec2 "loss inf" threads (ctc_zero_infinity=False, label longer than input)
# planted rows: 2 of 4
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC
model = Wav2Vec2ForCTC(Wav2Vec2Config(vocab_size=12, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8), conv_stride=(4, 4), conv_kernel=(8, 4), num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.0, pad_token_id=0, ctc_loss_reduction="mean"))  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(9):
    wave, labels = torch.randn(4, 160), torch.randint(1, 12, (4, 12))
    labels[:, 3:] = -100
    if step == 2:
        labels[2] = 5  # twelve equal labels need more frames than there are
    # BATCH 0: wave, labels
    loss = model(input_values=wave, labels=labels).loss
    opt.zero_grad(); loss.backward(); opt.step()
