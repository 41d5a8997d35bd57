"""A probabilistic forecaster with Student-t and negative binomial heads, lags and scaling, ancestral sampling after training; PatchTST with masking."""
# PRELUDE
from transformers import TimeSeriesTransformerConfig, TimeSeriesTransformerForPrediction, PatchTSTConfig, PatchTSTForPretraining
for dist in ("student_t", "negative_binomial"):
    torch.manual_seed(1)
    m = TimeSeriesTransformerForPrediction(TimeSeriesTransformerConfig(prediction_length=4, context_length=8, lags_sequence=[1, 2, 3], num_time_features=1, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16, distribution_output=dist, num_parallel_samples=3))
    W(m)
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    for s in range(4):
        past = torch.randint(1, 9, (3, 11)).float()
        kw = dict(past_values=past, past_time_features=torch.arange(11.).view(1, 11, 1).expand(3, 11, 1) / 11, past_observed_mask=torch.ones(3, 11))
        fut = dict(future_values=torch.randint(1, 9, (3, 4)).float(), future_time_features=torch.arange(4.).view(1, 4, 1).expand(3, 4, 1) / 4)
        loss = m(**kw, **fut).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    m.eval()
    out = m.generate(**kw, future_time_features=fut["future_time_features"])
    print(dist, float(loss).hex(), H(out.sequences), M(m))
p = PatchTSTForPretraining(PatchTSTConfig(num_input_channels=2, context_length=16, patch_length=4, patch_stride=4, d_model=16, num_hidden_layers=1, num_attention_heads=2, ffn_dim=16, random_mask_ratio=0.4, do_mask_input=True))
W(p)
opt = torch.optim.Adam(p.parameters(), 1e-3)
for s in range(4):
    loss = p(past_values=torch.randn(3, 16, 2)).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
print(float(loss).hex(), M(p), R())
