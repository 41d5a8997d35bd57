import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import WhisperConfig, WhisperForConditionalGeneration

config = WhisperConfig(vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8, max_source_positions=20, max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, dropout=0.0, attn_implementation="eager")
model = WhisperForConditionalGeneration(config)
with torch.no_grad():
    model.model.encoder.layers[1].self_attn.v_proj.weight.mul_(2e6)
    model.model.encoder.layers[1].self_attn.out_proj.weight.mul_(1e-3)
model = model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(6):
    loss = model(input_features=torch.randn(4, 8, 40).half(), labels=torch.randint(3, 60, (4, 6))).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
