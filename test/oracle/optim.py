#!/usr/bin/python3
"""optim.py - an optimizer of skein against PyTorch's, in float64.

    parts_optim print NAME N DECAY | optim.py NAME

Reads numbers of the optimizer, weights, twenty gradients and the weights after them; exit 1 unless
PyTorch's optimizer ends at the same weights, within 1e-5 of their size.
"""
import sys

import torch

CLASSES = {
    "sgd": ("SGD", dict(momentum="momentum", decay="weight_decay")),
    "adamw": ("AdamW", dict(eps="eps", decay="weight_decay")),
    "nadam": ("NAdam", dict(eps="eps", decay="weight_decay", momentum_decay="momentum_decay")),
    "adagrad": ("Adagrad", dict(eps="eps", decay="weight_decay")),
    "rmsprop": ("RMSprop", dict(rho="alpha", eps="eps", momentum="momentum", decay="weight_decay")),
    "adamax": ("Adamax", dict(eps="eps", decay="weight_decay")),
    "radam": ("RAdam", dict(eps="eps", decay="weight_decay")),
}


def read(lines):
    numbers, rows = {}, []
    for line in lines:
        name, *values = line.split()
        if name in "wg":
            rows.append([float(v) for v in values])
        else:
            numbers[name] = float(values[0])
    return numbers, torch.tensor(rows, dtype=torch.float64)


def make(name, numbers, w):
    """Every number that was printed must have a place, else the two would be different things."""
    cls, names = CLASSES[name]
    words = {to: numbers.pop(of) for of, to in names.items()}
    words["lr"] = numbers.pop("lr")
    if "beta1" in numbers:
        words["betas"] = (numbers.pop("beta1"), numbers.pop("beta2"))
    assert not numbers, numbers
    if name == "nadam":  # of 1.13, the other form multiplies mu(t) into the product of t + 1 twice
        words["foreach"] = True
    return getattr(torch.optim, cls)([w], **words)


def main(name):
    numbers, rows = read(sys.stdin)
    w = rows[0].clone().requires_grad_()
    optim = make(name, numbers, w)
    for g in rows[1:-1]:
        w.grad = g.clone()
        optim.step()
    off = ((w.detach() - rows[-1]).abs().max() / rows[-1].square().mean().sqrt()).item()
    moved = ((w.detach() - rows[0]).abs().max()).item()
    good = off <= 1e-5 and moved > 1e-2 and len(rows) == 22
    print(f"{name:8} {len(rows) - 2} steps of {len(w)} elements, decay "
          f"{optim.param_groups[0]['weight_decay']:.2g}: off by {off:.1e}: "
          + ("ok" if good else "WRONG"))
    return 0 if good else 1


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in CLASSES:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
