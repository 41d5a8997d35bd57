"""LoRA on a frozen base with enable_input_require_grads (a forward hook that sets requires_grad on the embedding's output) and gradient checkpointing, both kinds, dropout in the adapters."""
# PRELUDE
from transformers import LlamaConfig, LlamaForCausalLM
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
for re_ in (True, False):
    torch.manual_seed(3)
    base = LlamaForCausalLM(LlamaConfig(vocab_size=24, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, use_cache=False, attention_dropout=0.1))
    base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": re_})
    base.enable_input_require_grads()
    m = get_peft_model(base, LoraConfig(r=2, lora_alpha=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj", "down_proj"]))
    W(m)
    m.train()
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-2)
    for s in range(4):
        ids = torch.randint(0, 24, (2, 9))
        loss = m(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        print(re_, s, float(loss).hex())
    base.disable_input_require_grads()
    print({k: H(v) for k, v in m.state_dict().items() if "lora_B" in k}, R())
m.save_pretrained("adapter")
