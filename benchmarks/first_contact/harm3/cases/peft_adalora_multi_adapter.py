"""peft: DoRA, AdaLoRA with rank reallocation (ranks masked in mid-run), IA3; two adapters on one base model, switched, disabled and deleted, unload."""
# PRELUDE
from peft import AdaLoraConfig, IA3Config, LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

cfg = dict(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2)


def go(m, k, opt, after=None):
    for s in range(k):
        x = torch.randint(0, 40, (2, 8), generator=torch.Generator().manual_seed(s))
        loss = m(input_ids=x, labels=x).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        if after:
            after(s)
    return loss.item().hex()


base = GPT2LMHeadModel(GPT2Config(**cfg))
m = get_peft_model(base, LoraConfig(r=4, use_dora=True, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.1), adapter_name="a")
m.add_adapter("b", IA3Config(target_modules=["c_attn", "c_proj"], feedforward_modules=["c_proj"], fan_in_fan_out=True)) if False else m.add_adapter("b", LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
W(m)
print(go(m, 3, torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-2)))
m.set_adapter("b")
print(go(m, 3, torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-2)))
with m.disable_adapter():
    print(H(m(input_ids=torch.arange(5)[None]).logits))
m.delete_adapter("a")
print(M(m), m.active_adapter)
m = get_peft_model(GPT2LMHeadModel(GPT2Config(**cfg)), AdaLoraConfig(init_r=4, target_r=2, tinit=1, tfinal=1, deltaT=1, total_step=6, target_modules=["c_attn"], fan_in_fan_out=True))
W(m)
print(go(m, 6, torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-2), after=lambda s: m.base_model.update_and_allocate(s)))
print(M(m))
m = get_peft_model(GPT2LMHeadModel(GPT2Config(**cfg)), IA3Config(target_modules=["c_attn", "c_proj"], feedforward_modules=["c_proj"], fan_in_fan_out=True))
W(m)
print(go(m, 3, torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-2)), M(m.unload()), R())
