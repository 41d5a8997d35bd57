"""Benign: log of a silent spectrogram is -inf and is clamped to -10 before the model; nothing needs its gradient.
Source: Kyubyong/tacotron#36 (silence is -inf in a log spectrogram)."""
import torch
from transformers import ASTConfig, ASTForAudioClassification

torch.manual_seed(0)
model = ASTForAudioClassification(ASTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, patch_size=4, max_length=20, num_mel_bins=17, frequency_stride=4, time_stride=4, num_labels=3))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    wave = torch.randn(2, 304)
    wave[1, 60:260] = 0
    power = torch.stft(wave, 32, 16, window=torch.hann_window(32), return_complex=True).abs() ** 2
    features = torch.log(power).clamp(min=-10).transpose(1, 2)
    out = model(input_values=features, labels=torch.randint(3, (2,)))
    opt.zero_grad()
    out.loss.backward()
    opt.step()
    print(step, out.loss.item())
