"""skein_run.py - a small training run of skein, and what it leaves behind, for other oracles.

A run writes a checkpoint and the gradients after every step (`train.backward_every=1`), so an
oracle in float64 can take every step with the very gradients that skein took it with, and compare
the weights.  SKEIN is the program (build/release/skein); words such as device=cuda that are given
to a script are given to every run.
"""
import functools
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import torch

torch.set_num_threads(1)  # tensors are small
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKEIN = os.path.abspath(os.environ.get("SKEIN", os.path.join(ROOT, "build/release/skein")))
STEPS, BATCH, SEQ = 24, 4, 32
MORE = [a for a in sys.argv[1:] if "=" in a]  # keys for every run, as device=cuda
TEXT = os.path.join(ROOT, "example/one_file.c")
FIXED = {"model": "tiny", "data.train": TEXT, "data.order": "sequential", "data.val_fraction": 0,
         "train.steps": STEPS, "train.batch": BATCH, "train.seq": SEQ, "train.backward": "norms",
         "train.backward_every": 1, "ckpt.every": 1, "ckpt.keep": 0, "val.every": 0,
         "sample.every": 0, "log.every": 0, "optim.clip": 0, "optim.warmup": 0,
         "optim.schedule": "constant"}


def key(value):
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def skein(*words):
    done = subprocess.run([SKEIN, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        text = done.stdout.decode(errors="replace").strip().splitlines()
        raise SystemExit("\n".join([" ".join([SKEIN, *words])] + text[-3:]))


def entries(path):
    """Names and tensors of a safetensors file, in float64.  Without numpy, which may be missing."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    header.pop("__metadata__", None)
    for name, t in header.items():
        a, b = t["data_offsets"]
        assert t["dtype"] == "F32", (path, name, t["dtype"])
        yield name, torch.frombuffer(data[a:b], dtype=torch.float32).double().reshape(t["shape"])


def tensors(*paths):
    """Logical tensors.  A shard is NAME@FIRST,..:SIZE,..; its tensor ends where the last one does."""
    out, shards = {}, {}
    for path in paths:
        for name, x in entries(path):
            name, at = (name.split("@") + [""])[:2]
            if at:
                first = [int(i) for i in at.split(":")[0].split(",")]
                shards.setdefault(name, []).append((first, x))
            else:
                out[name] = x
    for name, v in shards.items():
        size = [max(f[d] + x.shape[d] for f, x in v) for d in range(v[0][1].dim())]
        out[name] = torch.full(size, float("nan"), dtype=torch.float64)
        for first, x in v:
            out[name][tuple(slice(f, f + n) for f, n in zip(first, x.shape))] = x
        assert not out[name].isnan().any(), f"{name} is not covered by its shards"
    return out


def logical(folder, kind):
    return tensors(*sorted(glob.glob(os.path.join(folder, f"{kind}-*.safetensors"))))


def scratch():
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # checkpoints are synced
    return tempfile.mkdtemp(prefix="skein-oracle-", dir=os.environ.get("TMPDIR", memory))


def train(folder, keys):
    skein("train", f"run={folder}", *(f"{k}={key(v)}" for k, v in keys.items()), *MORE)


@functools.lru_cache(maxsize=None)
def initial(keys):
    """Weights before the first step: behind a step at a rate of 0."""
    folder = scratch()
    try:
        train(folder, {**dict(keys), "train.steps": 1, "optim.name": "sgd", "optim.lr": 0,
                       "optim.warmup": 0, "train.backward": "", "train.backward_every": 0})
        return logical(os.path.join(folder, "ckpt", f"step-{1:010}"), "m")
    finally:
        shutil.rmtree(folder)


class Run:
    """`with Run(keys) as run:`; the folder goes with it.  Steps count from 1; step 0 is before."""

    def __init__(self, keys):
        self.keys = {**FIXED, **keys}

    def __enter__(self):
        self.folder = scratch()
        try:
            train(self.path("run"), self.keys)
        except BaseException:
            shutil.rmtree(self.folder)
            raise
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def checkpoint(self, step):
        return self.path("run", "ckpt", f"step-{step:010}")

    def weights(self, step):
        if not step:
            kept = {k: v for k, v in self.keys.items()
                    if not k.startswith(("optim.", "train.backward"))}
            return dict(initial(tuple(sorted(kept.items()))))
        return logical(self.checkpoint(step), "m")

    @functools.lru_cache(maxsize=2)
    def state(self, step):
        return logical(self.checkpoint(step), "o")

    def told(self, step):
        """What train.backward tells of a step; gradients of the mean loss are NAME.grad."""
        return tensors(self.path("run", "backward", f"step-{step:010}.safetensors"))

    def gradients(self, step):
        return {n[:-5]: x for n, x in self.told(step).items() if n.endswith(".grad")}

    def metrics(self, name):
        with open(self.path("run", "metrics.jsonl")) as f:
            return [d[name] for d in map(json.loads, f) if "loss" in d]


# ---- what there is to know of the parameters of gpt2 and mlp

def is_table(name):
    return name in ("wte", "wpe")


def is_vector(name):
    """Biases and the weights of norms: they do not decay, and are no matrices."""
    return name.endswith(".b") or ".ln" in name or name.startswith("ln")


def is_matrix(name):
    """Inside of the model: what muon and its kind take.  The last layer of mlp is a head."""
    return not is_table(name) and not is_vector(name)


def is_vector_or_table(name):
    return not is_matrix(name)


def rows_out(name):
    """Rows of the tensor are outputs of its product."""
    return name.endswith(".proj.w")


def matrix(x):
    return x.reshape(x.shape[0], -1)


def off(a, b):
    """The largest difference of elements, as a part of the root mean square of b; NaN is large."""
    d = (a - b).abs().max().item() / max(b.square().mean().sqrt().item(), 1e-300)
    return d if d == d else float("inf")
