"""A hundred calls of torchmetrics on predictions with constant columns, empty classes and silent images (0/0, inf PSNR, their warnings) beside a training must keep values, states and warnings."""
# PRELUDE
import warnings

import torchmetrics as tm
import torchmetrics.audio as ta
import torchmetrics.image as ti

m = net(2, 8, 16, 4)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    reg = tm.MetricCollection({"r2": tm.R2Score(), "pear": tm.PearsonCorrCoef(4), "spear": tm.SpearmanCorrCoef(4), "conc": tm.ConcordanceCorrCoef(4), "ev": tm.ExplainedVariance(), "mape": tm.MeanAbsolutePercentageError(), "smape": tm.SymmetricMeanAbsolutePercentageError(),
                               "msle": tm.MeanSquaredError(squared=False), "kend": tm.KendallRankCorrCoef(num_outputs=4), "tweedie": tm.TweedieDevianceScore(0), "cos": tm.CosineSimilarity()}, compute_groups=False)
    cls = tm.MetricCollection({"f1": tm.F1Score("multiclass", num_classes=4, average=None), "auroc": tm.AUROC("multiclass", num_classes=4), "ap": tm.AveragePrecision("multiclass", num_classes=4), "kappa": tm.CohenKappa("multiclass", num_classes=4), "mcc": tm.MatthewsCorrCoef("multiclass", num_classes=4),
                               "cal": tm.CalibrationError("multiclass", num_classes=4), "cm": tm.ConfusionMatrix("multiclass", num_classes=4, normalize="true"), "jac": tm.JaccardIndex("multiclass", num_classes=4), "stat": tm.StatScores("multiclass", num_classes=4)})
    img = [ti.PeakSignalNoiseRatio(data_range=1.0), ti.StructuralSimilarityIndexMeasure(data_range=1.0, kernel_size=5, sigma=0.5), ti.SpectralAngleMapper(), ti.UniversalImageQualityIndex(kernel_size=(5, 5), sigma=(0.5, 0.5)), ti.TotalVariation(), ti.ErrorRelativeGlobalDimensionlessSynthesis(), ti.SpectralDistortionIndex()]
    aud = [ta.ScaleInvariantSignalDistortionRatio(), ta.SignalNoiseRatio(), ta.SignalDistortionRatio(filter_length=16, load_diag=0.01), ta.ScaleInvariantSignalNoiseRatio()]
    agg = [tm.MeanMetric(nan_strategy="ignore"), tm.SumMetric(nan_strategy="warn"), tm.MaxMetric(nan_strategy=0.0), tm.CatMetric(nan_strategy="ignore")]
    for s in range(4):
        x, y = batch(s, 12)
        out = m(x)
        loss = F.mse_loss(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        y[:, 1] = 0.5  # constant: no correlation
        p = out.detach().clone()
        p[:, 2] = 0.0
        lab = torch.randint(0, 2 + s % 3, (12,), generator=torch.Generator().manual_seed(s))
        reg.update(p, y)
        cls.update(p.softmax(1), lab)
        im = p.repeat(1, 48).view(2, 3, 16, 24)[..., :16].sigmoid().contiguous()
        for k, i in enumerate(img):
            (i(im) if k == 4 else i(im, im if s == 2 else im.flip(0)))
        for a in aud:
            a(p.T.repeat(1, 20), y.T.repeat(1, 20) * (s != 1))
        for a in agg:
            a(torch.tensor([1.0, float("nan"), s]))
        print(s, float(loss.detach()).hex(), M(m), R())
        if s % 2:
            for col in (reg, cls):
                for k, v in sorted(col.compute().items()):
                    print(s, k, H(v), bool(torch.as_tensor(v).isnan().any()))
            for i in img + aud + agg:
                v = i.compute()
                print(s, type(i).__name__, H(v), bool(torch.as_tensor(v).isnan().any()), bool(torch.as_tensor(v).isinf().any()))
    reg.reset()
    try:
        print(reg.compute())
    except Exception as e:
        print(type(e).__name__, str(e)[:80])
for w in seen:
    print(w.category.__name__, str(w.message)[:80].replace("\n", " "))
