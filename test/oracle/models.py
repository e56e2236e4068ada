#!/usr/bin/python3
"""models.py - the losses of test/model/dirs.table, by float64 forward passes.

    oracle_models.py FOLDER [plain|transformers]

FOLDER was made by `model_dirs make`: a directory a case, `text` and `list`.  Each directory that is
not to be refused is computed as its config.json says, in float64: by transformers, or by the plain
PyTorch below (PyTorch 1.13 will do), and compared with the loss in the list; exit 1 unless all agree
to 1e-6.  With `print` as a third word the losses are only printed, for the table.
"""
import json
import math
import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_oracle  # noqa: E402

torch_oracle.torch = torch  # it imports it only where it trains
causal, split_heads = torch_oracle.causal, torch_oracle.split_heads

BATCH, SEQ = 4, 16

ACT = {
    "gelu": F.gelu, "gelu_python": F.gelu, "gelu_10": lambda x: F.gelu(x).clip(-10, 10),
    "laplace": lambda x: 0.5 * (1 + torch.erf((x - 0.707107) / (0.282095 * math.sqrt(2)))),
    "leaky_relu": F.leaky_relu, "linear": lambda x: x,
    "mish": lambda x: x * torch.tanh(F.softplus(x)),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x), "relu": F.relu,
    "relu2": lambda x: F.relu(x) ** 2, "relu6": F.relu6, "sigmoid": torch.sigmoid,
    "silu": F.silu, "swish": F.silu, "tanh": torch.tanh, "hardswish": F.hardswish,
    **{name: lambda x: F.gelu(x, approximate="tanh")
       for name in ("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_accurate",
                    "gelu_python_tanh")},
}


def rates(c, d, default_theta):
    """Angles per position: both spellings of config.json, three types."""
    rope = dict(c.get("rope_scaling") or {}, **(c.get("rope_parameters") or {}))
    theta = rope.get("rope_theta", c.get("rope_theta", default_theta))
    rate = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "linear":
        rate = rate / rope["factor"]
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] * rate / (2 * math.pi)
        smooth = ((turns - low) / (high - low)).clip(0, 1)
        rate = (1 - smooth) * rate / rope["factor"] + smooth * rate
    return rate


def rotate(x, rate):
    angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), rate)
    cos, sin, half = angle.cos(), angle.sin(), x.shape[3] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def rotary(c, p, tokens):
    kind = c["model_type"]
    heads = c["num_attention_heads"]
    keys = c.get("num_key_value_heads") or heads
    d = c.get("head_dim") or c["hidden_size"] // heads
    eps = c.get("rms_norm_eps", 1e-5 if kind == "mixtral" else 1e-6)
    rate = rates(c, d, 1e6 if kind == "mixtral" else 1e4)
    act = ACT[c.get("hidden_act", "silu")]

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * p[name + ".weight"]

    def linear(x, name):
        y = x @ p[name + ".weight"].t()
        return y + p[name + ".bias"] if name + ".bias" in p else y

    def mlp(x, gate, up, down):
        return linear(act(linear(x, gate)) * linear(x, up), down)

    def experts(x, h):
        choices = c.get("num_experts_per_tok", 2)
        logits, y = linear(x, h + "gate"), torch.zeros_like(x)
        best, which = torch.softmax(logits, -1).topk(choices)
        best = best / best.sum(-1, keepdim=True)
        for e in range(c.get("num_local_experts", 8)):
            weight = (best * (which == e)).sum(-1, keepdim=True)
            one = f"{h}experts.{e}.w"
            y = y + weight * mlp(x, one + "1", one + "3", one + "2")
        return y

    x = p["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        h = f"model.layers.{i}."
        y = norm(x, h + "input_layernorm")
        q = rotate(split_heads(linear(y, h + "self_attn.q_proj"), heads), rate)
        k = rotate(split_heads(linear(y, h + "self_attn.k_proj"), keys), rate)
        v = split_heads(linear(y, h + "self_attn.v_proj"), keys)
        k, v = (z.repeat_interleave(heads // keys, 1) for z in (k, v))
        x = x + linear(causal(q, k, v), h + "self_attn.o_proj")
        y = norm(x, h + "post_attention_layernorm")
        if kind == "mixtral":
            x = x + experts(y, h + "block_sparse_moe.")
        else:
            x = x + mlp(y, *(h + "mlp." + n for n in ("gate_proj", "up_proj", "down_proj")))
    head = "model.embed_tokens" if c["tie_word_embeddings"] else "lm_head"
    return norm(x, "model.norm") @ p[head + ".weight"].t()


def gpt2(c, p, tokens):
    w, heads, eps = c["n_embd"], c["n_head"], c.get("layer_norm_epsilon", 1e-5)
    act = ACT[c.get("activation_function", "gelu_new")]

    def norm(x, name):
        return F.layer_norm(x, (w,), p[name + ".weight"], p[name + ".bias"], eps)

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][:tokens.shape[1]]
    for i in range(c["n_layer"]):
        h = f"transformer.h.{i}."
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(w, 2)
        if c.get("scale_attn_by_inverse_layer_idx"):
            q = q / (i + 1)
        x = x + linear(causal(*(split_heads(z, heads) for z in (q, k, v))), h + "attn.c_proj")
        x = x + linear(act(linear(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj")
    head = "transformer.wte" if c.get("tie_word_embeddings", True) else "lm_head"
    return norm(x, "transformer.ln_f") @ p[head + ".weight"].t()


def by_hand(folder, rows):
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    weights = torch_oracle.read_safetensors(os.path.join(folder, "model.safetensors"))
    p = {n: torch.tensor(x, dtype=torch.float64) for n, x in weights.items()}
    return (gpt2 if c["model_type"] == "gpt2" else rotary)(c, p, rows[:, :-1])


def by_transformers(folder, rows):
    import transformers
    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.from_pretrained(folder)
    config.reorder_and_upcast_attn = False  # the same numbers, but it wants float32
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float64, attn_implementation="eager",
        experts_implementation="eager").eval()  # grouped products have no float64
    with torch.no_grad():
        return model(rows[:, :-1]).logits


def main():
    folder = sys.argv[1]
    compute = by_transformers if "transformers" in sys.argv else by_hand
    with open(os.path.join(folder, "text"), "rb") as f:
        data = torch.tensor(list(f.read()))
    rows = torch.stack([data[i * SEQ:i * SEQ + SEQ + 1] for i in range(BATCH)])
    n = wrong = 0
    with open(os.path.join(folder, "list")) as f:
        cases = [line.rstrip("\n").split("\t") for line in f]
    for path, want, refused, changes in cases:
        if refused:
            if "print" in sys.argv:
                print(0)
            continue
        logits = compute(os.path.join(folder, os.path.basename(path)), rows).double()
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()
        if "print" in sys.argv:
            print(f"{loss:.8f}")
            continue
        n += 1
        if not abs(loss - float(want)) <= 1e-6 * abs(loss):
            wrong += 1
            print(f"{os.path.basename(path)} {changes}: {loss:.8f}, the table says {want}")
    if "print" not in sys.argv:
        print(f"{compute.__name__}: {n} directories in float64, {wrong} differ from the table")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
