#!/usr/bin/env python3
"""torch_peer.py --model gpt2|gpt2-xl|llama-1b [--compile|--eager] [--steps N] [--warm N]

A training step on one GPU in PyTorch, as a careful user would write it: bf16 matrix products, one
product for q, k and v (and one for gate and up), scaled_dot_product_attention on cuDNN or flash
kernels, the loss inside the compiled function, fused AdamW, gradients dropped instead of zeroed,
nothing read back between steps.  Written against PyTorch 2.11.

    --weights autocast   weights in f32, products in bf16 under torch.autocast: what most people do
    --weights bf16       weights, results and gradients in bf16; AdamW on f32 masters, copied back
    --attention NAME     cudnn, flash, or best: cudnn where it works, else flash
    --tokens FILE        raw uint16 ids (nanoGPT) or an llm.c file, windows one after the other;
                         without it, random ids

Prints one line of JSON: model, mode, median ms of a step (CUDA events, steps after --warm),
tokens/s, peak GiB as PyTorch counts them, seconds from the start of this process (or from
START in the environment) to the end of the first step, and the losses.  tiny and llama-tiny with
--device cpu try the script itself.
"""
import argparse
import json
import math
import os
import statistics
import struct
import sys
import time

# layers, heads, width, hidden, words, batch, seq
MODELS = {
    "gpt2": ("gpt2", 12, 12, 768, 3072, 50304, 64, 1024),
    "gpt2-xl": ("gpt2", 48, 25, 1600, 6400, 50304, 16, 1024),
    "llama-1b": ("llama", 16, 16, 2048, 5632, 32768, 16, 2048),
    "tiny": ("gpt2", 2, 2, 64, 256, 512, 2, 32),  # to try the script itself
    "llama-tiny": ("llama", 2, 2, 64, 176, 512, 2, 32),
}


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=MODELS, required=True)
    p.add_argument("--compile", dest="mode", action="store_const", const="compile")
    p.add_argument("--eager", dest="mode", action="store_const", const="eager")
    p.set_defaults(mode="eager")
    p.add_argument("--steps", type=int, default=20, help="timed steps")
    p.add_argument("--warm", type=int, default=5, help="steps before them, the first included")
    p.add_argument("--batch", type=int, default=0, help="0: the model's own")
    p.add_argument("--seq", type=int, default=0)
    p.add_argument("--weights", choices=["autocast", "bf16"], default="autocast")
    p.add_argument("--attention", choices=["best", "cudnn", "flash", "any"], default="best")
    p.add_argument("--tune", default="", help="mode= of torch.compile, such as max-autotune")
    p.add_argument("--clip", type=float, default=0.0, help="largest norm of the gradient; 0: any")
    p.add_argument("--tokens", default="")
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    if a.warm < 1 or a.steps < 1:
        p.error("--warm and --steps must be 1 or more")
    return a


# START: seconds since the epoch, taken by who starts this process
BEGIN = float(os.environ.get("START") or time.time())


def since_start():
    return time.time() - BEGIN


# ---- the models

def define(torch, nn, F):
    def attend(qkv, heads, turn=None):
        b, t, c = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        q, k, v = (z.view(b, t, heads, c // heads).transpose(1, 2) for z in qkv.split(c, 2))
        if turn is not None:
            q, k = rotate(q, *turn), rotate(k, *turn)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)

    def rotate(x, cos, sin):
        """Number j pairs with number j + d/2."""
        a, b = x.chunk(2, -1)
        return x * cos.to(x.dtype) + torch.cat((-b, a), -1) * sin.to(x.dtype)

    class GptLayer(nn.Module):
        def __init__(self, heads, width, hidden):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.out = nn.Linear(width, hidden), nn.Linear(hidden, width)

        def forward(self, x, turn):
            x = x + self.proj(attend(self.qkv(self.norm1(x)), self.heads))
            return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))

    class LlamaLayer(nn.Module):
        def __init__(self, heads, width, hidden):
            super().__init__()
            self.heads, self.width = heads, width
            self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.proj = nn.Linear(width, width, bias=False)
            self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
            self.out = nn.Linear(hidden, width, bias=False)

        def forward(self, x, turn):
            x = x + self.proj(attend(self.qkv(self.norm1(x)), self.heads, turn))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
            return x + self.out(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self, kind, layers, heads, width, hidden, words, seq):
            super().__init__()
            gpt = kind == "gpt2"
            self.words = nn.Embedding(words, width)
            self.places = nn.Embedding(seq, width) if gpt else None
            layer = GptLayer if gpt else LlamaLayer
            self.layers = nn.ModuleList(layer(heads, width, hidden) for _ in range(layers))
            self.norm = nn.LayerNorm(width) if gpt else nn.RMSNorm(width, eps=1e-5)
            if not gpt:
                d = width // heads
                rate = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float32) / d)
                angle = torch.outer(torch.arange(seq, dtype=torch.float32), rate).repeat(1, 2)
                self.register_buffer("cos", angle.cos(), persistent=False)
                self.register_buffer("sin", angle.sin(), persistent=False)
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    last = name.endswith(("proj.weight", "out.weight"))
                    nn.init.normal_(p, std=0.02 / (math.sqrt(2 * layers) if last else 1))
                elif name.endswith("bias"):
                    nn.init.zeros_(p)

        def forward(self, tokens, targets):
            x = self.words(tokens)
            turn = None
            if self.places is None:
                turn = self.cos, self.sin
            else:
                x = x + self.places.weight[: tokens.shape[1]]
            for layer in self.layers:
                x = layer(x, turn)
            logits = F.linear(self.norm(x), self.words.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return Model


# ---- what it runs on

def one_kernel(torch, name):
    cuda = torch.backends.cuda
    cuda.enable_cudnn_sdp(name == "cudnn")
    cuda.enable_flash_sdp(name == "flash")
    cuda.enable_mem_efficient_sdp(False)
    cuda.enable_math_sdp(False)


def attention_works(torch, width):
    q = torch.randn(2, 2, 256, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    try:
        y = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        y.sum().backward()
        torch.cuda.synchronize()
        return True
    except RuntimeError as e:
        print(f"torch_peer: attention: {str(e).splitlines()[0]}", file=sys.stderr)
        return False


def choose_attention(torch, wanted, width):
    """The kernel that is used: the choice is global, and nothing else is left to fall back to."""
    if wanted == "any":
        return "any"
    for name in ("cudnn", "flash") if wanted == "best" else (wanted,):
        one_kernel(torch, name)
        if attention_works(torch, width):
            return name
    sys.exit(f"torch_peer: --attention {wanted} does not work here; try --attention any")


def read_tokens(torch, path):
    """Ids as int64, on the CPU."""
    import numpy
    with open(path, "rb") as f:
        head = f.read(1024)
    magic = struct.unpack("<i", head[:4])[0] if len(head) == 1024 else 0
    at, kind = {20240520: (1024, "<u2"), 20240801: (1024, "<u4")}.get(magic, (0, "<u2"))
    return torch.from_numpy(numpy.fromfile(path, kind, offset=at).astype("i8"))


class Batches:
    """Rows of step s.  Random ids are a few batches made on the device, used in turn."""

    def __init__(self, torch, a, words, batch, seq):
        self.torch, self.batch, self.seq, self.data = torch, batch, seq, None
        self.device = a.device
        if a.tokens:
            self.data = read_tokens(torch, a.tokens)
            self.windows = (len(self.data) - 1) // seq
            if self.windows < 1 or int(self.data.max()) >= words:
                sys.exit(f"torch_peer: {a.tokens}: {len(self.data)} ids, at least {seq + 1} of them"
                         f" below {words} are needed")
            return
        top = min(words, 50257)
        self.made = [torch.randint(0, top, (batch, seq + 1), device=a.device) for _ in range(4)]

    def at(self, step):
        if self.data is None:
            rows = self.made[step % len(self.made)]
        else:
            first = [(step * self.batch + i) % self.windows * self.seq for i in range(self.batch)]
            rows = self.torch.stack([self.data[k:k + self.seq + 1] for k in first])
            rows = rows.to(self.device, non_blocking=True)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


class Adam:
    """Fused AdamW, on the weights or on f32 masters of them; decay on matrices only."""

    def __init__(self, torch, a, model):
        self.torch, self.clip = torch, a.clip
        self.own = list(model.parameters())
        self.masters = None
        if a.weights == "bf16":  # the f32 numbers stay with the masters
            self.masters = [p.detach() for p in self.own]
            model.to(torch.bfloat16)
            for m in self.masters:
                m.grad = torch.empty_like(m)
        kept = self.masters or self.own
        groups = [dict(params=[p for p in kept if p.dim() > 1], weight_decay=0.1),
                  dict(params=[p for p in kept if p.dim() == 1], weight_decay=0.0)]
        fused = {"fused": True} if a.device == "cuda" else {}
        self.adam = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, **fused)

    def step(self):
        torch = self.torch
        if self.masters:
            torch._foreach_copy_([m.grad for m in self.masters], [p.grad for p in self.own])
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.masters or self.own, self.clip)
        self.adam.step()
        if self.masters:
            with torch.no_grad():
                torch._foreach_copy_(self.own, self.masters)
        for p in self.own:
            p.grad = None


# ---- the run

def build(torch, a):
    kind, layers, heads, width, hidden, words, batch, seq = MODELS[a.model]
    batch, seq = a.batch or batch, a.seq or seq
    torch.manual_seed(1)
    used = choose_attention(torch, a.attention, width // heads) if a.device == "cuda" else "any"
    make = define(torch, torch.nn, torch.nn.functional)
    if hasattr(torch, "set_default_device"):
        torch.set_default_device(a.device)
    model = make(kind, layers, heads, width, hidden, words, seq)
    if hasattr(torch, "set_default_device"):
        torch.set_default_device(None)
    return model, used, words, batch, seq


def steps(torch, a, model, batches, adam):
    """(seconds to the end of the first step, [ms], [loss])"""
    cuda = a.device == "cuda"
    if a.weights == "autocast":
        def loss_of(tokens, targets):
            with torch.autocast(a.device, dtype=torch.bfloat16):
                return model(tokens, targets)
    else:
        loss_of = model
    if a.mode == "compile":
        loss_of = torch.compile(loss_of, **({"mode": a.tune} if a.tune else {}))
    marks, losses, first = [], [], 0.0

    def mark():
        if cuda:
            e = torch.cuda.Event(enable_timing=True)
            e.record()
            marks.append(e)
        else:
            marks.append(time.perf_counter())

    for step in range(a.warm + a.steps):
        if step >= a.warm:
            mark()
        loss = loss_of(*batches.at(step))
        loss.backward()
        adam.step()
        losses.append(loss.detach())
        if step == 0:
            if cuda:
                torch.cuda.synchronize()
            first = since_start()
        if step == a.warm - 1 and cuda:
            torch.cuda.synchronize()
    mark()
    if cuda:
        torch.cuda.synchronize()
        ms = [x.elapsed_time(y) for x, y in zip(marks, marks[1:])]
    else:
        ms = [1e3 * (y - x) for x, y in zip(marks, marks[1:])]
    return first, ms, [round(float(x), 6) for x in losses]


def main():
    a = arguments()
    import torch

    if a.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_peer: PyTorch finds no GPU here")
    model, used, words, batch, seq = build(torch, a)
    batches = Batches(torch, a, words, batch, seq)
    adam = Adam(torch, a, model)
    n_params = sum(p.numel() for p in model.parameters())
    first, ms, losses = steps(torch, a, model, batches, adam)
    middle = statistics.median(ms)
    peak = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) \
        if a.device == "cuda" else (0, 0)
    print(json.dumps(dict(
        who="torch", model=a.model, mode=a.mode, weights=a.weights, attention=used, tune=a.tune,
        batch=batch, seq=seq, params=n_params, steps=a.steps, ms=round(middle, 3),
        ms_least=round(min(ms), 3), ms_most=round(max(ms), 3),
        tok_s=round(batch * seq / middle * 1e3), peak_gib=round(peak[0] / 2**30, 2),
        reserved_gib=round(peak[1] / 2**30, 2), first_s=round(first, 2), torch=torch.__version__,
        losses=losses)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
