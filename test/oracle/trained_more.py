"""trained_more.py - cases of trained.py: schedules, clipping and averages, against PyTorch's."""
import torch

import skein_run
from replay import by_torch

STEPS = skein_run.STEPS


def rates(run, holders, t):
    """The rate in the metrics is that of PyTorch's scheduler."""
    rate = holders[0].rate
    return abs(run.metrics("lr")[t - 1] - rate) / max(rate, 1e-12), ""


def schedule(kind, label, keys, make, optim="sgd", lr=0.5):
    cls = torch.optim.SGD if optim == "sgd" else torch.optim.AdamW
    own = dict(lr=lr, momentum=0.9) if optim == "sgd" else dict(lr=lr, betas=(0.9, 0.95),
                                                                weight_decay=0.1)
    keys = {"optim.schedule": kind, **{f"optim.{k}": v for k, v in keys.items()}}
    return (optim, dict(lr=lr), [by_torch(lambda n: True, cls, own, scheduler=make)], label,
            dict(keys=keys, also=rates))


def schedules():
    L = torch.optim.lr_scheduler
    low = 0.5 / 25 / 100
    yield schedule("onecycle", "OneCycleLR, momentum", {"min_lr": low}, lambda o: L.OneCycleLR(
        o, 0.5, total_steps=STEPS, pct_start=0.3, div_factor=25, final_div_factor=100))
    yield schedule(
        "onecycle", "OneCycleLR, betas",
        {"min_lr": 3e-3 / 1000, "schedule_start": 0.4, "schedule_div": 10,
         "schedule_momentum": (0.7, 0.9)},
        lambda o: L.OneCycleLR(o, 3e-3, total_steps=STEPS, pct_start=0.4, div_factor=10,
                               final_div_factor=100, base_momentum=0.7, max_momentum=0.9),
        "adamw", 3e-3)
    yield schedule("restarts", "CosineAnnealingWarmRestarts",
                   {"min_lr": 0.01, "schedule_period": 5, "schedule_mult": 2},
                   lambda o: L.CosineAnnealingWarmRestarts(o, 5, 2, eta_min=0.01))
    yield schedule("polynomial", "PolynomialLR", {"schedule_power": 1.5},
                   lambda o: L.PolynomialLR(o, total_iters=STEPS, power=1.5))
    yield schedule("step", "StepLR", {"schedule_factor": 0.3, "schedule_every": 7},
                   lambda o: L.StepLR(o, 7, gamma=0.3))
    yield schedule("step", "MultiStepLR", {"schedule_factor": 0.3, "schedule_milestones": (5, 17)},
                   lambda o: L.MultiStepLR(o, [5, 17], gamma=0.3))
    yield schedule("cosine", "CosineAnnealingLR", {"min_lr": 0.05},
                   lambda o: L.CosineAnnealingLR(o, STEPS, eta_min=0.05))
    yield schedule("linear", "LinearLR", {"min_lr": 0.1},
                   lambda o: L.LinearLR(o, 1, 0.2, total_iters=STEPS))
    yield schedule("constant", "LinearLR, a warmup", {"warmup": 10},
                   lambda o: L.LinearLR(o, 0.1, 1, total_iters=9))


class Module(torch.nn.Module):
    """Weights as torch.optim.swa_utils wants them."""

    def __init__(self, weights):
        super().__init__()
        self.names = sorted(weights)
        self.all = torch.nn.ParameterList([torch.nn.Parameter(weights[n]) for n in self.names])


def averaged(avg_fn, runs, steps):
    mean = None
    for t in steps:
        module = Module(runs.weights(t))
        mean = mean or torch.optim.swa_utils.AveragedModel(module, avg_fn=avg_fn)
        mean.update_parameters(module)
    return dict(zip(mean.module.names, (x.detach() for x in mean.module.all)))


def ema(decay):
    """Debiased: PyTorch's update with the part of the newest weights that optim.ema has."""
    def newest(mean, w, n):
        n = float(n) + 1  # n: how many are in the mean
        return mean + (1 - decay) / (1 - decay ** n) * (w - mean)

    def see(run, holders, t):
        if t != STEPS:
            return 0, ""
        want, state = averaged(newest, run, range(1, STEPS + 1)), run.state(t)
        return max(skein_run.off(state[n + ".ema"], x) for n, x in want.items()), ""
    return see


def hf(name, x):
    """Of a weight of gpt2: name and form in a Hugging Face directory."""
    if name.endswith("qkv.w"):
        x = x.permute(0, 2, 1, 3).reshape(x.shape[0], -1)
    if name.endswith("qkv.b"):
        x = x.permute(1, 0, 2).flatten()
    if name.endswith("proj.w"):
        x = skein_run.matrix(x).t()
    for a, b in (("qkv", "attn.c_attn"), ("proj", "attn.c_proj"), ("fc", "mlp.c_fc"),
                 ("out", "mlp.c_proj"), ("ln1", "ln_1"), ("ln2", "ln_2")):
        name = name.replace(f".{a}.", f".{b}.")
    name = name[:-2] + {".w": ".weight", ".b": ".bias"}.get(name[-2:], name[-2:])
    return "transformer." + name + ("" if name.endswith(("weight", "bias")) else ".weight"), x


def swa(run, holders, t):
    """`skein average` of the last five checkpoints: torch.optim.swa_utils.AveragedModel."""
    if t != STEPS:
        return 0, ""
    skein_run.skein("average", run.path("mean"), run.path("run"), "--last", "5")
    got = skein_run.tensors(run.path("mean", "model.safetensors"))
    want = dict(hf(*x) for x in averaged(None, run, range(STEPS - 4, STEPS + 1)).items())
    assert set(got) == set(want), sorted(set(got) ^ set(want))
    return max(skein_run.off(got[n], x) for n, x in want.items()), ""


def schedules_and_averages(plain):
    yield from schedules()
    clipped = by_torch(lambda n: True, torch.optim.SGD, dict(lr=0.5, momentum=0.9), clip=0.5)
    yield ("sgd", dict(lr=0.5), [clipped], "clip_grad_norm_", dict(keys={"optim.clip": 0.5}))
    for label, keys, also in (("swa_utils, debiased EMA", {"optim.ema": 0.9}, ema(0.9)),
                              ("swa_utils, skein average", {}, swa)):
        yield ("adamw", dict(lr=3e-3), plain("adamw", dict(lr=3e-3))[0], label,
               dict(keys=keys, also=also))
