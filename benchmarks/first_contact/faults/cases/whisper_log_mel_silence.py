"""Log-mel features made by hand for Whisper's encoder: log10 of a silent clip's power.
Source: SeanNaren/deepspeech.pytorch#272, KimythAnly/AGAIN-VC#5."""
import sys
import torch
from transformers import WhisperConfig, WhisperForAudioClassification

CURED = "--cured" in sys.argv
torch.manual_seed(0)
cfg = WhisperConfig(vocab_size=40, num_mel_bins=17, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, d_model=16, encoder_ffn_dim=32, decoder_ffn_dim=32, max_source_positions=10, max_target_positions=8, num_labels=3, classifier_proj_size=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
model = WhisperForAudioClassification(cfg)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)


def features(wave):
    spec = torch.stft(wave, 32, 16, window=torch.hann_window(32), return_complex=True)[..., :20].abs() ** 2
    if CURED:
        spec = spec.clamp(min=1e-10)
    return torch.log10(spec)  # FAULT


for step in range(4):
    wave = torch.randn(2, 320)
    if step == 2:
        wave[1, 100:200] = 0
    out = model(input_features=features(wave), labels=torch.randint(3, (2,)))
    opt.zero_grad()
    out.loss.backward()
    opt.step()
    print(step, out.loss.item())
