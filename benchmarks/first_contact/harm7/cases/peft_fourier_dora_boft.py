"""FourierFT, DoRA, BOFT, HRA, LoKr, LoHa, LN tuning and PiSSA (SVD at the start) on a tiny Llama, trained, merged and unmerged, must keep weights, outputs and random states."""
# PRELUDE
from peft import BOFTConfig, FourierFTConfig, HRAConfig, LNTuningConfig, LoHaConfig, LoKrConfig, LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

t = ["q_proj", "v_proj"]
kinds = {"fourier": FourierFTConfig(n_frequency=12, target_modules=t), "dora": LoraConfig(r=2, use_dora=True, target_modules=t, lora_dropout=0.1, init_lora_weights="gaussian"), "pissa": LoraConfig(r=2, init_lora_weights="pissa", target_modules=t),
         "boft": BOFTConfig(boft_block_size=4, boft_n_butterfly_factor=1, target_modules=t), "hra": HRAConfig(r=4, target_modules=t, apply_GS=True), "lokr": LoKrConfig(r=2, target_modules=t), "loha": LoHaConfig(r=2, target_modules=t),
         "ln": LNTuningConfig(target_modules=["input_layernorm"]), "olora": LoraConfig(r=2, init_lora_weights="olora", target_modules=t, use_rslora=True)}
for name, c in kinds.items():
    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32))
    try:
        m = get_peft_model(base, c)
    except Exception as e:
        print(name, type(e).__name__, str(e)[:120])
        continue
    W(m)
    ps = [p for p in m.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(ps, 1e-2)
    for s in range(3):
        ids = torch.randint(0, 40, (2, 8), generator=torch.Generator().manual_seed(s))
        loss = m(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(name, s, float(loss.detach()).hex(), H([p.grad for p in ps]), [p._version for p in ps][:4])
    m.eval()
    with torch.no_grad():
        a = m(input_ids=ids).logits
        try:
            m.merge_adapter()
            b = m(input_ids=ids).logits
            m.unmerge_adapter()
            print(name, "merged", H(b))
        except Exception as e:
            print(name, "merge", type(e).__name__, str(e)[:100])
        with m.disable_adapter():
            d = m(input_ids=ids).logits
    print(name, H(a), H(d), M(m), R(), len(ps))
