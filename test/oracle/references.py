"""references.py - optimizers that PyTorch does not have, in float64, from their papers.

Each is a function of a Slot: one parameter `w` with its gradient `g` of step `t` (from 1 on), the
numbers `k` of the optimizer by the names of skein's keys, and `s`, a dict for whatever is kept.
"""
import math

import torch


class Slot:
    def __init__(self, name, w, k, decays):
        self.name, self.w, self.k, self.decays = name, w.clone(), k, decays
        self.s, self.t, self.g, self.facts = {}, 0, None, None

    def old(self, name, like=None):
        return self.s.get(name, torch.zeros_like(self.w if like is None else like))

    def moving(self, name, x, beta):
        """Exponential moving average, as it is; it begins at 0."""
        self.s[name] = beta * self.old(name, x) + (1 - beta) * x
        return self.s[name]

    def debiased(self, name, x, beta):
        return self.moving(name, x, beta) / (1 - beta ** self.t)

    @property
    def decay(self):
        return self.k["weight_decay"] if self.decays else 0

    def shrink(self):
        """Decoupled weight decay."""
        self.w = self.w * (1 - self.k["lr"] * self.decay)


def adam(x, g, eps):
    b1, b2 = x.k["betas"]
    m, v = x.debiased("m", g, b1), x.debiased("v", g * g, b2)
    return m / (v.sqrt() + eps)


def lamb(x):
    """You et al. 2020, algorithm 2, phi the identity."""
    r = adam(x, x.g, x.k["eps"]) + x.decay * x.w
    a, b = x.w.norm(), r.norm()
    x.w = x.w - x.k["lr"] * (a / b if a > 0 and b > 0 else 1) * r


def onebit_adam(x):
    """Tang et al. 2021, algorithm 1, on one rank: nothing is encoded; both moments debiased."""
    k, (b1, b2) = x.k, x.k["betas"]
    m = x.debiased("m", x.g, b1)
    if x.t <= k["freeze_step"]:
        x.moving("v", x.g * x.g, b2)
    v = x.s["v"] / (1 - b2 ** min(x.t, k["freeze_step"]))
    x.shrink()
    x.w = x.w - k["lr"] * m / (v.sqrt() + k["eps"])


def onebit_lamb(x):
    """Li et al. 2021, algorithm 1, on one rank: nothing is encoded; both moments debiased."""
    k, (b1, b2), first = x.k, x.k["betas"], x.k["freeze_step"]
    m, fresh = x.debiased("m", x.g, b1), x.debiased("fresh", x.g * x.g, b2)
    if x.t <= first:
        x.s["v"] = x.s["fresh"]
    root = (x.s["v"] / (1 - b2 ** min(x.t, first))).sqrt() + k["eps"]
    plain = m / root
    r = plain + x.decay * x.w
    if x.t <= first:
        a, b = x.w.norm(), r.norm()
        now = min(max(a / b, k["min_coeff"]), k["max_coeff"]) if a > 0 and b > 0 else 1
        x.s["coeff"] = k["coeff_beta"] * x.s.get("coeff", 0) + (1 - k["coeff_beta"]) * now
    else:
        part = min(1, plain.norm() / r.norm()) if r.norm() > 0 else 1
        factor = (root / (fresh.sqrt() + k["eps"])).max() * part + 1 - part
        last, far = x.s.get("factor", 1), k["factor_threshold"]
        factor = min(max(factor, k["factor_min"]), k["factor_max"])
        x.s["factor"] = min(max(factor, last * (1 - far)), last * (1 + far))
        now = x.s["coeff"] * x.s["factor"]
    x.w = x.w - k["lr"] * now * r


def zeroone_kind(t, k):
    """The authors' counters: is the second moment updated in step t, and do ranks send in it?"""
    freeze, every, count = k["var_freeze_step"], 1, 0
    for s in range(1, min(t, freeze) + 1):
        if s % every == 0:
            if s == t:
                return "dense"
            count += 1
            if count == k["var_update_scaler"]:
                count, every = 0, 2 * every
    every, count = 1, 0
    for s in range(freeze + 1, t):
        count += 1
        if count == k["local_step_scaler"]:
            count, every = 0, min(2 * every, k["local_step_clipper"])
    return "local" if t % every else "sent"


def zeroone_adam(x):
    """Lu et al. 2022, algorithm 1, on one rank: nothing is encoded; both moments debiased."""
    k, (b1, b2), kind = x.k, x.k["betas"], zeroone_kind(x.t, x.k)
    rate, s = k["lr"] / (1 - b1 ** x.t), x.s
    x.moving("m", x.g, b1)
    if kind == "dense":
        x.moving("v", x.g * x.g, b2)
        s["updates"] = s.get("updates", 0) + 1
    root = (s["v"] / (1 - b2 ** s["updates"])).sqrt() + k["eps"]
    s["u"], s["rates"] = x.old("u") + rate * s["m"], s.get("rates", 0) + rate
    s["anchor"] = s.get("anchor", x.w) * (1 - k["lr"] * x.decay)
    x.w = s["anchor"] - s["u"] / root
    if kind != "local":
        s["m"] = s["u"] / s["rates"] if kind == "sent" else s["m"]
        s["anchor"], s["u"], s["rates"] = x.w, torch.zeros_like(x.w), 0


def lars(x):
    """You, Gitman, Ginsburg 2017, algorithm 1; vectors take SGD, as in the authors' code."""
    k, g, local = x.k, x.g, 1
    if x.decays and x.w.norm() > 0 and g.norm() > 0:
        local = k["trust"] * x.w.norm() / (g.norm() + x.decay * x.w.norm() + k["eps"])
    x.s["v"] = k["momentum"] * x.old("v") + k["lr"] * local * (g + x.decay * x.w)
    x.w = x.w - x.s["v"]


def lion(x):
    """Chen et al. 2023, program 1.  `unsure`: elements whose sign hangs on a rounding."""
    b1, b2 = x.k["betas"]
    m = x.old("m")
    c = b1 * m + (1 - b1) * x.g
    unsure = (c.abs() <= 1e-6 * (b1 * m.abs() + (1 - b1) * x.g.abs())) & (c != 0)
    x.s["unsure"] = x.s.get("unsure", False) | unsure
    x.shrink()
    x.w = x.w - x.k["lr"] * c.sign()
    x.moving("m", x.g, b2)


def novograd(x):
    """Ginsburg et al. 2019, algorithm 1; one second moment for a tensor."""
    (b1, b2), n2 = x.k["betas"], x.g.square().sum()
    x.s["v"] = n2 if x.t == 1 else b2 * x.s["v"] + (1 - b2) * n2
    x.s["m"] = b1 * x.old("m") + x.g / (x.s["v"].sqrt() + x.k["eps"]) + x.decay * x.w
    x.w = x.w - x.k["lr"] * x.s["m"]


def mars(x):
    """Yuan et al. 2025: MARS-AdamW with the last gradient as it was; AdamW for vectors."""
    b1 = x.k["betas"][0]
    c = x.g
    if x.decays:
        c = x.g + x.k["gamma"] * b1 / (1 - b1) * (x.g - x.old("last"))
        c = c / c.norm().clamp(min=1)
    x.s["last"] = x.g
    step = adam(x, c, x.k["eps"])
    x.shrink()
    x.w = x.w - x.k["lr"] * step


def ademamix(x):
    """Pagliardini, Ablin, Grangier 2024; the half-life of the slow average rises evenly."""
    (b1, b2), k, over = x.k["betas"], x.k, x.k["mix_warmup"]
    at = min(1, x.t / over) if over else 1

    def half_life(b):
        return math.log(0.5) / math.log(b)
    b3 = 0.5 ** (1 / ((1 - at) * half_life(b1) + at * half_life(k["beta3"])))
    slow = x.moving("slow", x.g, b3)
    m, v = x.debiased("m", x.g, b1), x.debiased("v", x.g ** 2, b2)
    step = (m + at * k["alpha"] * slow) / (v.sqrt() + k["eps"])
    x.shrink()
    x.w = x.w - k["lr"] * step


def schedulefree(x):
    """Defazio et al. 2024, algorithm 1, with a warmup; w is y, gradients are taken there."""
    (b1, b2), k = x.k["betas"], x.k
    z, mean = x.s.get("z", x.w), x.s.get("x", x.w)
    rate = k["lr"] * min(1, x.t / k["warmup"])
    x.s["sum"] = x.s.get("sum", 0) + rate ** 2
    c = rate ** 2 / x.s["sum"]
    v = x.debiased("v", x.g ** 2, b2)
    z = z - rate * (x.g / (v.sqrt() + k["eps"]) + x.decay * x.w)
    mean = (1 - c) * mean + c * z
    x.s["z"], x.s["x"] = z, mean
    x.w = (1 - b1) * z + b1 * mean


def adafactor(x, factored):
    """Shazeer, Stern 2018, as torch.optim.Adafactor's documentation has it."""
    k, (e1, e2) = x.k, (x.k["eps1"], x.k["eps2"])
    part, g, w = x.t ** -k["decay_rate"], x.g, x.w
    if factored:
        r = x.moving("r", g.square().mean(1, keepdim=True), 1 - part)
        c = x.moving("c", g.square().mean(0, keepdim=True), 1 - part)
        v = r @ c / r.mean().clamp(min=e1)
    else:
        v = x.moving("v", g * g, 1 - part)
    u = g / v.clamp(min=e1 * e1).sqrt()
    u = u / max(1, u.square().mean().sqrt().item() / k["clip_rms"])
    alpha = max(e2, w.square().mean().sqrt().item()) * min(k["lr"], x.t ** -0.5)
    x.shrink()
    x.w = x.w - alpha * u


def newton_schulz(u, steps):
    """Jordan et al. 2024, on singular values: each becomes an odd polynomial of itself."""
    a, b, c = 3.4445, -4.7750, 2.0315
    left, s, right = torch.linalg.svd(u / u.norm().clamp(min=1e-7), full_matrices=False)
    for _ in range(steps):
        s = a * s + b * s ** 3 + c * s ** 5
    return left @ torch.diag(s) @ right


def muon(x):
    """w has a row for each output.  match_rms: Liu et al. 2025; without, Jordan's scale."""
    k, (out, into) = x.k, x.w.shape
    x.s["m"] = k["momentum"] * x.old("m") + x.g
    u = x.g + k["momentum"] * x.s["m"] if k["nesterov"] else x.s["m"]
    match = k["match_rms"]
    scale = match * math.sqrt(max(out, into)) if match else math.sqrt(max(1, out / into))
    x.shrink()
    x.w = x.w - k["lr"] * scale * newton_schulz(u, k["ns_steps"])


def inverse_root(a, p, damping):
    """(A + d I)^(-1/p), d relative to the largest eigenvalue."""
    e, q = torch.linalg.eigh(a)
    return q @ torch.diag((e.clamp(min=0) + damping * e.max()) ** (-1 / p)) @ q.t()


def inverse(a, damping):
    """(A + d I)^-1, d relative to the mean eigenvalue."""
    n = a.shape[0]
    return torch.linalg.inv(a + damping * a.trace() / n * torch.eye(n, dtype=a.dtype))


def due(x):
    return (x.t - 1) % x.k["interval"] == 0


def step_of_rms(x, u):
    """A step scaled to the root mean square of one of AdamW (Liu et al. 2025)."""
    if x.k["match_rms"]:
        u = u * (x.k["match_rms"] / u.square().mean().sqrt())
    x.shrink()
    x.w = x.w - x.k["lr"] * u


def shampoo(x):
    """Gupta, Koren, Singer 2018 with averages (Anil et al. 2020); sides up to max_dim."""
    (b1, b2), k, g = x.k["betas"], x.k, x.g
    u = x.debiased("m", g, b1)
    for side, gram in enumerate((g @ g.t(), g.t() @ g)):
        if gram.shape[0] > k["max_dim"]:
            continue
        mean = x.debiased(f"gram{side}", gram, b2)
        if due(x):
            x.s[f"root{side}"] = inverse_root(mean, 4, k["damping"])
        u = u @ x.s["root1"] if side else x.s["root0"] @ u
    step_of_rms(x, u)


def kfac(x):
    """Martens, Grosse 2015; Osawa et al. 2019.  Factors are those that the backward pass told."""
    (b1, b2), k = x.k["betas"], x.k
    u = x.debiased("m", x.g, b1)
    for side, factor in enumerate(x.facts):
        mean = x.debiased(f"factor{side}", factor, b2)
        if due(x):
            x.s[f"inverse{side}"] = inverse(mean, k["damping"])
        u = u @ x.s["inverse1"] if side else x.s["inverse0"] @ u
    step_of_rms(x, u)


def soap(x):
    """Vyas et al. 2024, in the bases that the run made (facts: before this step, and behind it).
    The first update makes bases only.  Where a factor has no full rank its eigenvectors are not
    the only ones, so the run's are taken, if they are orthonormal and diagonalize the factor."""
    (b1, b2), k, g, (p, q) = x.k["betas"], x.k, x.g, x.facts[0]
    if x.t > 1:
        first, turned = x.t - 1, p.t() @ g @ q
        m, v = x.moving("m", g, b1), x.moving("v", turned ** 2, b2)
        m, v = m / (1 - b1 ** first), v / (1 - b2 ** first)
        u = p @ (p.t() @ m @ q / (v.sqrt() + k["eps"])) @ q.t()
        x.shrink()
        x.w = x.w - k["lr"] * u
    else:
        x.shrink()
    for side, gram in enumerate((g @ g.t(), g.t() @ g)):
        mean, basis = x.moving(f"gram{side}", gram, b2), x.facts[1][side]
        if due(x):
            inside = basis.t() @ mean @ basis
            turned = (inside - torch.diag(inside.diagonal())).abs().max() / inside.abs().max()
            square = (basis.t() @ basis - torch.eye(len(basis), dtype=mean.dtype)).abs().max()
            x.s["basis"] = max(x.s.get("basis", 0), turned.item(), square.item())


def dynamic_map(signed):
    """Dettmers et al. 2022: means of neighbours among 2^i + 1 numbers from 0.1 to 1, by decade."""
    out = [0.0, 1.0]
    for i in range(7):
        edges = torch.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1, dtype=torch.float64)
        out += (10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2).tolist()
    out += [-y for y in out if signed and 0 < y < 1]
    return torch.tensor(sorted(out), dtype=torch.float64)


def from_bytes(exact, kept, signed):
    """How far numbers in blocks of 256 are from the nearest of the map, in halves of the distance
    of its neighbours (1: as far as rounding goes); of small tensors, which stay f32: 1 + off."""
    if exact.numel() < 4096:
        return 1 + ((exact - kept).abs().max() / exact.abs().max().clamp(min=1e-30)).item()
    numbers = dynamic_map(signed)
    rows, codes = exact.reshape(-1, 256), kept.reshape(-1, 256)
    top = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    live = (top.abs() > 1e-35).squeeze(1)  # others are 0
    rows, codes = rows[live] / top[live], codes[live] / top[live]
    k = torch.searchsorted((numbers[1:] + numbers[:-1]) / 2, codes)
    if not torch.allclose(numbers[k], codes, rtol=1e-5, atol=1e-12):
        return float("inf")  # not a number of the map
    up, down = numbers[(k + 1).clamp(max=len(numbers) - 1)], numbers[(k - 1).clamp(min=0)]
    gap = torch.where(rows > codes, up - numbers[k], numbers[k] - down)
    far = torch.where(rows == codes, 0, (rows - codes).abs() / (gap / 2))
    counts = ((rows.abs() - 1).abs() > 1e-6) & (rows >= numbers[0])
    if not signed:  # what is over 0 does not become 0, but the smallest number
        counts &= (codes > numbers[1] * 1.001) | (rows > codes)
    return far[counts].max().item()


def adam8bit(x):
    """Adam on the moments that the run had before this step (facts), which are rounded; those
    that it has behind the step are the nearest of the map."""
    (b1, b2), k, ((m, v), after) = x.k["betas"], x.k, x.facts
    m, v = b1 * m + (1 - b1) * x.g, b2 * v + (1 - b2) * x.g ** 2
    step = m / (1 - b1 ** x.t) / ((v / (1 - b2 ** x.t)).sqrt() + k["eps"])
    x.shrink()
    x.w = x.w - k["lr"] * step
    far = max(from_bytes(m, after[0], True), from_bytes(v, after[1], False))
    x.s["rounding"] = max(x.s.get("rounding", 0), far)
