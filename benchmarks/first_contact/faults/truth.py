"""What is true of each case, as data. `python truth.py` writes truth.json and SET.md; run.py imports it.

A fault's line is marked in its script by `# FAULT` (several marks: any of them is right, the reason says why). Where the first bad number is made
inside a library, `lib` is (end of the file's path, regex of the line's code), and the script's calling line is marked `# CALLER`.
ops: accepted operations, without `aten.`, leading/trailing underscores and `_backward`. phase: f forward, b backward, o optimizer; several: any.
rank: None on one process; "any" where all ranks have the fault at once.
how: P = the set's own TorchDispatchMode (probe/sitecustomize.py) saw the element made there and no earlier, and saw none in the cured twin;
A = arithmetic on paper (the number is made outside of torch's operators), the twin checked by P."""
import ast, json, pathlib, re

HERE = pathlib.Path(__file__).resolve().parent
CASES = HERE / "cases"
LOSS = ("transformers/loss/loss_utils.py", r"cross_entropy\(")


def F(ops, phase, reason, **more):
    return dict(fault=True, ops=ops.split(), phase=phase, reason=reason, **more)


def B(why, **more):
    return dict(fault=False, reason=why, **more)


TRUTH = {
    # losses and layers by hand
    "triplet_sqrt_zero": F("div sqrt", "b", "slope of sqrt at 0 is infinite"),
    "arcface_acos_one": F("rsqrt acos mul neg", "b", "slope of acos at 1 is infinite"),
    "focal_gamma_half": F("pow mul", "b", "slope of x**0.5 at 0 is infinite"),
    "svd_degenerate": F("div linalg_svd mul", "b", "equal singular values: 1 / (s_i^2 - s_j^2) in backward"),
    "where_exp_branch": F("exp mul", "fb", "exp overflows in the branch not taken; 0 * inf in its backward"),
    "where_div_masked_ratio": F("div mul", "fb", "0/0 behind where; comes back in backward as 0/0"),
    "softplus_by_hand": F("exp", "f", "exp overflow in float32"),
    "crf_all_forbidden": F("sub", "f", "-inf - (-inf): the maximum of a column of -inf"),
    "infonce_exp": F("exp", "f", "exp overflow: similarity / 0.01 = 100 > 88.7"),
    "kl_distill_zero_target": F("log mul", "f", "log of 0 (then 0 * -inf): the teacher's probability underflows"),
    "sinkhorn_underflow": F("div", "f", "0/0: a column of exp(-C/eps) underflows to 0"),
    "mdn_log_zero": F("log", "f", "log of 0: densities underflow"),
    "geodesic_acos_rounding": F("acos", "f", "acos of a number above 1 by rounding"),
    "gcn_isolated_node": F("pow", "f", "0 ** -0.5: division by zero"),
    "stochastic_depth_rate_one": F("div", "f", "0/0: 1 - drop rate is 0"),
    "dice_empty_class": F("div", "f", "0/0: empty class without smoothing"),
    "stft_magnitude_silence": F("div sqrt mul", "b", "slope of sqrt at 0 is infinite"),
    "dpp_logdet_singular": F("linalg_slogdet slogdet logdet log where linalg_det", "f", "log of a zero determinant"),
    "class_weight_absent": F("reciprocal div nll_loss_forward nll_loss cross_entropy", "f", "1/0 for a class with count 0; inf / inf once the class turns up (either line)"),
    "instance_norm_one_pixel": F("var", "f", "unbiased variance of one element is 0/0"),
    # transformers, torchvision, diffusers, peft
    "gpt2_all_ignored": F("nll_loss_forward nll_loss cross_entropy", "f", "mean over zero labels: 0/0", lib=LOSS),
    "trainer_num_items_zero": F("div", "f", "0/0: num_items_in_batch is 0", lib=("transformers/loss/loss_utils.py", r"loss / num_items_in_batch")),
    "opt_fp16_fc2": F("addmm linear mm", "f", "float16 overflow of a matrix product", lib=("models/opt/modeling_opt.py", r"self\.fc2\(")),
    "llama_left_padding_row": F("softmax", "f", "softmax of a row of -inf", lib=("models/llama/modeling_llama.py", r"softmax\(")),
    "bert_mean_pool_empty_text": F("div", "f", "0/0: no token to average"),
    "mixtral_expert_entropy": F("log mul", "f", "log of 0: an idle expert"),
    "vit_constant_image": F("div", "f", "0/0: standard deviation of a black image is 0"),
    "wav2vec2_ctc_too_long": F("ctc_loss", "f", "CTC's infinite loss: labels longer than frames", lib=("transformers/loss/loss_ctc.py", r"ctc_loss\("), lib2=("models/wav2vec2/modeling_wav2vec2.py", r"loss")),
    "whisper_log_mel_silence": F("log10", "f", "log of 0: silence"),
    "clip_logit_scale": F("exp", "f", "exp overflow: logit_scale above 88.7", lib=("models/clip/modeling_clip.py", r"logit_scale\.exp\(")),
    "detection_ciou_zero_box": F("div", "f", "0/0: a box without width and height", lib=("torchvision/ops/ciou_loss.py", r"atan\(w_gt / h_gt\)")),
    "rpn_box_coder_negative_width": F("log", "f", "log of a negative width", lib=("detection/_utils.py", r"torch\.log\(gt_widths")),
    "unet_min_snr": F("div", "f", "0/0: SNR of 0 at the last time step"),
    "vae_fp16_decoder": F("convolution conv2d mkldnn_convolution", "f", "float16 overflow of a convolution", lib=("diffusers/models/resnet.py", r"self\.conv2\(")),
    "dit_flow_last_sigma": F("div", "f", "division by zero: sigma_next - sigma is 0"),
    "flow_shift_terminal_one_step": F("", "f", "0/0 in the scheduler's sigmas (NumPy): bad data from there on (any of three lines)", how="A"),
    "ddpo_zero_std": F("div log", "f", "division by a variance of 0, log of 0 (same line)"),
    "dora_zero_row": F("div", "f", "0/0: magnitude / norm of a zero row", lib=("peft/tuners/lora/dora.py", r"magnitude / weight_norm")),
    "lora_fp16_scaling": F("mul", "f", "float16 overflow: adapter output times scaling", lib=("peft/tuners/lora/layer.py", r"\* scaling")),
    "mha_all_padding": F("softmax safe_softmax", "f", "softmax of a row of -inf: all keys are padding"),
    "cogview_fp16_scores": F("bmm matmul baddbmm", "f", "float16 overflow of q @ k^T"),
    "grn_half_square": F("sum mul", "f", "float16 overflow of a sum of squares"),
    "normalize_eps_half": F("div", "f", "0/0: eps 1e-12 is 0 in float16"),
    "bf16_probability_one": F("log", "f", "log of 0: p rounds to 1 in bfloat16"),
    # RL, generative, physics, meta
    "ppo_advantage_single": F("std", "f", "unbiased std of one sample is 0/0"),
    "rlhf_ratio_overflow": F("exp", "f", "exp overflow of a log-ratio above 88.7"),
    "sac_scaled_tanh": F("log", "f", "log of a negative number"),
    "dqn_all_actions_masked": F("mul", "f", "0 * -inf"),
    "obs_normalizer_constant": F("div", "f", "0/0: a constant sensor has variance 0"),
    "reinforce_log_prob_zero": F("log", "f", "log of 0: softmax underflows"),
    "vae_logvar_overflow": F("exp", "f", "exp overflow of logvar"),
    "vae_bce_by_hand": F("log mul", "f", "log of 0: sigmoid saturates to 1"),
    "glow_actnorm_dead_channel": F("log", "f", "log of 0: std of a constant channel"),
    "wgan_gp_zero_gradient": F("div sqrt mul", "b", "slope of sqrt at 0 is infinite (double backward)"),
    "gan_log_one_minus_d": F("log", "f", "log of 0: 1 - D is 0"),
    "pinn_radius_origin": F("div sqrt mul", "b", "slope of sqrt at 0 is infinite (inside autograd.grad)"),
    "pinn_power_negative": F("pow", "f", "a negative number to a fractional power"),
    "lbfgs_poisson_exp": F("exp", "fo", "exp overflow after LBFGS's step"),
    "ode_blow_up": F("mul", "f", "float32 overflow of y^2: the solution blows up"),
    "dpsgd_zero_gradient_clip": F("reciprocal div", "f", "1/0: a sample's gradient norm is 0"),
    "maml_one_shot_std": F("std var", "f", "unbiased std of one sample is 0/0"),
    "ema_debias_step_zero": F("div", "f", "0/0: 1 - decay**0 is 0"),
    "dino_teacher_temperature_zero": F("div", "f", "division by a temperature of 0"),
    # precision, optimizers, machinery
    "bn_amp_running_stats": F("to_copy convolution conv1d copy to half mkldnn_convolution", "f", "float16 overflow under autocast (input and convolution, same line); reaches BatchNorm's running statistics though the step is skipped"),
    "adam_eps_half": F("addcdiv div", "o", "0/0: eps 1e-8 is 0 in float16"),
    "lamb_trust_ratio": F("div mul sub", "o", "division by a norm of 0, then inf * 0"),
    "noam_inf_lr": F("add sub mul", "o", "learning rate is inf"),
    "clip_by_zero_norm": F("reciprocal div mul", "fbo", "1/0: gradient norm of 0, then inf * 0 (either line)"),
    "clip_norm_of_inf": F("pow mul", "b", "slope of a**0.5 at 0 is infinite"),
    "static_loss_scale_half": F("to_copy mul mm addmm copy to float", "b", "float16 overflow of gradients: the static loss scale is too large"),
    "custom_function_backward": F("div", "b", "division by a norm of 0 in an own backward"),
    "checkpoint_log_gate": F("log", "f", "log of 0: a gate saturates, in a checkpointed block"),
    "checkpoint_reentrant_rsqrt": F("rsqrt mul", "f", "rsqrt of 0, in a reentrant checkpoint"),
    "compile_aot_logratio": F("log", "f", "log of 0, compiled"),
    "compile_inductor_softmax": F("softmax", "f", "softmax of a row of -inf, compiled"),
    "to_empty_forgotten_parameter": F("", "f", "a parameter was never initialised (nan): bad parameter", how="A"),
    "data_nan_row": F("", "f", "nan in the data", how="A"),
    "data_half_overflow": F("to_copy copy to half", "f", "float16 overflow of a cast: 70000"),
    "relu_rnn_explodes": F("addmm mm linear rnn_relu relu add", "f", "float32 overflow in a recurrent product"),
    "lr_blow_up_convnext": F("native_layer_norm layer_norm", "f", "overflow inside layer norm: weights blown up by the learning rate", lib=("timm/layers/norm.py", r"layer_norm\(")),
    "weight_norm_zero_init": F("weight_norm_interface weight_norm div", "f", "0/0: weight_norm of a zero weight", lib=("torch/nn/utils/parametrizations.py", r"_weight_norm\(")),
    "lightning_constant_target": F("div", "fo", "division by a std of 0: a constant batch"),
    "accelerate_perplexity_penalty": F("exp", "f", "exp overflow of a loss above 88.7"),
    "swin_loss_none_reduction": F("mean", "f", "mean of nothing is 0/0"),
    "electra_contrastive_temperature": F("div", "f", "division by a temperature of 0"),
    "eigh_whitening_degenerate": F("div linalg_eigh mul", "b", "equal eigenvalues: 1 / (l_i - l_j) in backward"),
    "mamba_exp_dt": F("mul add exp", "f", "float32 overflow of a growing state"),
    # several processes
    "ddp_empty_selection": F("mean", "f", "mean of nothing is 0/0", rank=1, launch="torchrun"),
    "ddp_spawn_log_negative": F("log1p", "f", "log1p of -3", rank=0),
    "ddp_global_token_count_zero": F("div", "f", "0/0: an all-reduced count of 0", rank="any", launch="torchrun"),
    "fsdp2_all_ignored": F("nll_loss_forward nll_loss cross_entropy", "f", "mean over zero labels: 0/0", rank=1, launch="torchrun", lib=LOSS),
    "fsdp2_fp16_policy": F("mul", "f", "float16 overflow of a product", rank=0, launch="torchrun"),
    "tp_exp_shard": F("exp", "f", "exp overflow on rank 1's columns", rank=1, launch="torchrun"),
    "tp_sqrt_output": F("div sqrt mul", "b", "slope of sqrt at 0 is infinite", rank="any", launch="torchrun"),
    "pp_last_stage_log": F("log", "f", "log of 0: softmax underflows", rank=1, launch="torchrun"),
    "pp_first_stage_backward": F("div sqrt mul", "b", "slope of sqrt at 0 is infinite", rank=0, launch="torchrun"),
    # benign
    "b_causal_mask_inf": B("mask of -inf in a buffer"),
    "b_best_so_far_inf": B("best = inf in a buffer and schedulers"),
    "b_eval_metrics_nan": B("nan metrics in an evaluation"),
    "b_missing_values_imputed": B("nan in raw data is imputed"),
    "b_log_spectrogram_clamped": B("log of 0 is clamped, no gradient"),
    "b_grad_scaler_skips": B("GradScaler skips 7 of 14 steps and settles"),
    "b_sdpa_fully_masked": B("SDPA gives zeros for rows that are masked wholly"),
    "b_rollout_top_k": B("-inf logits in sampling"),
    "b_masked_max_pool": B("-inf before a maximum"),
    "b_crf_forbidden_transitions": B("-inf in logsumexp"),
    "b_nearest_neighbour_diag_inf": B("inf on a diagonal before argmin"),
    "b_t5_fp16_clamped": B("float16 overflow that the library clamps"),
    "b_masked_policy": B("-inf logits in Categorical"),
    "b_qat_observers": B("observers' inf buffers"),
    "b_torchmetrics_inf_defaults": B("metric states of inf, a mean of nothing that is printed"),
    "b_skip_bad_loss": B("the script leaves out the batch before backward"),
    "b_finfo_min_sum": B("masks add up to -inf, no row is masked wholly"),
    "b_teacher_sigmoid_by_hand": B("1 / (1 + inf) = 0, without gradient"),
    "b_inverse_distance_weights": B("1/0 is clamped, without gradient"),
    "b_ctc_zero_infinity": B("zero_infinity takes the infinite loss away"),
    "b_generate_constraints_in_eval": B("-inf scores in beam search"),
    "b_compile_mask": B("-inf mask, compiled"),
    "b_min_snr_inf_clipped": B("infinite SNR is clipped in a table"),
    "b_missing_labels": B("nan labels are left out by index"),
    "b_gradient_hook_cleans": B("a tensor hook replaces the infinite slope"),
    "b_atan2_origin": B("atan2's backward masks the origin"),
    "b_relu_stops_slope": B("relu's backward masks the infinite slope"),
    "b_dqn_target_where": B("where drops -inf in a target"),
    "b_diffusion_sampling_nan": B("nan in a logged picture"),
    "b_ddp_eval_nan_one_rank": B("nan metric on rank 1", launch="torchrun"),
    "b_pp_causal_mask": B("causal masks in a pipeline", launch="torchrun"),
}


def load():
    out = {}
    for name, t in TRUTH.items():
        text = (CASES / f"{name}.py").read_text()
        doc = ast.get_docstring(ast.parse(text))
        head, _, tail = doc.partition("\n")
        rows = text.splitlines()
        t = dict(t, name=name, what=head, source=tail.replace("Source: ", "") or head)
        t["own"] = t["source"].startswith("Own")
        t["lines"] = [i + 1 for i, r in enumerate(rows) if "# FAULT" in r or "CALLER FAULT" in r]
        t["caller"] = [i + 1 for i, r in enumerate(rows) if "# CALLER" in r]
        t.setdefault("how", "P")
        t.setdefault("launch", "python")
        t.setdefault("rank", None)
        if t["fault"]:
            assert t["lines"] or t.get("lib"), name
            t["cure"] = "--cured"
        out[name] = t
    extra = {p.stem for p in CASES.glob("*.py")} - set(out)
    assert not extra, extra
    return out


if __name__ == "__main__":
    data = load()
    (HERE / "truth.json").write_text(json.dumps(data, indent=1))
    f = [t for t in data.values() if t["fault"]]
    b = [t for t in data.values() if not t["fault"]]
    own = [t["name"] for t in data.values() if t["own"]]
    text = [f"# {len(f)} faults, {len(b)} benign uses\n", f"Of own invention: {len(own)} of {len(data)} ({', '.join(own)}).\n",
            "How known: P, the set's own TorchDispatchMode (`probe/`) saw the first bad element made at the marked line and none in the `--cured` twin; A, arithmetic on paper, twin by P. "
            "Benign: P or an `assert` in the script shows that losses and weights stay finite.\n",
            "A bare `torchvision` from PyPI is a CUDA build that does not load beside a CPU-only torch: `fix_torchvision.sh VENV` stubs the 16 CUDA symbols it misses.\n",
            "| name | what, source | truth | how |", "|---|---|---|---|"]
    for t in data.values():
        where = f"line {','.join(map(str, t['lines']))}" if t["lines"] else ""
        if t.get("lib"):
            where += f" {t['lib'][0]} `{t['lib'][1]}`, called from line {','.join(map(str, t['caller']))}"
        truth = f"{t['reason']}; {where}; {'/'.join(t['ops']) or '-'}; {t['phase']}" + (f"; rank {t['rank']}" if t["rank"] is not None else "") if t["fault"] else "silent: " + t["reason"]
        text.append(f"| {t['name']} | {t['what']} {t['source']} | {truth} | {t['how']} |".replace("\n", " "))
    (HERE / "SET.md").write_text("\n".join(text) + "\n")
    print(len(f), len(b), "own", len(own), own)
