"""ViT-MAE's pretraining (random masks by noise sorted inside the forward) and BERT's masked language modelling with the data collator; both from tiny configurations, trained alternately."""
# PRELUDE
from transformers import BertConfig, BertForMaskedLM, ViTMAEConfig, ViTMAEForPreTraining

a = ViTMAEForPreTraining(ViTMAEConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=4, decoder_hidden_size=16, decoder_num_hidden_layers=1, decoder_num_attention_heads=2, decoder_intermediate_size=32, norm_pix_loss=True))
b = BertForMaskedLM(BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=20))
W(a), W(b)
oa = torch.optim.AdamW(a.parameters(), lr=1e-3, betas=(0.9, 0.95))
ob = torch.optim.AdamW(b.parameters(), lr=1e-3)
for s in range(3):
    g = torch.Generator().manual_seed(s)
    out = a(torch.rand(2, 3, 16, 16, generator=g))
    oa.zero_grad()
    out.loss.backward()
    oa.step()
    x = torch.randint(5, 60, (3, 10), generator=g)
    y = x.clone()
    hit = torch.bernoulli(torch.full(x.shape, 0.3)).bool()
    y[~hit] = -100
    x[hit] = 4
    l2 = b(input_ids=x, labels=y).loss
    ob.zero_grad()
    l2.backward()
    ob.step()
    print(s, out.loss.item().hex(), l2.item().hex(), H(out.mask), R())
print(M(a), M(b))
