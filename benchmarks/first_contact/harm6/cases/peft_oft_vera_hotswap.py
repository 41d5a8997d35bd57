"""PEFT's rarer adapters on a tiny GPT-2 (OFT, VeRA, BOFT or LoHa, LoKr), added, switched, disabled, merged, unloaded and deleted in mid-training, rsLoRA and DoRA, adapter state dicts saved; losses, names of trainable parameters, files."""
# PRELUDE
import warnings
warnings.simplefilter("ignore")
from peft import IA3Config, LoHaConfig, LoKrConfig, LoraConfig, OFTConfig, VeraConfig, get_peft_model, get_peft_model_state_dict
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
base = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32, resid_pdrop=0.1))
tokens = lambda s: torch.randint(64, (2, 12), generator=torch.Generator().manual_seed(s))
W(base)


def steps(m, n, first):
    m.train()
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-2)
    for s in range(first, first + n):
        opt.zero_grad()
        loss = m(input_ids=tokens(s), labels=tokens(s)).loss
        loss.backward()
        opt.step()
    return loss.item().hex()


kinds = {"loha": LoHaConfig(r=2, target_modules=["c_attn"]), "lokr": LoKrConfig(r=2, target_modules=["c_attn"]), "lora": LoraConfig(r=2, target_modules=["c_attn", "c_proj"], use_rslora=True, use_dora=True, fan_in_fan_out=True, lora_dropout=0.1)}
for name, cfg in kinds.items():
    try:
        m = get_peft_model(base, cfg, adapter_name=name)
    except Exception as e:
        print(name, type(e).__name__, str(e)[:80])
        continue
    print(name, steps(m, 2, 0), len([n for n, p in m.named_parameters() if p.requires_grad]), H({k: v for k, v in get_peft_model_state_dict(m, adapter_name=name).items()}))
    if name == "lora":
        m.add_adapter("two", LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights="gaussian"))
        m.set_adapter("two")
        print("two", steps(m, 2, 5), m.active_adapters)
        with m.disable_adapter(), torch.no_grad():
            print("off", H(m(input_ids=tokens(9)).logits))
        m.set_adapter("lora")
        print("back", steps(m, 1, 8))
        m.delete_adapter("two")
        m.save_pretrained("adapter", safe_serialization=True)
        base = m.merge_and_unload()
    else:
        base = m.unload()
    print(type(base).__name__, H(dict(base.state_dict())), R())
base.requires_grad_(True)
print(steps(base, 2, 20), H(dict(base.state_dict())), sorted(os.listdir("adapter/lora")))
