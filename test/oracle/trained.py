#!/usr/bin/python3
"""trained.py - every optimizer of skein, in training, against PyTorch in float64.

    trained.py [key=value ...] [name ...]        SKEIN=build/release/skein JOBS=1

    SKEIN=carry/skein JOBS=8 python3 test/oracle/trained.py device=cuda
    test/oracle/trained.py ranks=4 layout="dp=2 zero=1 tp=2" muon sgd

Trains a small GPT-2 for 24 steps with each optimizer, with its default numbers and with others.
PyTorch in float64 takes the same steps with the gradients of the run: by its own optimizer where
it has it, else by references.py, from the papers.  After every step every tensor must agree to
1e-5 of its root mean square.  Shampoo and SOAP with their default damping and eps divide
roundings by small numbers: there skein may be twice as far off as PyTorch is in float32.  Schedules, clipping and averages likewise.  Prints a table; exit 1
if something differs.  With names, only cases that contain one.  What this PyTorch does not have
is said.
"""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch  # noqa: E402

import skein_run  # noqa: E402
from replay import ALLOWED, by_slots, by_torch, gradients_of_model, replay  # noqa: E402
from replay import averages, bases, muon_in_double, rounding, rows_are_outputs  # noqa: E402
import references as R  # noqa: E402
from trained_more import schedules_and_averages  # noqa: E402

STEPS = skein_run.STEPS
EPS1 = 2.0 ** -23

# The numbers that skein has where a case gives none.
DEFAULTS = {
    "adafactor": dict(weight_decay=0, decay_rate=0.8, eps1=EPS1, eps2=1e-3, clip_rms=1),
    "adagrad": dict(eps=1e-10, weight_decay=0),
    "adam8bit": dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0),
    "adamax": dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0),
    "adamw": dict(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
    "ademamix": dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, beta3=0.9999, alpha=5,
                     mix_warmup=0),
    "kfac": dict(betas=(0.9, 0.95), weight_decay=0.1, damping=1, interval=10, match_rms=0.2),
    "lamb": dict(betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01),
    "lars": dict(momentum=0.9, eps=1e-8, trust=0.001, weight_decay=5e-4),
    "lion": dict(betas=(0.9, 0.99), weight_decay=0),
    "mars": dict(betas=(0.95, 0.99), eps=1e-8, gamma=0.025, weight_decay=0),
    "muon": dict(momentum=0.95, nesterov=1, ns_steps=5, match_rms=0.2, weight_decay=0.1),
    "nadam": dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3),
    "novograd": dict(betas=(0.95, 0.98), eps=1e-8, weight_decay=0.001),
    "onebit-adam": dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0, freeze_step=100000),
    "onebit-lamb": dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0, freeze_step=100000,
                        coeff_beta=0.9, max_coeff=10, min_coeff=0.01, factor_max=4, factor_min=0.5,
                        factor_threshold=0.1),
    "radam": dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0),
    "rmsprop": dict(rho=0.99, eps=1e-8, momentum=0, weight_decay=0),
    "sam": dict(radius=0.05, base="adamw", betas=(0.9, 0.95), eps=1e-8, momentum=0.9,
                weight_decay=0.1),
    "schedulefree": dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0),
    "sgd": dict(momentum=0.9, weight_decay=0),
    "sgd-pb": dict(momentum=0.9, weight_decay=0),
    "shampoo": dict(betas=(0.9, 0.99), weight_decay=0.1, damping=1e-6, interval=10, match_rms=0.2,
                    max_dim=8192),
    "soap": dict(betas=(0.95, 0.95), eps=1e-8, weight_decay=0.01, interval=10),
    "zeroone-adam": dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0, var_freeze_step=100000,
                         var_update_scaler=16, local_step_scaler=32678, local_step_clipper=16),
}

# The optimizers of PyTorch, and its names of the numbers.
TORCH = {
    "adagrad": ("Adagrad", {}), "adamax": ("Adamax", {}), "adamw": ("AdamW", {}),
    "nadam": ("NAdam", {}), "radam": ("RAdam", {}), "rmsprop": ("RMSprop", {"rho": "alpha"}),
    "sgd": ("SGD", {}), "sgd-pb": ("SGD", {}),
}


def rest(k):
    """What takes the parameters that are no matrices: adamw at the same rate and decay."""
    own = dict(lr=k["lr"], weight_decay=k["weight_decay"], betas=(0.9, 0.95), eps=1e-8)
    return by_torch(skein_run.is_vector_or_table, torch.optim.AdamW, own)


def narrow(k):
    """Betas as kernels have them: of f32.  1 - 0.999 is 4.7e-5 more there."""
    return {**k, "betas": tuple(torch.tensor(k["betas"]).double().tolist())}


def plain(name, given):
    cls, names = TORCH[name]
    own = {names.get(n, n): v for n, v in {**DEFAULTS[name], **given}.items()}
    if cls == "NAdam":  # 1.13's other form multiplies mu(t) into the product of t + 1 twice
        own["foreach"] = True
    label = f"torch.optim.{cls}"
    if cls == "RAdam":  # 1 - beta2 is a factor of its rectified steps
        own, label = narrow(own), label + ", f32 betas"
    return [by_torch(lambda n: True, getattr(torch.optim, cls), own)], label


def paper(name, given, **more):
    return [by_slots(lambda n: True, getattr(R, name), {**DEFAULTS[name], **given, **more})], "paper"


def whole(name, given, **more):
    k = {**DEFAULTS[name], **given}
    return [by_slots(skein_run.is_matrix, getattr(R, name), k, **more), rest(k)], "paper"


def torch_muon(given):
    k = {**DEFAULTS["muon"], **given}
    how = "match_rms_adamw" if k["match_rms"] else "original"
    own = dict(lr=k["lr"], weight_decay=k["weight_decay"], momentum=k["momentum"],
               nesterov=bool(k["nesterov"]), ns_steps=k["ns_steps"], adjust_lr_fn=how)
    return ([by_torch(skein_run.is_matrix, torch.optim.Muon, own, view=rows_are_outputs,
                      within=muon_in_double), rest(k)], "torch.optim.Muon")


def adafactor(given, tables, of_torch):
    """Every matrix is factored, as by PyTorch; tables are not where groups say so."""
    k = {**DEFAULTS["adafactor"], **given}

    def factored(name):
        return skein_run.is_matrix(name) or (tables and skein_run.is_table(name))

    def other(name):
        return not factored(name)
    what = "" if tables else ", tables whole"
    if not of_torch:
        return [by_slots(factored, lambda x: R.adafactor(x, True), k, view=skein_run.matrix),
                by_slots(other, lambda x: R.adafactor(x, False), k)], "paper" + what
    own = dict(lr=k["lr"], weight_decay=k["weight_decay"], beta2_decay=-k["decay_rate"],
               eps=(k["eps1"], k["eps2"]), d=k["clip_rms"])
    cls = torch.optim.Adafactor
    return [by_torch(factored, cls, own, view=skein_run.matrix),
            by_torch(other, cls, own, view=torch.flatten)], "torch.optim.Adafactor" + what


def sam(given):
    """Gradients are the model's own here, at the weights of the run and beside them."""
    k = {**DEFAULTS["sam"], **given}
    own = dict(lr=k["lr"], weight_decay=k["weight_decay"])
    if k["base"] == "sgd":
        cls, own["momentum"] = torch.optim.SGD, k["momentum"]
    else:
        cls, own["betas"], own["eps"] = torch.optim.AdamW, k["betas"], k["eps"]
    return ([by_torch(lambda n: True, cls, own)], f"paper, torch.optim.{cls.__name__}",
            dict(gradients=gradients_of_model(k["radius"])))


def optimizers():
    """name, numbers that are given to skein, holders and label, what else is compared."""
    for name in TORCH:
        lr = {"sgd": 0.5, "sgd-pb": 0.5, "adagrad": 0.01, "rmsprop": 1e-3}.get(name, 3e-3)
        for given in ({}, OTHERS[name]):
            yield name, dict(lr=lr, **given), *plain(name, dict(lr=lr, **given))
    for name, lr in (("lamb", 0.02), ("lars", 1), ("lion", 1e-3), ("mars", 3e-3),
                     ("novograd", 0.01), ("ademamix", 3e-3)):
        for given in ({}, OTHERS[name]):
            yield name, dict(lr=lr, **given), *paper(name, dict(lr=lr, **given))
    for name, lr in (("onebit-adam", 3e-3), ("onebit-lamb", 0.02), ("zeroone-adam", 3e-3)):
        for given in ({}, OTHERS[name]):
            given = dict(lr=lr, **given)
            made = getattr(R, name.replace("-", "_"))
            yield (name, given, [by_slots(lambda n: True, made, {**DEFAULTS[name], **given})],
                   "paper")
    for given in ({}, OTHERS["schedulefree"]):
        given = dict(lr=3e-3, **given)
        yield ("schedulefree", given, *paper("schedulefree", given, warmup=7),
               dict(keys={"optim.warmup": 7}, also=averages("schedulefree.x")))
    for given in ({}, OTHERS["adam8bit"]):
        given = dict(lr=3e-3, **given)
        made = by_slots(lambda n: True, R.adam8bit, narrow({**DEFAULTS["adam8bit"], **given}),
                        facts=("m", "v"))
        yield "adam8bit", given, [made], "paper, state of the run", dict(also=rounding)
    for given in (dict(eps=0.01), OTHERS["sam"]):  # eps: gradients differ by roundings here
        yield "sam", dict(lr=3e-3, **given), *sam(dict(lr=3e-3, **given))


def of_matrices():
    for given in (dict(lr=1e-3), dict(lr=1e-3, **OTHERS["muon"])):
        yield ("muon", given, *whole("muon", given, view=rows_are_outputs))
        if hasattr(torch.optim, "Muon"):
            yield ("muon", given, *torch_muon(given))
    for given in (dict(lr=0.01), dict(lr=0.03, **OTHERS["adafactor"])):
        for keys in ({}, {"model.tie_word_embeddings": "false"},
                     {"optim.groups": "matrix: adafactor, rest: adafactor-vector"}):
            tables = "optim.groups" not in keys
            yield ("adafactor", given, *adafactor(given, tables, False), {"keys": keys})
            if hasattr(torch.optim, "Adafactor"):
                yield ("adafactor", given, *adafactor(given, tables, True), {"keys": keys})
    for name, lr in (("shampoo", 1e-3), ("kfac", 1e-3), ("soap", 3e-3)):
        more = dict(keys={"train.backward": "kron"}) if name == "kfac" else {}
        how = dict(view=skein_run.matrix, factors=name == "kfac")
        if name == "soap":
            how["facts"], more["also"] = ("p", "q"), bases
        larger = dict(soap=dict(eps=1e-3), shampoo=dict(damping=0.01), kfac={})[name]
        for given in (larger, OTHERS[name]):
            yield (name, dict(lr=lr, **given), *whole(name, dict(lr=lr, **given), **how), more)
        if not larger:
            continue
        in_f32 = whole(name, dict(lr=lr), **how)[0]
        yield name, dict(lr=lr), *whole(name, dict(lr=lr), **how), dict(more, narrow=in_f32)


OTHERS = {
    "adafactor": dict(weight_decay=0.3, decay_rate=0.5, eps1=1e-3, eps2=0.1, clip_rms=1.5),
    "adagrad": dict(eps=1e-3, weight_decay=0.1),
    "adam8bit": dict(betas=(0.8, 0.95), eps=1e-4, weight_decay=0.3),
    "adamax": dict(betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1),
    "adamw": dict(betas=(0.8, 0.999), eps=1e-4, weight_decay=3),
    "ademamix": dict(betas=(0.8, 0.99), eps=1e-4, weight_decay=1, beta3=0.999, alpha=3,
                     mix_warmup=16),
    "kfac": dict(betas=(0.8, 0.9), weight_decay=1, damping=3, interval=3, match_rms=0.4),
    "lamb": dict(betas=(0.8, 0.95), eps=1e-3, weight_decay=0.5),
    "lars": dict(momentum=0.8, eps=1e-3, trust=0.02, weight_decay=0.1),
    "lion": dict(betas=(0.95, 0.9), weight_decay=1),
    "mars": dict(betas=(0.9, 0.95), eps=1e-4, gamma=0.1, weight_decay=1),
    "muon": dict(momentum=0.8, nesterov=0, ns_steps=4, match_rms=0, weight_decay=1),
    "nadam": dict(betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1, momentum_decay=0.3),
    "novograd": dict(betas=(0.8, 0.5), eps=1e-3, weight_decay=0.1),
    "onebit-adam": dict(freeze_step=9, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.3),
    "onebit-lamb": dict(freeze_step=9, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.3,
                        coeff_beta=0.8, max_coeff=8, min_coeff=0.1, factor_max=2, factor_min=0.8,
                        factor_threshold=0.2),
    "radam": dict(betas=(0.8, 0.7), eps=1e-4, weight_decay=0.1),
    "rmsprop": dict(rho=0.9, eps=1e-4, momentum=0.8, weight_decay=0.1),
    "sam": dict(radius=0.5, base="sgd", momentum=0.8, weight_decay=0.01),
    "schedulefree": dict(betas=(0.5, 0.95), eps=1e-4, weight_decay=1),
    "sgd": dict(momentum=0.5, weight_decay=0.1),
    "sgd-pb": dict(momentum=0.5, weight_decay=0.1),
    "shampoo": dict(betas=(0.8, 0.9), weight_decay=1, damping=1e-2, interval=3, match_rms=0,
                    max_dim=64),
    "soap": dict(betas=(0.9, 0.9), eps=1e-2, weight_decay=1, interval=3),
    "zeroone-adam": dict(betas=(0.8, 0.95), eps=1e-4, weight_decay=0.3, var_freeze_step=9,
                         var_update_scaler=2, local_step_scaler=4, local_step_clipper=3),
}


def cases():
    every = [*optimizers(), *of_matrices(), *schedules_and_averages(plain)]
    if any(a.startswith("layout=") for a in skein_run.MORE):
        print("not compared: adam8bit, whose blocks are those of shards under a layout")
        every = [c for c in every if c[0] != "adam8bit"]
    return every


def told(case):
    name, given, _, label = case[:4]
    return " ".join([name, label, *(f"{k}={skein_run.key(v)}" for k, v in given.items())])


def one(case):
    name, given, holders, label, *more = case
    worst, allowed, way, note = replay(name, given, holders, *more)
    good = worst <= allowed and way > 0.01
    text = told((name, given, None, "")).split(" ", 2)[2]
    return good, (f"{name:13} {label:34} {worst:8.1e} {way:8.1e}  {'ok   ' if good else 'WRONG'} "
                  f"{text}{note}")


def main():
    words = [a for a in sys.argv[1:] if "=" not in a]
    print(f"torch {torch.__version__}, {os.path.basename(skein_run.SKEIN)} "
          f"{' '.join(skein_run.MORE)}: {STEPS} steps, largest difference of an element over the "
          "root mean square of its tensor, and median way of tensors over their norm")
    chosen = [c for c in cases() if not words or any(w in told(c) for w in words)]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", 1))) as jobs:
        for good, line in jobs.map(one, chosen):
            bad += not good
            print(line, flush=True)
    for cls in ("Adafactor", "Muon"):
        if not hasattr(torch.optim, cls):
            print(f"not compared: torch.optim.{cls}, which torch {torch.__version__} has not; "
                  "the paper stands in for it")
    print(f"{len(chosen)} cases, {bad} of them off by more than is allowed, {ALLOWED:g}")
    return bad > 0 or not chosen


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(__doc__)
    sys.exit(main())
