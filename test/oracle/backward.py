#!/usr/bin/python3
"""backward.py - what train.backward tells, against loops of PyTorch's autograd in float64.

    backward.py [key=value ...]        SKEIN=build/release/skein

    SKEIN=carry/skein python3 test/oracle/backward.py device=cuda

A GPT-2 and a classifier train for three steps.  For each, at the weights before it, PyTorch takes
the gradient of every sample by itself, the Jacobian of the logits class by class, and the inputs
and gradients of every product.  Every tensor must agree to 1e-5 of its largest element (1e-4
where two of about one size are subtracted).  Prints a table; exit 1 if something differs.
diag_ggn_mc is drawn at random and is not here: test/program/ggn.c.
"""
import os
import shutil
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch  # noqa: E402

import skein_run  # noqa: E402
import small_models  # noqa: E402

STEPS, SIDE, CLASSES, IMAGES, BATCH = 3, 8, 5, 36, 12
ALLOWED = {"variance": 1e-4}  # the difference of two numbers of about one size


def write_images(folder):
    """Images whose classes differ in brightness of some rows, as IDX files."""
    gen = torch.Generator().manual_seed(3)
    labels = torch.randint(CLASSES, (IMAGES,), generator=gen)
    pixels = torch.randint(128, (IMAGES, SIDE, SIDE), generator=gen)
    pixels[torch.arange(IMAGES), labels] += 127
    for name, x in (("images-idx3", pixels), ("labels-idx1", labels)):
        with open(os.path.join(folder, f"train-{name}-ubyte"), "wb") as f:
            f.write(struct.pack(f">HBB{x.dim()}I", 0, 8, x.dim(), *x.shape))
            f.write(bytes(x.flatten().tolist()))
    return pixels.flatten(1).double() / 255, labels


def samples(batch, n):
    return tuple(x[n:n + 1] for x in batch) if isinstance(batch, tuple) else batch[n:n + 1]


def gradients(model, p, batch, n_samples):
    """g_n: of a sample's share of the mean loss; and W."""
    of = [small_models.gradient(model, p, samples(batch, n)) for n in range(n_samples)]
    each, total = model(p, samples(batch, 0))[1], model(p, batch)[1]
    return {name: torch.stack([g[name] for g in of]) * (each / total) for name in p}, total


def krons(model, p, batch):
    keep, leaves = {}, {n: x.clone().requires_grad_() for n, x in p.items()}
    losses, total = model(leaves, batch, keep)
    grads = torch.autograd.grad(losses.sum(), [y for _, y in keep.values()])
    for (name, (a, _)), g in zip(keep.items(), grads):
        lead = 1 if a.dim() == 2 else 2
        a, g = (x.detach().flatten(0, lead - 1).flatten(1) for x in (a, g))
        yield name + ".kron_a", a.t() @ a / total
        yield name + ".kron_g", g.t() @ g / total


def diag_ggn(p, batch):
    """By sample: the diagonal of J' H J over the number of samples."""
    out = {n: [] for n in p}
    for n in range(len(batch[1])):
        leaves = {k: x.clone().requires_grad_() for k, x in p.items()}
        logits = small_models.mlp_logits(leaves, batch[0][n:n + 1])[0]
        rows = [torch.autograd.grad(y, list(leaves.values()), retain_graph=True) for y in logits]
        prob = logits.detach().softmax(0)
        h = torch.diag(prob) - torch.outer(prob, prob)
        for i, k in enumerate(p):
            j = torch.stack([r[i] for r in rows])
            out[k].append((j * torch.tensordot(h, j, 1)).sum(0) / len(batch[1]))
    return {k: torch.stack(x) for k, x in out.items()}


def wanted(model, p, batch, n_samples):
    g, _ = gradients(model, p, batch, n_samples)
    out = dict(krons(model, p, batch))
    for n, x in g.items():
        squares, mean = x.square().sum(0), x.sum(0)
        out.update({f"{n}.grad": mean, f"{n}.gradients": x, f"{n}.second_moment": squares,
                    f"{n}.norms": x.flatten(1).square().sum(1),
                    f"{n}.variance": n_samples * squares - mean.square()})
    out["norms"] = sum(out[f"{n}.norms"] for n in g)
    if model is small_models.mlp:
        ggn = diag_ggn(p, batch)
        out.update({f"{n}.diag_ggn": x.sum(0) for n, x in ggn.items()})
        out["diag_ggn"] = sum(x.flatten(1).sum(1) for x in ggn.values())
    return out


def in_metrics(want):
    """Numbers of metrics.jsonl, as tensors of one element beside the others."""
    each = want["norms"].sqrt()
    out = {"sample_norm_mean": each.mean(), "sample_norm_max": each.max(),
           "sample_variance": sum(x.sum() for n, x in want.items() if n.endswith(".variance"))}
    if "diag_ggn" in want:
        out["ggn_trace"] = want["diag_ggn"].sum()
    return out


def compare(label, model, keys, batch_of, n_samples):
    worst, count = {}, {}
    with skein_run.Run({**keys, "train.steps": STEPS, "optim.lr": 0.01}) as run:
        for t in range(1, STEPS + 1):
            got, want = run.told(t), wanted(model, run.weights(t - 1), batch_of(t), n_samples)
            if set(got) != set(want):
                raise SystemExit(f"{label}: tensors of one side only: {sorted(set(got) ^ set(want))}")
            for n, x in in_metrics(want).items():
                want[n], got[n] = x, torch.tensor(run.metrics(n)[t - 1], dtype=x.dtype)
            for n, x in want.items():
                kind, y = n.rsplit(".", 1)[-1], got[n].reshape(x.shape)
                far = ((y - x).abs().max() / x.abs().max().clamp(min=1e-300)).item()
                worst[kind] = max(worst.get(kind, 0), far if far == far else float("inf"))
                count[kind] = count.get(kind, 0) + 1
    bad = 0
    for kind, far in worst.items():
        good = far <= ALLOWED.get(kind, 1e-5)
        bad += not good
        print(f"{label:6} {kind:16} {count[kind]:4} tensors {far:8.1e}  {'ok' if good else 'WRONG'}",
              flush=True)
    return bad


def main():
    print(f"torch {torch.__version__}, {os.path.basename(skein_run.SKEIN)} "
          f"{' '.join(skein_run.MORE)}: {STEPS} steps, largest difference over the largest element")
    kinds = "gradients, norms, second_moment, variance, kron"
    bad = compare("gpt2", small_models.gpt2, {"train.backward": kinds}, small_models.text_batch,
                  skein_run.BATCH)
    folder = skein_run.scratch()
    try:
        pixels, labels = write_images(folder)

        def batch(t):
            rows = [((t - 1) * BATCH + i) % IMAGES for i in range(BATCH)]
            return pixels[rows], labels[rows]
        keys = {"model": "mlp", "model.input_size": SIDE * SIDE, "model.hidden_size": 16,
                "model.num_hidden_layers": 2, "model.vocab_size": CLASSES, "data.train": folder,
                "train.batch": BATCH, "train.backward": kinds + ", diag_ggn"}
        bad += compare("mlp", small_models.mlp, keys, batch, BATCH)
    finally:
        shutil.rmtree(folder)
    return bad > 0


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(__doc__)
    sys.exit(main())
