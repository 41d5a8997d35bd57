import json, subprocess, sys
from cure import *
jobs = []
def add(n, tag, s):
    d = here / "runs" / n / tag; d.mkdir(exist_ok=True); (d / (n + ".py")).write_text(s)
    jobs.append(dict(mode="bare", script=str(d / (n + ".py")), dir=str(d), trace=True))
for n, r, k in (("D05_too_coarse_difference", 6, 16), ("D06_gradient_normalized", 4, 16), ("D07_nvfp4_hand_layernorm", 2, 16), ("B04_zero_image_dataclass", 40, 64), ("B25_class_weights_same_length", 2, 8), ("B29_dataclass_one_of_8", 3, 8), ("B20_duplicate_pair", 4, 14), ("A32_bce_scaler_autocast", 0, 6)):
    add(n, "rowcut", edit(n, f"a batch without row {r} of {k}", {"step": 2}).replace("STEP", "2"))
for n, rows in (("B10_two_zero_of_256", "100 and 201 of 256"), ("B17_two_inf_batchnorm_128", "31 and 90 of 128"), ("B34_two_of_128_tensors", "31 and 90 of 128"), ("B08_lstm_time_first", "7 of 12"), ("B09_transformer_time_first", "3 of 5"), ("B26_time_equals_batch", "1 of 6")):
    add(n, "rowcut", edit(n, f"a batch without rows {rows}", {"step": 2}).replace("STEP", "2"))
for n, h in (("A16_static_loss_scale", "numscope.high_precision(model[2])"), ("A26_llama_autocast_down", "numscope.high_precision(model.model.layers[1].mlp.down_proj)"), ("C20_enormous_half_row", "numscope.high_precision(model)")):
    add(n, "saidno", edit(n, h, {"step": 0}))
src = (here / "cases" / "A12_advantage_std_one.py").read_text()
add("A12_advantage_std_one", "plain", src.replace("adv.std()", "adv.std(correction=0)"))
src = (here / "cases" / "A07_vae_exp_logvar.py").read_text()
add("A07_vae_exp_logvar", "plain", src.replace(".chunk(2, -1)", ".chunk(2, -1)\n        logvar = logvar.clamp(-30, 20)"))
src = (here / "cases" / "C10_running_var_negative.py").read_text()
add("C10_running_var_negative", "plain", src.replace("# WEIGHT", "model.bn.running_var[2] = 0"))
src = (here / "cases" / "A39_checkpointed_exp.py").read_text()
add("A39_checkpointed_exp", "plain", src.replace("torch.exp(self.fc(x))", "torch.exp(self.fc(x).clamp(-22, 22))"))
src = (here / "cases" / "B10_two_zero_of_256.py").read_text()
add("B10_two_zero_of_256", "plain", src.replace(".sum(-1, keepdim=True).sqrt()", ".sum(-1, keepdim=True).add(1e-6).sqrt()"))
src = (here / "cases" / "A43_masked_softmax_chain.py").read_text()
add("A43_masked_softmax_chain", "plain", src.replace("s.softmax", "s.clamp_min(torch.finfo(s.dtype).min).softmax"))
(here / "j_extra.json").write_text(json.dumps(jobs))
subprocess.run([sys.executable, "cases/run/zygote.py", "j_extra.json", str(here / "mods_bare.json")], cwd=here, stdout=subprocess.DEVNULL)
for j in jobs: print(j["dir"].split("runs/")[1], trace(pathlib.Path(j["dir"])), (pathlib.Path(j["dir"]) / "rc").read_text())
