"""DeBERTa's disentangled attention with fully padded rows and Longformer's sliding windows made by as_strided with global tokens must keep logits, attentions, gradients and random states."""
# PRELUDE
from transformers import DebertaV2Config, DebertaV2ForTokenClassification, LongformerConfig, LongformerForMaskedLM

torch.manual_seed(0)
d = DebertaV2ForTokenClassification(DebertaV2Config(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=40, relative_attention=True,
                                                    position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], conv_kernel_size=3, conv_act="gelu", num_labels=3, pad_token_id=0))
l = LongformerForMaskedLM(LongformerConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, attention_window=4, max_position_embeddings=40, pad_token_id=1))
for name, m in (("deberta", d), ("longformer", l)):
    W(m)
    opt = torch.optim.AdamW(m.parameters(), 1e-3)
    for s in range(3):
        g = torch.Generator().manual_seed(s)
        ids = torch.randint(2, 40, (3, 14), generator=g)
        mask = (torch.arange(14) < torch.tensor([14, 9, 0 if name == "deberta" else 3])[:, None]).long()
        kw = dict(labels=torch.where(mask.bool(), ids % 3 if name == "deberta" else ids, -100), attention_mask=mask)
        if name == "longformer":
            kw["global_attention_mask"] = F.one_hot(torch.tensor([0, 2, 1]), 14)
        m.train()
        out = m(ids, **kw)
        opt.zero_grad()
        out.loss.backward()
        n = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        m.eval()
        with torch.no_grad():
            kw.pop("labels")
            o = m(ids, output_attentions=True, output_hidden_states=True, **kw)
        print(name, s, float(out.loss.detach()).hex(), H(n), M(m), R())
        print(name, s, H(o.logits), [(H(a), a.stride()) for a in o.attentions], [H(h) for h in o.hidden_states])
