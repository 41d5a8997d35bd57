"""Prompt tuning, prefix tuning (past key values) and IA3, each trained, saved, loaded again and merged where it can be."""
# PRELUDE
from transformers import LlamaConfig, LlamaForCausalLM
from peft import PromptTuningConfig, PrefixTuningConfig, IA3Config, PeftModel, get_peft_model
def base():
    torch.manual_seed(2)
    return LlamaForCausalLM(LlamaConfig(vocab_size=24, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2))
for i, c in enumerate((PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, prefix_projection=True, encoder_hidden_size=8), IA3Config(task_type="CAUSAL_LM", target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]))):
    m = get_peft_model(base(), c)
    W(m)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    for s in range(4):
        ids = torch.randint(0, 24, (2, 8))
        loss = m(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
    m.save_pretrained(f"a{i}")
    m2 = PeftModel.from_pretrained(base(), f"a{i}")
    W(m2)
    m.eval(), m2.eval()
    with torch.no_grad():
        a, b = (z(input_ids=ids, attention_mask=torch.ones_like(ids)).logits for z in (m, m2))
    print(i, float(loss).hex(), torch.equal(a, b), H(a), [H(p) for p in m.parameters() if p.requires_grad])
    if i == 2:
        mm = m.merge_and_unload()
        print(H(mm(ids).logits), M(mm))
print(R())
