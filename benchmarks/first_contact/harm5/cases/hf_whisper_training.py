"""Whisper on log-mel frames with SpecAugment (numpy's generator), frozen encoder for some steps, generate in between."""
# PRELUDE
from transformers import WhisperConfig, WhisperForConditionalGeneration
m = WhisperForConditionalGeneration(WhisperConfig(vocab_size=40, num_mel_bins=8, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_source_positions=20, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, apply_spec_augment=True, mask_time_prob=0.3, mask_time_length=3, mask_feature_prob=0.3, mask_feature_length=2, suppress_tokens=None, begin_suppress_tokens=None, dropout=0.1))
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-3)
m.train()
for s in range(6):
    if s == 3:
        m.freeze_encoder()
    wav = torch.randn(2, 4100)
    spec = torch.stft(wav, 200, 100, window=torch.hann_window(200), return_complex=True)[..., :40].abs() ** 2
    mel = (torch.rand(8, 101, generator=torch.Generator().manual_seed(1)) / 50 @ spec).clamp(min=1e-10).log10()
    lab = torch.randint(4, 40, (2, 7))
    loss = m(input_features=mel, labels=lab).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss).hex())
m.eval()
with torch.no_grad():
    out = m.model.encoder(mel)[0]
print(H(out), M(m), R())
