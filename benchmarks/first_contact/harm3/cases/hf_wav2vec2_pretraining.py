"""wav2vec 2.0's pretraining from a tiny configuration: masks and negatives drawn by numpy, a Gumbel quantizer with falling temperature, gradients multiplied by the number of masked frames."""
# PRELUDE
from transformers import Wav2Vec2Config, Wav2Vec2ForPreTraining
from transformers.models.wav2vec2.modeling_wav2vec2 import _compute_mask_indices, _sample_negative_indices

c = Wav2Vec2Config(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8), conv_stride=(4, 2), conv_kernel=(8, 3), num_feat_extract_layers=2,
                   num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, codevector_dim=8, proj_codevector_dim=8, num_codevectors_per_group=6, num_negatives=3, do_stable_layer_norm=True, feat_extract_norm="layer")
m = Wav2Vec2ForPreTraining(c)
W(m)
m.train()
opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
for s in range(4):
    x = torch.randn(2, 800, generator=torch.Generator().manual_seed(s))
    n = int(m._get_feat_extract_output_lengths(800))
    mask = _compute_mask_indices((2, n), 0.3, 4)
    neg = torch.tensor(_sample_negative_indices((2, n), c.num_negatives, mask))
    out = m(x, mask_time_indices=torch.tensor(mask), sampled_negative_indices=neg)
    (out.loss / mask.sum()).backward()
    for p in m.parameters():
        if p.grad is not None:
            p.grad.mul_(mask.sum() / 10)
    opt.step()
    opt.zero_grad()
    m.set_gumbel_temperature(max(2.0 * 0.9**s, 0.5))
    print(s, out.loss.item().hex(), out.codevector_perplexity.item().hex(), R())
print(M(m))
