#!/usr/bin/python3
"""torch_oracle.py - GPT-2 and Llama in plain PyTorch, to hold skein's losses against.

    torch_oracle.py make ARCH DIR [key=value ...]   a Hugging Face directory with random weights
    torch_oracle.py train DIR TEXT key=value ...    trains it; prints "step loss grad_norm" lines
    torch_oracle.py compare TOLERANCE NAME A B      exit 1 unless the losses agree, relatively

ARCH is gpt2 or llama; keys of make replace those of config.json.  Keys of train: steps, batch,
seq, lr, beta1, beta2, eps, decay, clip.  A and B are outputs of train, of example/one_file.c, or a
metrics.jsonl.  The text is bytes; window k holds bytes [k*seq, k*seq + seq], and step s takes the
windows s*batch ... s*batch + batch - 1, wrapping.  Written against PyTorch 1.13.
"""
import json
import math
import os
import struct
import sys

import numpy as np

CONFIGS = {
    "gpt2": dict(
        architectures=["GPT2LMHeadModel"], model_type="gpt2", n_layer=6, n_head=6, n_embd=384,
        vocab_size=256, n_positions=256, n_ctx=256, layer_norm_epsilon=1e-5,
        activation_function="gelu_new", tie_word_embeddings=True, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, torch_dtype="float32"),
    "llama": dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=256,
        intermediate_size=688, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, vocab_size=256, max_position_embeddings=256, rope_theta=10000.0,
        rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False, attention_bias=False,
        attention_dropout=0.0, torch_dtype="float32"),
}


# ---- the files of a model ----

def gpt2_shapes(c):
    w = c["n_embd"]
    yield "transformer.wte.weight", (c["vocab_size"], w)
    yield "transformer.wpe.weight", (c["n_positions"], w)
    for i in range(c["n_layer"]):
        h = f"transformer.h.{i}."
        for name, shape in (
                ("ln_1.weight", (w,)), ("ln_1.bias", (w,)),
                ("attn.c_attn.weight", (w, 3 * w)), ("attn.c_attn.bias", (3 * w,)),
                ("attn.c_proj.weight", (w, w)), ("attn.c_proj.bias", (w,)),
                ("ln_2.weight", (w,)), ("ln_2.bias", (w,)),
                ("mlp.c_fc.weight", (w, 4 * w)), ("mlp.c_fc.bias", (4 * w,)),
                ("mlp.c_proj.weight", (4 * w, w)), ("mlp.c_proj.bias", (w,))):
            yield h + name, shape
    yield "transformer.ln_f.weight", (w,)
    yield "transformer.ln_f.bias", (w,)


def llama_shapes(c):
    w, f = c["hidden_size"], c["intermediate_size"]
    kv = w // c["num_attention_heads"] * c["num_key_value_heads"]
    yield "model.embed_tokens.weight", (c["vocab_size"], w)
    for i in range(c["num_hidden_layers"]):
        h = f"model.layers.{i}."
        for name, shape in (
                ("input_layernorm", (w,)), ("self_attn.q_proj", (w, w)),
                ("self_attn.k_proj", (kv, w)), ("self_attn.v_proj", (kv, w)),
                ("self_attn.o_proj", (w, w)), ("post_attention_layernorm", (w,)),
                ("mlp.gate_proj", (f, w)), ("mlp.up_proj", (f, w)), ("mlp.down_proj", (w, f))):
            yield f"{h}{name}.weight", shape
    yield "model.norm.weight", (w,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], w)


SHAPES = {"gpt2": gpt2_shapes, "llama": llama_shapes}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = dict(dtype="F32", shape=list(x.shape), data_offsets=[at, at + x.nbytes])
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            f.write(x.astype("<f4").tobytes())


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        a, b = t["data_offsets"]
        out[name] = np.frombuffer(data[a:b], "<f4").reshape(t["shape"]).copy()
    return out


def make(arch, folder, pairs):
    """Gains and biases get noise too: ones and zeros would hide a swapped or forgotten tensor.
    What writes to the residual stream starts smaller, as in GPT-2."""
    config = CONFIGS[arch]
    for key, value in pairs.items():
        config[key] = type(config[key])(value)
    layers = config.get("n_layer") or config["num_hidden_layers"]
    outputs = ("c_proj.weight", "o_proj.weight", "down_proj.weight")
    rng = np.random.RandomState(7)
    tensors = {}
    for name, shape in SHAPES[arch](config):
        x = 0.02 * rng.standard_normal(shape)
        if len(shape) == 1 and name.endswith("weight"):
            x = 1 + 5 * x
        elif name.endswith(outputs):
            x = x / math.sqrt(2 * layers)
        tensors[name] = x.astype("f4")
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)


# ---- the two models, as functions of a dict of tensors ----

def causal(q, k, v):
    """q, k, v are [b, heads, t, d]; the textbook form, no fused kernel."""
    t = q.shape[2]
    att = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    att = att.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
    y = torch.softmax(att, -1) @ v
    return y.transpose(1, 2).flatten(2)


def split_heads(x, heads):
    return x.unflatten(2, (heads, x.shape[2] // heads)).transpose(1, 2)


def gpt2(c, p, tokens):
    w, eps, t = c["n_embd"], c["layer_norm_epsilon"], tokens.shape[1]

    def norm(x, name):
        return F.layer_norm(x, (w,), p[name + ".weight"], p[name + ".bias"], eps)

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    wte = p["transformer.wte.weight"]
    x = wte[tokens] + p["transformer.wpe.weight"][:t]
    for i in range(c["n_layer"]):
        h = f"transformer.h.{i}."
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(w, 2)
        y = causal(*(split_heads(z, c["n_head"]) for z in (q, k, v)))
        x = x + linear(y, h + "attn.c_proj")
        y = F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + linear(y, h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ wte.t()


def rotate(x, theta):
    """Rotary positions as Hugging Face has them: number j pairs with number j + d/2."""
    t, d = x.shape[2], x.shape[3]
    rate = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.outer(torch.arange(t, dtype=torch.float64), rate)
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = x[..., : d // 2], x[..., d // 2:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def llama(c, p, tokens):
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]

    def norm(x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"])
        return x * scale * p[name + ".weight"]

    def linear(x, name):
        return x @ p[name + ".weight"].t()

    x = p["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        h = f"model.layers.{i}."
        y = norm(x, h + "input_layernorm")
        q = rotate(split_heads(linear(y, h + "self_attn.q_proj"), heads), c["rope_theta"])
        k = rotate(split_heads(linear(y, h + "self_attn.k_proj"), kv_heads), c["rope_theta"])
        v = split_heads(linear(y, h + "self_attn.v_proj"), kv_heads)
        k, v = (z.repeat_interleave(heads // kv_heads, 1) for z in (k, v))
        x = x + linear(causal(q, k, v), h + "self_attn.o_proj")
        y = norm(x, h + "post_attention_layernorm")
        y = F.silu(linear(y, h + "mlp.gate_proj")) * linear(y, h + "mlp.up_proj")
        x = x + linear(y, h + "mlp.down_proj")
    head = "model.embed_tokens" if c["tie_word_embeddings"] else "lm_head"
    return linear(norm(x, "model.norm"), head)


MODELS = {"gpt2": gpt2, "llama": llama}


def train(folder, text, o):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    model = MODELS[config["model_type"]]
    weights = read_safetensors(os.path.join(folder, "model.safetensors"))
    p = {n: torch.tensor(x, requires_grad=True) for n, x in weights.items()}
    with open(text, "rb") as f:
        data = torch.tensor(np.frombuffer(f.read(), "u1").astype("i8"))
    batch, seq = int(o["batch"]), int(o["seq"])
    n_windows = (len(data) - 1) // seq
    matrices = [x for x in p.values() if x.dim() > 1]
    vectors = [x for x in p.values() if x.dim() == 1]
    optim = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=o["decay"]), dict(params=vectors, weight_decay=0.0)],
        lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    for step in range(int(o["steps"])):
        first = [(step * batch + i) % n_windows * seq for i in range(batch)]
        rows = torch.stack([data[a:a + seq + 1] for a in first])
        logits = model(config, p, rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(),
                               label_smoothing=o["smooth"])
        if o["z"]:
            loss = loss + o["z"] * torch.logsumexp(logits, -1).square().mean()
        optim.zero_grad()
        loss.backward()
        # torch.nn.utils.clip_grad_norm_ adds in float32: 1.4e-5 off on 10 million numbers
        length = math.sqrt(sum(x.grad.double().square().sum().item() for x in p.values()))
        if o["clip"] and length > o["clip"]:
            for x in p.values():
                x.grad.mul_(o["clip"] / length)
        optim.step()
        print(step + 1, f"{loss.item():.9g} {length:.9g}", flush=True)


# ---- comparing ----

def read_losses(path):
    """(loss, grad_norm or None) by order of steps, from either kind of file"""
    out = []
    with open(path) as f:
        for line in f:
            if line.startswith("{"):
                d = json.loads(line)
                if "loss" in d and "step" in d:
                    out.append((d["loss"], d.get("grad_norm")))
            elif line.strip():
                out.append(tuple(float(x) for x in line.split()[1:3]))
    return out


def compare(tolerance, name, a, b):
    x, y = read_losses(a), read_losses(b)
    if not x or len(x) != len(y):
        print(f"{name}: {len(x)} losses in {a}, {len(y)} in {b}: as many are needed, not none")
        return 1
    worst = max(abs(p[0] - q[0]) / abs(q[0]) for p, q in zip(x, y))
    norms = max((abs(p[1] - q[1]) / abs(q[1]) for p, q in zip(x, y) if p[1] and q[1]), default=0)
    good = worst <= tolerance and math.isfinite(worst)
    print(f"{name}: {len(x)} steps, loss {x[0][0]:.6f} -> {x[-1][0]:.6f}, largest difference "
          f"{worst:.1e} (allowed {tolerance:g}), of grad_norm {norms:.1e}: "
          + ("ok" if good else "WRONG"))
    if not good:
        for i, (p, q) in enumerate(zip(x, y)):
            print(f"  {i + 1:3} {p[0]:.9g} {q[0]:.9g}")
    return 0 if good else 1


def main():
    what, args = sys.argv[1], sys.argv[2:]
    pairs = dict(a.split("=", 1) for a in args if "=" in a)
    plain = [a for a in args if "=" not in a]
    if what == "make":
        make(*plain, pairs)
        return 0
    if what == "compare":
        return compare(float(plain[0]), *plain[1:])
    usual = dict(steps=20, batch=4, seq=256, lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1,
                 clip=1.0, smooth=0, z=0)
    train(*plain, {**usual, **{k: float(v) for k, v in pairs.items()}})
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    if sys.argv[1] == "train":
        import torch
        import torch.nn.functional as F
    sys.exit(main())
