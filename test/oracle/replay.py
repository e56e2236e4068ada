"""replay.py - the steps of a run of skein, taken again in float64 with its gradients."""
import contextlib
import threading

import torch

import skein_run
import small_models
from references import Slot

ALLOWED = 1e-5


# ---- holders: who updates which parameters in float64.  A view is how they see a tensor.

class Torch:
    def __init__(self, mine, cls, numbers, view, within, scheduler, clip):
        self.mine, self.cls, self.numbers, self.view = mine, cls, numbers, view
        self.within, self.scheduler, self.clip = within, scheduler, clip

    def begin(self, params):
        self.names = [n for n in params if self.mine(n)]
        self.shapes = {n: params[n].shape for n in self.names}
        self.leaves = {n: self.view_of(n, params[n]).clone() for n in self.names}
        vectors = [self.leaves[n] for n in self.names if skein_run.is_vector(n)]
        others = [self.leaves[n] for n in self.names if not skein_run.is_vector(n)]
        groups = [dict(params=others), dict(params=vectors, weight_decay=0)]
        self.optim = self.cls([g for g in groups if g["params"]], **self.numbers)
        self.plan = self.scheduler(self.optim) if self.scheduler else None

    def view_of(self, name, x):
        return self.view(x) if self.view is not rows_are_outputs else rows_are_outputs(x, name)

    def step(self, t, grads, run):
        for n in self.names:
            self.leaves[n].grad = self.view_of(n, grads[n]).clone()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(list(self.leaves.values()), self.clip)
        self.rate = self.optim.param_groups[0]["lr"]
        with self.within():
            self.optim.step()
        if self.plan:
            self.plan.step()

    def weights(self):
        return {n: back(self.view, n, x, self.shapes[n]) for n, x in self.leaves.items()}


class Slots:
    def __init__(self, mine, step, numbers, view, factors, facts):
        self.mine, self.take, self.k, self.view = mine, step, numbers, view
        self.factors, self.facts = factors, facts

    view_of = Torch.view_of

    def begin(self, params):
        self.shapes = {n: x.shape for n, x in params.items() if self.mine(n)}
        self.slots = {n: Slot(n, self.view_of(n, params[n]), self.k, not skein_run.is_vector(n))
                      for n in self.shapes}

    def state(self, run, t, name):
        """The states `facts` of a parameter; zeros before the first step."""
        if not t:
            return [torch.zeros_like(x) for x in self.state(run, 1, name)]
        own = {n.rsplit(".", 1)[1]: x for n, x in run.state(t).items()
               if n.startswith(name + ".") and n.count(".") == name.count(".") + 2}
        return [own[f] for f in self.facts]

    def step(self, t, grads, run):
        told = run.told(t) if self.factors else {}
        for n, x in self.slots.items():
            x.t, x.g = t, self.view_of(n, grads[n])
            if self.facts:
                x.facts = [self.state(run, t - 1, n), self.state(run, t, n)]
            elif n + ".kron_a" in told:
                a, g = (told[n + ".kron_" + c] for c in "ag")
                a, g = (y.reshape(int(y.numel() ** 0.5), -1) for y in (a, g))
                x.facts = (g, a) if skein_run.rows_out(n) else (a, g)
            self.take(x)

    def weights(self):
        return {n: back(self.view, n, x.w, self.shapes[n]) for n, x in self.slots.items()}


def same(x):
    return x


def rows_are_outputs(x, name):
    y = skein_run.matrix(x)
    return y if skein_run.rows_out(name) else y.t().contiguous()


def back(view, name, x, shape):
    if view is rows_are_outputs and not skein_run.rows_out(name):
        x = x.t()
    return x.detach().reshape(shape)


def by_torch(mine, cls, numbers, view=same, within=contextlib.nullcontext, scheduler=None, clip=0):
    return Torch(mine, cls, numbers, view, within, scheduler, clip)


def by_slots(mine, step, numbers, view=same, factors=False, facts=None):
    return Slots(mine, step, numbers, view, factors, facts)


ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def muon_in_double():
    """torch.optim.Muon multiplies in bf16; here its own code runs in float64."""
    with ONE_AT_A_TIME:  # cases run in threads, and the method is that of all of them
        narrow = torch.Tensor.bfloat16
        torch.Tensor.bfloat16 = lambda x: x.double().clone()
        try:
            yield
        finally:
            torch.Tensor.bfloat16 = narrow


# ---- what else is compared: functions of the run, the holders and the weights of a step

def averages(name):
    """The average that validation reads, of an optimizer that keeps it."""
    def see(run, holders, t):
        state = run.state(t)
        return max(skein_run.off(state[f"{n}.{name}"], x.s["x"])
                   for n, x in holders[0].slots.items()), ""
    return see


def bases(run, holders, t):
    worst = max(x.s["basis"] for x in holders[0].slots.values())
    note = f"; bases of the run, diagonal and orthonormal to {worst:.1e}"
    return (0 if worst <= 1e-5 else worst), note if t == skein_run.STEPS else ""


def rounding(run, holders, t):
    """1: state is rounded to the nearest number of the map, as far as that can be."""
    worst = max(x.s["rounding"] for x in holders[0].slots.values())
    note = f"; moments within {worst:.4f} of half a step of the map"
    return (0 if worst <= 1.001 else worst), note if t == skein_run.STEPS else ""


def gradients_of_model(radius):
    """SAM's: at the weights of the run, moved along the gradient there (Foret et al. 2021)."""
    def of(run, t):
        w, batch = run.weights(t - 1), small_models.text_batch(t)
        g = small_models.gradient(small_models.gpt2, w, batch)
        length = sum(x.square().sum() for x in g.values()).sqrt()
        w = {n: x + radius / length * g[n] for n, x in w.items()}
        return small_models.gradient(small_models.gpt2, w, batch)
    return of


def unsure_apart(holders, n, got, want):
    """Elements of Lion whose sign was within a rounding of 0 may have gone either way."""
    for h in holders:
        x = getattr(h, "slots", {}).get(n)
        if x is not None and "unsure" in x.s:
            got = torch.where(x.s["unsure"], want, got)
    return got


class Narrow:
    """A run whose tensors are read in float32."""

    def __init__(self, run):
        self.run = run

    def told(self, t):
        return narrow(self.run.told(t))

    def state(self, t):
        return narrow(self.run.state(t))


def narrow(x):
    return {n: y.float() for n, y in x.items()}


def step_all(holders, t, grads, run):
    want = {}
    for h in holders:
        h.step(t, grads, run)
        want.update(h.weights())
    return want


def furthest(holders, got, want):
    """The tensor that is furthest off, and how far."""
    far = {n: skein_run.off(unsure_apart(holders, n, x, want[n]), want[n]) for n, x in got.items()}
    n = max(far, key=far.get)
    return far[n], n


def replay(name, given, holders, more=None):
    """The largest difference, what is allowed, how far tensors went (median), and a note.  With
    `narrow` in more, holders that do the same in float32: where roundings are divided by small
    numbers, skein may be as far off as PyTorch in float32, twice at most."""
    more, worst, rough, note = more or {}, 0, 0, ""
    keys = {"optim.name": name, **{f"optim.{k}": v for k, v in given.items()},
            **more.get("keys", {})}
    with skein_run.Run(keys) as run:
        first = run.weights(0)
        for h in holders:
            h.begin(first)
        for h in more.get("narrow", []):
            h.begin(narrow(first))
        for t in range(1, skein_run.STEPS + 1):
            grads = more["gradients"](run, t) if "gradients" in more else run.gradients(t)
            want, got = step_all(holders, t, grads, run), run.weights(t)
            assert set(got) == set(want) == set(first), "some parameter has no reference"
            far, n = furthest(holders, got, want)
            if far > ALLOWED and worst <= ALLOWED:
                note = f"; '{n}' at step {t}: {far:.1e}"
            worst = max(worst, far)
            if "narrow" in more:
                other = step_all(more["narrow"], t, narrow(grads), Narrow(run))
                rough = max(rough, furthest([], {n: x.double() for n, x in other.items()}, want)[0])
            if "also" in more:
                far, said = more["also"](run, holders, t)
                worst, note = max(worst, far), note + said
    if "narrow" in more:
        note = f"; PyTorch in float32: {rough:.1e}" + note
    n_unsure = sum(int(x.s["unsure"].sum()) for h in holders
                   for x in getattr(h, "slots", {}).values() if "unsure" in x.s)
    way = sorted(((got[n] - first[n]).norm() / got[n].norm()).item() for n in got)
    note += f"; {n_unsure} signs unsure" if n_unsure else ""
    return worst, max(ALLOWED, 2 * rough), way[len(way) // 2], note
