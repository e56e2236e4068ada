#!/usr/bin/python3
"""torch_gpt.py MODEL STEPS [--threads N] [--ranks N] [--text FILE]

A GPT-2 training step on the CPU in PyTorch, float32, as a careful user would write it: one product
for q, k and v, the mask added inside the product of scores, AdamW over lists of tensors, gradients
dropped instead of zeroed, denormals flushed.  Prints "step ms loss" after each step.

MODEL is gpt2 (124M, batch 4, seq 256) or nano (10.7M, batch 12, seq 256).  With --ranks each rank
is a process of its own that takes its part of the batch, under DistributedDataParallel over gloo;
this process only starts them and waits.  Written against PyTorch 1.13.
"""
import argparse
import math
import os
import subprocess
import sys
import tempfile
import time

# layers, heads, width, words, positions, batch, seq
MODELS = {"gpt2": (12, 12, 768, 50304, 1024, 4, 256), "nano": (6, 6, 384, 256, 256, 12, 256)}


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=MODELS)
    p.add_argument("steps", type=int)
    p.add_argument("--threads", type=int, default=0, help="0: what PyTorch chooses")
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--rank", type=int, default=-1, help="for ourselves")
    p.add_argument("--meet", default="", help="for ourselves: the file where ranks meet")
    p.add_argument("--text", default=__file__, help="any file: its bytes are the tokens")
    return p.parse_args()


def start_ranks(a):
    """Before torch is imported, so that this process stays small."""
    with tempfile.TemporaryDirectory() as folder:
        meet = ["--meet", os.path.join(folder, "meet")]
        ranks = [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(r), *meet])
                 for r in range(a.ranks)]
        codes = [r.wait() for r in ranks]
    return max(abs(c) for c in codes)


def define(torch, nn, F):
    class Layer(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attend(self, x, mask):
            b, t, c = x.shape
            # [b,t,3,h,d] -> three of [b*h,t,d]
            qkv = self.qkv(x).view(b, t, 3, self.heads, c // self.heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).reshape(3, b * self.heads, t, -1).unbind(0)
            scores = torch.baddbmm(mask.expand(b * self.heads, t, t), q, k.transpose(1, 2),
                                   alpha=1 / math.sqrt(c // self.heads))
            y = torch.bmm(F.softmax(scores, -1), v)
            return self.proj(y.view(b, self.heads, t, -1).transpose(1, 2).reshape(b, t, c))

        def forward(self, x, mask):
            x = x + self.attend(self.norm1(x), mask)
            return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self, layers, heads, width, words, positions):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(positions, width)
            self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    last = name.endswith(("proj.weight", "out.weight"))
                    nn.init.normal_(p, std=0.02 / (math.sqrt(2 * layers) if last else 1))

        def forward(self, tokens, targets, mask):
            x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
            for layer in self.layers:
                x = layer(x, mask)
            logits = F.linear(self.norm(x), self.words.weight)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Gpt


def train(a):
    import torch
    from torch import nn

    if a.threads:
        torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    *sizes, batch, seq = MODELS[a.model]
    model = step_model = define(torch, nn, nn.functional)(*sizes)
    if a.ranks > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + a.meet, rank=a.rank,
                                             world_size=a.ranks)
        step_model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), foreach=True)
    mask = torch.full((seq, seq), -math.inf).triu(1)
    with open(a.text, "rb") as f:
        data = torch.tensor(list(f.read(1 << 20)))
    own = batch // a.ranks
    for step in range(a.steps):
        first = [(step * batch + max(a.rank, 0) * own + i) * seq % (len(data) - seq - 1)
                 for i in range(own)]
        rows = torch.stack([data[at:at + seq + 1] for at in first])
        if a.ranks > 1:
            torch.distributed.barrier()
        start = time.perf_counter()
        loss = step_model(rows[:, :-1], rows[:, 1:], mask)
        loss.backward()
        optim.step()
        optim.zero_grad(set_to_none=a.ranks == 1)  # DDP keeps gradients in its buckets
        value = loss.item()
        if a.ranks > 1:
            torch.distributed.barrier()
        ms = (time.perf_counter() - start) * 1e3
        if a.rank <= 0:
            print(f"{step} {ms:.3f} {value:.4f}", flush=True)
    return 0


if __name__ == "__main__":
    args = arguments()
    sys.exit(start_ranks(args) if args.ranks > 1 and args.rank < 0 else train(args))
