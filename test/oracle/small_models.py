"""small_models.py - gpt2 and mlp as functions of tensors with skein's names and shapes, in float64.

A model is a function of parameters and a batch; `text_batch` cuts what data.order=sequential gives a
step, counted from 1.  `keep`, a dict, gets the input and the result of every product with a weight.
"""
import math

import torch
import torch.nn.functional as F

import skein_run


def text_batch(step):
    with open(skein_run.TEXT, "rb") as f:
        data = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).long()
    n, batch, seq = (len(data) - 1) // skein_run.SEQ, skein_run.BATCH, skein_run.SEQ
    first = [((step - 1) * batch + i) % n * seq for i in range(batch)]
    return torch.stack([data[a:a + seq + 1] for a in first])


def gpt2_logits(p, tokens, keep=None, eps=1e-5):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], p[name + ".w"], p[name + ".b"], eps)

    def linear(dims, x, name):
        y = torch.einsum(dims, x, p[name + ".w"])
        if keep is not None:
            keep[name + ".w"] = x, y
        return y + p[name + ".b"]

    t = tokens.shape[1]
    x, future = p["wte"][tokens] + p["wpe"][:t], torch.ones(t, t, dtype=torch.bool).triu(1)
    for i in range(sum(n.endswith(".fc.w") for n in p)):
        h = f"h.{i}."
        q, k, v = linear("btc,chsd->bthsd", norm(x, h + "ln1"), h + "qkv").unbind(3)
        a = torch.einsum("bthd,bThd->bhtT", q, k) / math.sqrt(q.shape[3])
        y = torch.einsum("bhtT,bThd->bthd", a.masked_fill(future, -math.inf).softmax(-1), v)
        x = x + linear("bthrd,chrd->btc", y.unsqueeze(3), h + "proj")
        y = F.gelu(linear("btc,cf->btf", norm(x, h + "ln2"), h + "fc"), approximate="tanh")
        x = x + linear("btf,fc->btc", y, h + "out")
    return norm(x, "ln_f") @ p["wte"].t()


def gpt2(p, rows, keep=None):
    """The loss of each sample: the sum over its tokens; and how many tokens there are."""
    logits = gpt2_logits(p, rows[:, :-1], keep)
    each = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
    return each.reshape(rows.shape[0], -1).sum(1), each.numel()


def mlp_logits(p, pixels, keep=None):
    x, n = pixels, sum(name.endswith(".w") for name in p)
    for i in range(n):
        y = x @ p[f"layers.{i}.w"]
        if keep is not None:
            keep[f"layers.{i}.w"] = x, y
        y = y + p[f"layers.{i}.b"]
        x = F.gelu(y, approximate="tanh") if i < n - 1 else y
    return x


def mlp(p, batch, keep=None):
    pixels, labels = batch
    return F.cross_entropy(mlp_logits(p, pixels, keep), labels, reduction="none"), len(labels)


def gradient(model, p, batch):
    """Of the mean loss."""
    leaves = {n: x.clone().requires_grad_() for n, x in p.items()}
    losses, n = model(leaves, batch)
    return dict(zip(leaves, torch.autograd.grad(losses.sum() / n, list(leaves.values()))))
