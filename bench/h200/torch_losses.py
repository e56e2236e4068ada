#!/usr/bin/env python3
"""torch_losses.py - skein's losses on a GPU against PyTorch: the same weights, the same windows.

    torch_losses.py tokens FILE OUT.bin [--words N]     a text as raw uint16 ids; FILE -: one that is made up
    torch_losses.py train DIR TOKENS.bin --dtype bf16|f32 [--out FILE] [--against METRICS --limit X]
    torch_losses.py compare A B --limit X

DIR is a Hugging Face directory of a GPT-2 or a Llama in f32, as `skein export` writes it, and as
`skein train` leaves it in RUN/final.  Window k of the ids holds [k*seq, k*seq + seq], and step s
takes the windows s*batch ... s*batch + batch - 1, wrapping: data.order=sequential with
data.val_fraction=0.  AdamW with decay on tensors of two or more dims, clipping by the norm of all
gradients, a constant rate behind a linear warmup: optim.schedule=constant.

--dtype f32    everything in f32, products without TF32, attention written out.
--dtype bf16   as train.dtype=bf16 means it: masters in f32; a copy of them in bf16 is what the
               step computes with; every result and every gradient is rounded to bf16, sums within
               a product, a norm, attention or the loss are f32; logits are bf16, the loss of them
               is f32.  Gradients become f32 behind the step, for the norm and for AdamW, which
               changes the masters.  Attention is PyTorch's fused one.  Where skein does more in
               one kernel than PyTorch (bias with GELU, bias with the residual) it rounds less often.

Prints "step loss grad_norm" lines, or with --against a table of both losses and their relative
difference; exit code 1 if the largest is above the limit (usual: 1e-2 for bf16, 1e-4 for f32).
"""
import argparse
import json
import math
import os
import struct
import sys

import numpy as np

LIMITS = {"bf16": 1e-2, "f32": 1e-4}
torch = F = None  # imported only to train


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="what", required=True)
    t = sub.add_parser("tokens")
    t.add_argument("file")
    t.add_argument("out")
    t.add_argument("--words", type=int, default=256)
    t = sub.add_parser("train")
    t.add_argument("dir")
    t.add_argument("tokens")
    t.add_argument("--dtype", choices=LIMITS, required=True)
    for name, kind, usual in (("steps", int, 50), ("batch", int, 4), ("seq", int, 1024),
                              ("micro", int, 0), ("lr", float, 3e-4), ("beta1", float, 0.9),
                              ("beta2", float, 0.95), ("eps", float, 1e-8), ("decay", float, 0.1),
                              ("clip", float, 1.0), ("warmup", int, 10)):
        t.add_argument("--" + name, type=kind, default=usual)
    t.add_argument("--device", default="")
    t.add_argument("--hf", action="store_true",
                   help="first hold the loss of step 1 against the class of transformers")
    t.add_argument("--out", default="")
    t.add_argument("--against", default="", help="skein's metrics.jsonl")
    t.add_argument("--limit", type=float, default=0)
    t = sub.add_parser("compare")
    t.add_argument("a")
    t.add_argument("b")
    t.add_argument("--limit", type=float, required=True)
    return p.parse_args()


# ---- files

def made_up(n):
    """A chain of 64 letters, each about as frequent as the others, that hangs on the letter before.
    Real text has rare letters: a batch with the first of them costs 7 nats instead of 3, in f32,
    and in bf16 a sixth more or less, so that two runs in bf16 are 4 % apart there, right as both
    are (the sources of skein at a rate of 3e-4, step 24, on an H200)."""
    step, at, out = np.random.default_rng(1).geometric(0.35, n), 0, np.empty(n, "u1")
    for i in range(n):
        at = (5 * at + int(step[i])) % 64
        out[i] = 48 + at
    return out


def make_tokens(text, out, words):
    """Bytes, spread over all of the vocabulary: so the high rows of the embedding are used too."""
    if text == "-":
        data = made_up(1 << 18)
    else:
        with open(text, "rb") as f:
            data = np.frombuffer(f.read(), "u1")
    if not 256 <= words <= 65536:
        sys.exit(f"torch_losses: --words {words}: 256 to 65536 are needed")
    (data.astype("<u2") * (words // 256)).tofile(out)
    return 0


def read_safetensors(path):
    """{name: f32 array}, mapped"""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        if t["dtype"] != "F32":
            sys.exit(f"torch_losses: {path}: {name} is {t['dtype']}, F32 is needed")
        count = (t["data_offsets"][1] - t["data_offsets"][0]) // 4
        flat = np.memmap(path, "<f4", "c", 8 + n + t["data_offsets"][0], (count,))
        out[name] = flat.reshape(t["shape"])
    return out


def read_losses(path):
    """{step: (loss, grad_norm)}, from a metrics.jsonl or from what this prints"""
    out = {}
    with open(path) as f:
        for line in f:
            if line.startswith("{"):
                d = json.loads(line)
                if "loss" in d and "step" in d:  # null: not finite
                    norm = d.get("grad_norm")
                    out[d["step"]] = (math.nan if d["loss"] is None else d["loss"],
                                      math.nan if norm is None else norm)
            elif line.strip():
                step, loss, norm = line.split()[:3]
                out[int(step)] = float(loss), float(norm)
    return out


# ---- the two models, as functions of a dict of tensors

def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def causal(q, k, v):
    """q, k, v are [b, heads, t, d]; in f32 the textbook form, so that no fused kernel rounds."""
    if q.dtype == torch.float32:
        t = q.shape[2]
        att = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
        mask = torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1)
        y = torch.softmax(att.masked_fill(mask, -math.inf), -1) @ v
    else:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


def gpt2(c, p, tokens):
    w, eps, t = c["n_embd"], c["layer_norm_epsilon"], tokens.shape[1]

    def norm(x, name):
        return F.layer_norm(x, (w,), p[name + ".weight"], p[name + ".bias"], eps)

    def linear(x, name):
        return F.linear(x, p[name + ".weight"].t(), p[name + ".bias"])

    wte = p["transformer.wte.weight"]
    x = F.embedding(tokens, wte) + p["transformer.wpe.weight"][:t]
    for i in range(c["n_layer"]):
        h = f"transformer.h.{i}."
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(w, 2)
        y = causal(*(split_heads(z, c["n_head"]) for z in (q, k, v)))
        x = x + linear(y, h + "attn.c_proj")
        y = F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + linear(y, h + "mlp.c_proj")
    head = wte if c.get("tie_word_embeddings", True) else p["lm_head.weight"]
    return F.linear(norm(x, "transformer.ln_f"), head)


def rotate(x, theta):
    """Rotary positions as Hugging Face has them: number j pairs with number j + d/2.  Turned in
    f32, rounded once."""
    t, d = x.shape[2], x.shape[3]
    rate = theta ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)
    angle = torch.outer(torch.arange(t, dtype=torch.float64, device=x.device), rate)
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = x[..., : d // 2].float(), x[..., d // 2:].float()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def llama(c, p, tokens):
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    theta = c.get("rope_theta") or c["rope_parameters"]["rope_theta"]

    def norm(x, name):
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"])
        return (wide * scale * p[name + ".weight"].float()).to(x.dtype)

    def linear(x, name):
        return F.linear(x, p[name + ".weight"])

    embed = p["model.embed_tokens.weight"]
    x = F.embedding(tokens, embed)
    for i in range(c["num_hidden_layers"]):
        h = f"model.layers.{i}."
        y = norm(x, h + "input_layernorm")
        q = rotate(split_heads(linear(y, h + "self_attn.q_proj"), heads), theta)
        k = rotate(split_heads(linear(y, h + "self_attn.k_proj"), kv_heads), theta)
        v = split_heads(linear(y, h + "self_attn.v_proj"), kv_heads)
        k, v = (z.repeat_interleave(heads // kv_heads, 1) for z in (k, v))
        x = x + linear(causal(q, k, v), h + "self_attn.o_proj")
        y = norm(x, h + "post_attention_layernorm")
        y = F.silu(linear(y, h + "mlp.gate_proj")) * linear(y, h + "mlp.up_proj")
        x = x + linear(y, h + "mlp.down_proj")
    return F.linear(norm(x, "model.norm"),
                    embed if c["tie_word_embeddings"] else p["lm_head.weight"])


MODELS = {"gpt2": gpt2, "llama": llama}


# ---- training

class Trainer:
    def __init__(self, a):
        self.a = a
        self.device = a.device or ("cuda" if torch.cuda.is_available() else "cpu")
        torch.set_float32_matmul_precision("highest")  # no TF32
        with open(os.path.join(a.dir, "config.json")) as f:
            self.config = json.load(f)
        self.model = MODELS[self.config["model_type"]]
        weights = read_safetensors(os.path.join(a.dir, "model.safetensors"))
        self.master = {n: torch.from_numpy(np.array(x)).to(self.device) for n, x in weights.items()}
        narrow = a.dtype == "bf16"
        self.own = {n: x.bfloat16() for n, x in self.master.items()} if narrow else self.master
        for x in self.own.values():
            x.requires_grad_(True)
        groups = [dict(params=[x for x in self.master.values() if x.dim() > 1],
                       weight_decay=a.decay),
                  dict(params=[x for x in self.master.values() if x.dim() == 1], weight_decay=0.0)]
        self.adam = torch.optim.AdamW(groups, lr=a.lr, betas=(a.beta1, a.beta2), eps=a.eps)
        data = np.fromfile(a.tokens, "<u2").astype("i8")
        self.data, self.windows = torch.from_numpy(data), (len(data) - 1) // a.seq
        if self.windows < 1:
            sys.exit(f"torch_losses: {a.tokens} has {len(data)} ids, {a.seq + 1} are needed")

    def rows(self, step):
        a = self.a
        first = [(step * a.batch + i) % self.windows * a.seq for i in range(a.batch)]
        return torch.stack([self.data[k:k + a.seq + 1] for k in first]).to(self.device)

    def loss(self, rows):
        """Sum over tokens."""
        logits = self.model(self.config, self.own, rows[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten(),
                               reduction="sum")

    def gradients(self, rows):
        """The mean loss; gradients of it, in f32, with the masters."""
        total, n = 0.0, rows.shape[0] * (rows.shape[1] - 1)
        for part in rows.split(self.a.micro or rows.shape[0]):
            loss = self.loss(part) / n
            loss.backward()
            total += loss.item()
        for name, x in self.own.items():
            if x is not self.master[name]:
                self.master[name].grad = x.grad.float()
                x.grad = None
        return total

    def clip(self):
        """By hand: torch.nn.utils.clip_grad_norm_ adds in f32."""
        grads = [x.grad for x in self.master.values()]
        length = math.sqrt(sum(g.double().square().sum().item() for g in grads))
        if self.a.clip and length > self.a.clip:
            for g in grads:
                g.mul_(self.a.clip / (length + 1e-6))
        return length

    def step(self, step):
        a = self.a
        loss = self.gradients(self.rows(step))
        length = self.clip()
        for g in self.adam.param_groups:
            g["lr"] = a.lr * min(1, (step + 1) / a.warmup) if a.warmup else a.lr
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, x in self.own.items():
                if x is not self.master[name]:
                    x.copy_(self.master[name])
        return loss, length

    def against_hf(self):
        """Relative difference of the first loss, in f32, from transformers' own class."""
        from transformers import AutoModelForCausalLM
        net = AutoModelForCausalLM.from_pretrained(self.a.dir, dtype=torch.float32,
                                                   attn_implementation="eager").to(self.device)
        rows = self.rows(0)[:1]
        with torch.no_grad():
            logits = net(rows[:, :-1]).logits.float()
            theirs = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()
            ours = self.loss(rows).item() / (rows.shape[1] - 1)
        return theirs, ours


def train(a):
    t = Trainer(a)
    if a.hf:
        theirs, ours = t.against_hf()
        limit = LIMITS[a.dtype]
        print(f"first row: transformers {theirs:.7f}, here {ours:.7f}", flush=True)
        if not abs(theirs - ours) <= limit * theirs:
            return 1
    out = open(a.out, "w") if a.out else None
    found = {}
    for step in range(a.steps):
        found[step + 1] = t.step(step)
        line = f"{step + 1} {found[step + 1][0]:.9g} {found[step + 1][1]:.9g}"
        if not a.against:
            print(line, flush=True)
        if out:
            print(line, file=out, flush=True)
    if out:
        out.close()
    if not a.against:
        return 0
    return compare(read_losses(a.against), found, a.limit or LIMITS[a.dtype], a.dtype)


# ---- comparing

def compare(skein, other, limit, name):
    """Prints every step of both; 1 if they are not the same steps, or a difference is too large."""
    if not other or sorted(skein) != sorted(other):
        print(f"{name}: skein has {len(skein)} steps, PyTorch {len(other)}: the same are needed")
        return 1
    print(f"| step | skein | PyTorch | difference | grad_norm | of PyTorch |\n{'|--:' * 6}|")
    worst, at = 0.0, 0
    for step in sorted(other):
        (x, xn), (y, yn) = skein[step], other[step]
        off = abs(x - y) / abs(y)
        if not off <= worst:  # a NaN shows
            worst, at = off, step
        print(f"| {step} | {x:.6f} | {y:.6f} | {off:.1e} | {xn:.5g} | {yn:.5g} |")
        if math.isnan(worst):
            break
    good = worst <= limit
    print(f"{name}: {len(other)} steps, largest relative difference {worst:.2e} (step {at}), "
          f"allowed {limit:g}: " + ("ok" if good else "WRONG"))
    return 0 if good else 1


def main():
    global torch, F
    a = arguments()
    if a.what == "tokens":
        return make_tokens(a.file, a.out, a.words)
    if a.what == "compare":
        return compare(read_losses(a.a), read_losses(a.b), a.limit, os.path.basename(a.b))
    import torch
    import torch.nn.functional as F
    return train(a)


if __name__ == "__main__":
    sys.exit(main())
