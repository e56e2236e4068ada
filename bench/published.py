#!/usr/bin/python3
"""published.py - simulated steps beside published measured ones.

    published.py --skein PROGRAM --rows FOLDER [--set NAME] [--split calib|dev] [--sample N]
                 [--machines 'NAME=MACHINE ...'] [--plain] [--csv FILE] [--jobs N]
    published.py --skein PROGRAM --rows FOLDER --rankings
    published.py --rows FOLDER --memory [--split calib|dev]

FOLDER has tables of measured training steps as their authors published them: vtrain.csv,
llm_foundry.csv, nanotron_sweep.csv, mlperf.csv and rows_headline.csv. Each row becomes a model and
a layout, `skein simulate` prices the step on a machine of the row's chip with the profile of the
row's engine, and a line for each set says how far the price is off. A chip has one machine for
all of its rows and an engine one profile; no row has a constant of its own. --machines puts files
in the place of chips (a100=./my-a100.txt), and --plain leaves engines out.

--rankings prints how many times as fast one way is as another, published and simulated.
--memory says which rows of the nanotron sweep would not fit in 80 GB, by that engine's bytes of a
parameter and of an activation (NANOTRON_BYTES), beside those that failed.
"""
import argparse
import concurrent.futures
import csv
import os
import random
import statistics
import subprocess
import sys
import tempfile

# What users of these engines know of them. Sizes of the models of the nanotron sweep follow from
# its own figures: 6 N + 12 L s h flops a token.
NANOTRON = {"1B": (16, 2048, 16, 16, 8192), "3B": (28, 3072, 24, 24, 8192),
            "8B": (32, 4096, 32, 32, 14336), "80B": (80, 8192, 64, 64, 28672)}
CHIPS = {"A100": "a100-8", "a100_40gb": "a100-40g-8", "a100_80gb": "a100-8", "A100-80G": "a100-8",
         "A100-40G": "a100-40g-8", "H100": "h100-8", "H100-EFA": "h100-efa-8", "h100_80gb": "h100-8", "H100-80G": "h100-8",
         "H200": "h200-8", "H200-141G": "h200-8", "B200": "b200-8", "GB200": "gb200-72",
         "V100-32G": "v100-8", "V100-16G": "v100-8", "H100-96G": "h100-500w-8"}


def gpt(layers, hidden, heads, ffn, vocab, seq):
    """Keys of a GPT-2."""
    return ["model=gpt2", f"model.num_hidden_layers={layers}", f"model.hidden_size={hidden}",
            f"model.num_attention_heads={heads}", f"model.intermediate_size={ffn}",
            f"model.vocab_size={vocab}", f"model.max_position_embeddings={seq}"]


def llama(layers, hidden, heads, kv_heads, ffn, vocab, seq):
    """Keys of a Llama with untied words."""
    return ["model=llama-7b", f"model.num_hidden_layers={layers}", f"model.hidden_size={hidden}",
            f"model.num_attention_heads={heads}", f"model.num_key_value_heads={kv_heads}",
            f"model.intermediate_size={ffn}", f"model.vocab_size={vocab}",
            f"model.max_position_embeddings={seq}"]


def job(row_id, chip, engine, keys, words, gbs, seq, micro, seconds, ranks, dtype="bf16"):
    """A row to simulate; words leaves micro-batches out."""
    if engine == "nemo":
        keys = keys + ["comm.bucket=200MiB"]
    return {"id": row_id, "chip": chip, "engine": engine, "keys": keys, "words": words, "gbs": gbs,
            "seq": seq, "micro": micro, "seconds": seconds, "ranks": ranks, "dtype": dtype}


def vtrain(row):
    """A step of Megatron-LM on A100s."""
    layers, hidden, heads, seq = (int(row[k]) for k in ("layers", "hidden", "heads", "seq"))
    tp, dp, pp, gbs, mbs = (int(row[k]) for k in ("tp", "dp", "pp", "gbs", "mbs"))
    keys = gpt(layers, hidden, heads, 4 * hidden, int(row["vocab_assumed"]), seq)
    words = f"pp={pp} dp={dp} tp={tp} recompute=full"
    name = f"{row['set']}-{layers}x{hidden}-tp{tp}-dp{dp}-pp{pp}-gbs{gbs}-mbs{mbs}"
    return job(name, "A100", "megatron-2021", keys, words, gbs, seq, gbs // (dp * mbs),
               float(row["iter_ms"]) / 1e3, tp * dp * pp, "f16")


def foundry(row):
    """A step of MosaicML's llm-foundry: FSDP."""
    layers, hidden, heads, ffn, vocab, seq, gpus, gbs = (
        int(row[k]) for k in ("layers", "hidden", "heads", "ffn", "vocab", "seq", "gpus", "gbs"))
    words = f"dp={gpus}" + {"FULL_SHARD": " zero=3 prefetch=1", "SHARD_GRAD_OP": " zero=2"}.get(
        row["sharding"], "") # FSDP's backward_prefetch; forward, its host runs ahead
    words += " recompute=full" if row["act_ckpt"] == "True" else ""
    seconds = gbs * seq / (float(row["tok_s_gpu"]) * gpus)
    keys = gpt(layers, hidden, heads, ffn, vocab, seq)
    if row["precision"] == "amp_fp8":
        keys.append("train.matmul=fp8")
    name = f"{row['gpu']}-{row['model']}-{seq}-{gpus}-mbs{row['mbs']}-{row['precision']}"
    return job(name, row["gpu"], "fsdp", keys, words, gbs, seq, int(row["grad_acc"]), seconds, gpus)


def nanotron(row):
    """A step of nanotron: only those that its authors' own figures call good."""
    if row["status"] != "ok" or row["quality"] != "good":
        return None
    layers, hidden, heads, kv_heads, ffn = NANOTRON[row["model"]]
    tp, dp, pp, acc, gbs = (int(row[k]) for k in ("tp", "dp", "pp", "grad_acc", "gbs"))
    if gbs != dp * int(row["mbs"]) * acc:
        return None
    words = f"pp={pp} dp={dp} tp={tp}" + (" sp" if tp > 1 else "") + (
        " zero=1" if row["zero"] != "0" and dp > 1 else "")
    words += " balance" if pp > 1 else "" # stages of equal flops, the head counts
    name = f"{row['model']}-tp{tp}-dp{dp}-pp{pp}-mbs{row['mbs']}-zero{row['zero']}"
    return job(name, "H100-EFA", "nanotron", llama(layers, hidden, heads, kv_heads, ffn, 131072, 4096),
               words, gbs, 4096, acc, gbs * 4096 / float(row["tok_s"]), tp * dp * pp)


def mlperf(row):
    """A step of NeMo in MLPerf."""
    tp, pp, cp, vp, dp, gbs, seq = (int(row[k]) for k in
                                    ("tp", "pp", "cp", "vp", "dp", "gbs", "seq"))
    if row["benchmark"] == "gpt3":
        keys = gpt(96, 12288, 96, 49152, 51200, seq)
    else:
        keys = llama(126, 16384, 128, 8, 53248, 128256, seq)
    words = f"pp={pp} dp={dp} " + (f"cp={cp} " if cp > 1 else "") + f"tp={tp} sp zero=1 overlap=4"
    if vp > 1:
        words += f" schedule=interleaved chunks={vp}"
        if (96 if row["benchmark"] == "gpt3" else 126) % (pp * vp):
            words += " balance"
    name = f"{row['benchmark']}-{row['gpu']}-{row['gpus']}-{row['submitter']}"
    return job(name, row["gpu"], "nemo", keys + ["train.matmul=fp8"], words, gbs, seq,
               int(row["n_microbatches"]), float(row["step_s_median"]), int(row["gpus"]))


def gathers_ahead(row):
    """FSDP does. DeepSpeed gathers no layer ahead where two have over stage3_max_live_parameters."""
    live = 24 * int(row["hidden"]) ** 2
    return row["group"] == "torchtitan" or (row["group"] == "deepspeed_azure" and live <= 1e9)


def headline_words(row, ranks):
    """Layout of a headline row; None where the row does not say enough."""
    size = {k: int(row[k] or 1) for k in ("tp", "pp", "cp", "ep", "vp")}
    dp = int(row["dp"] or ranks // (size["tp"] * size["pp"] * size["cp"]))
    words = f"pp={size['pp']} dp={dp} " + (f"cp={size['cp']} " if size["cp"] > 1 else "")
    words += f"tp={size['tp']}"
    zero, again = row["zero"], row["recompute"]
    if row["group"] == "deepspeed_azure":
        zero = "3"
    if row["group"] == "torchtitan" and size["pp"] > 1:
        words += " zero=1" # it keeps weights gathered beside a pipeline, and sums gradients once
    elif zero.startswith("FSDP") or zero == "3":
        words += " zero=3" + (" prefetch=1" if gathers_ahead(row) else "")
    elif zero in ("1", "2"):
        words += f" zero={zero}"
    if "SP" in again or (row["group"] in ("torchtitan", "megatron_llama_fp8", "megatron2024_h100")
                         and size["tp"] > 1):
        words += " sp"
        if HEADLINE_ENGINES.get(row["group"]) == "nemo" or "asyncTP" in row["precision"]:
            words += " overlap=4" # products in chunks beside the collectives of tensor parallelism
    if again.startswith("full"):
        words += " recompute=full"
    elif again.startswith("selective"):
        words += " recompute=selective"
    if "interleaved (PP>1)" in row["schedule"] and size["pp"] > 1:
        size["vp"] = max(size["vp"], 2)
    if size["vp"] > 1 and size["pp"] > 1:
        words += f" schedule=interleaved chunks={size['vp']}"
        if int(row["layers"]) % (size["pp"] * size["vp"]):
            words += " balance"
    return words, dp


HEADLINE_ENGINES = {"megatron2021_t1": "megatron-2021", "megatron2021_t2": "megatron-2021",
                    "megatron2020": "megatron-2021", "korthikanti2022": "megatron-2021",
                    "mtnlg": "megatron-2021", "megatron2024_h100": "nemo",
                    "megatron_llama_fp8": "nemo", "torchtitan": "torchtitan",
                    "llama3": "nemo", "deepspeed_azure": "deepspeed-2022"}


def headline_seconds(row, gbs, seq, ranks):
    """The published seconds of a step, or those that its tokens per second mean."""
    if row["step_s"]:
        return float(row["step_s"])
    return gbs * seq / (float(row["tok_s_gpu"]) * ranks) if row["tok_s_gpu"] else 0


def headline(row):
    """A row of a paper's main table, with the micro-batch that it names or one sequence."""
    engine = HEADLINE_ENGINES.get(row["group"])
    if row["group"] == "megatron2021_t2" and row["zero"] == "3":
        engine = "deepspeed-2021"
    if engine == "torchtitan" and "compile" not in row["precision"]:
        engine = "fsdp"
    if not engine or not row["layers"] or not row["gbs"] or not row["vocab"]:
        return None
    ranks, seq, gbs = int(row["gpus"]), int(row["seq"]), int(row["gbs"])
    words, dp = headline_words(row, ranks)
    mbs = int(row["mbs"] or max(1, min(4, gbs // dp)))
    if row["group"] == "torchtitan" and int(row["pp"]) > 1:
        mbs = 1 # the row has the batch of a rank, which the pipeline cuts into sequences
    seconds = headline_seconds(row, gbs, seq, ranks)
    if not seconds or gbs % (dp * mbs):
        return None
    sizes = [int(row[k]) for k in ("layers", "hidden", "heads")]
    if "lama" in row["model"]:
        keys = llama(*sizes, int(row["kv_heads"] or row["heads"]), int(row["ffn"]),
                     int(row["vocab"]), seq)
    else:
        keys = gpt(*sizes, int(row["ffn"]), int(row["vocab"]), seq)
    if "fp8" in row["precision"]:
        keys.append("train.matmul=fp8")
    chip = row["gpu"].split(" ")[0].rstrip(",")
    return job(row["id"], chip, engine, keys, words, gbs, seq, gbs // (dp * mbs), seconds, ranks,
               "f16" if row["precision"] == "fp16" else "bf16")


SETS = {"vtrain-single": ("vtrain.csv", vtrain, lambda r: r["set"] == "single"),
        "vtrain-multi": ("vtrain.csv", vtrain, lambda r: r["set"] == "multi"),
        "foundry-a100": ("llm_foundry.csv", foundry, lambda r: r["gpu"].startswith("a100")),
        "foundry-h100": ("llm_foundry.csv", foundry, lambda r: r["gpu"].startswith("h100")),
        "nanotron": ("nanotron_sweep.csv", nanotron, lambda r: True),
        "mlperf": ("mlperf.csv", mlperf, lambda r: True),
        "headline": ("rows_headline.csv", headline, lambda r: True)}


def simulate(args, machine, j, micro):
    """Seconds of a step with so many micro-batches, or the reason why there is none."""
    gbs = j["gbs"] // j["micro"] * micro
    command = [args.skein, "simulate", *j["keys"], f"train.batch={gbs}", f"train.seq={j['seq']}",
               f"train.dtype={j['dtype']}", f"layout={j['words']} micro={micro}",
               "--cluster", machine, "-o", "csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip()
    for line in done.stdout.splitlines():
        if line.startswith("all,"):
            return float(line.split(",")[4]), ""
    return None, "no line of all ranks"


def price(args, j):
    """Simulated seconds; beyond three rounds of the pipeline a step is linear in micro-batches."""
    machine = args.chips.get(j["chip"], j["chip"])
    if not args.plain:
        machine += ":" + j["engine"]
    pp = int(j["words"].split("pp=")[1].split()[0]) if "pp=" in j["words"] else 1
    few = 4 * pp
    if j["micro"] <= 2 * few:
        return simulate(args, machine, j, j["micro"])
    few += (j["micro"] - few) % pp
    low, why = simulate(args, machine, j, few)
    high, why2 = simulate(args, machine, j, few + pp)
    if low is None or high is None:
        return None, why or why2
    return low + (high - low) * (j["micro"] - few) / pp, ""


def rows_of(args, name):
    """The jobs of a set."""
    file, make, mine = SETS[name]
    with open(os.path.join(args.rows, file), newline="", encoding="utf-8") as f:
        rows = [r for r in csv.DictReader(f)
                if mine(r) and (not args.split or r["split"] == args.split)]
    jobs = [j for j in map(make, rows) if j]
    random.Random(1).shuffle(jobs)
    return jobs[:args.sample] if args.sample else jobs


# What is compared, how many times as fast the second is, as published, and the two: rows of
# rows_headline.csv with what is changed in them. Of ZeRO-3 on 768 GPUs the paper has 74 days beside
# 43; torchtitan's page has 128 tokens a second for the interleaved schedule beside 100 (two layers a
# stage here).
RANKINGS = [
    ("interleaved over 1F1B, 405B on 512 H100", 1.28, ("tt_405b_1f1b", {}),
     ("tt_405b_1f1b", {"schedule": "interleaved (PP>1)", "vp": "8"})),
    ("PTD over ZeRO-3, 175B on 384 A100", 81.58 / 76.78, ("mlm21_t2_zero3_174_384", {}),
     ("mlm21_t2_ptd_174_384", {})),
    ("PTD over ZeRO-3, 175B on 768 A100", 74 / 43,
     ("mlm21_t2_zero3_174_384", {"gpus": "768", "dp": "768", "mbs": "2"}),
     ("mlm21_t2_ptd_174_768", {})),
    ("SP + selective over full, 22B", 1.42 / 1.10, ("kor22_22B_full", {}),
     ("kor22_22B_selective", {})),
    ("SP + selective over full, 175B", 18.13 / 13.75, ("kor22_175B_full", {}),
     ("kor22_175B_selective", {})),
    ("SP + selective over full, 1T", 94.42 / 71.49, ("kor22_1T_full", {}),
     ("kor22_1T_selective", {})),
]


def rankings(args):
    """Ratios of steps, published and simulated."""
    with open(os.path.join(args.rows, SETS["headline"][0]), newline="", encoding="utf-8") as f:
        rows = {r["id"]: r for r in csv.DictReader(f)}
    for name, published, *pair in RANKINGS:
        took = [price(args, headline({**rows[row], **changes})) for row, changes in pair]
        if None in (took[0][0], took[1][0]):
            print(f"{name:42s} published {published:.2f}  no price: {took[0][1]}{took[1][1]}")
            continue
        ratio = took[0][0] / took[1][0]
        print(f"{name:42s} published {published:.2f}  simulated {ratio:.2f}  "
              f"{100 * (ratio - published):+4.0f} points")


# Bytes of a parameter that are kept and that ZeRO-1 shards (gradients in 16 and in 32 bits, a
# master copy, two moments); of a token in a layer, for each element of the MLP and of the model;
# of a logit; of the CUDA context; and of NCCL's buffers for a communicator: 24 channels of 8 H100,
# each with a ring and the two ways of a tree, each with the buffers of three protocols (init.cc).
NANOTRON_BYTES = {"kept": 8, "sharded": 12, "ffn": 18.5, "hidden": 4.6, "logit": 12.3,
                  "context": 0.5e9, "nccl": 24 * 3 * ((4 << 20) + 120 * 640 * 64 + 8 * 512 * 128)}


def nanotron_bytes(row):
    """Bytes of the fullest stage of nanotron, which deals blocks and the head by their flops."""
    layers, hidden, heads, kv_heads, ffn = NANOTRON[row["model"]]
    tp, dp, pp, mbs, acc = (int(row[k]) for k in ("tp", "dp", "pp", "mbs", "grad_acc"))
    block, head = 4 * hidden * hidden + 3 * hidden * ffn, 131072 * hidden
    stages, done, most, of = [0] * pp, 0, 0, NANOTRON_BYTES
    for _ in range(layers):
        done += block
        stages[min(pp - 1, -(-done * pp // (block * layers + head)) - 1)] += 1
    size = 2 * hidden * hidden * (1 + kv_heads / heads) + 3 * hidden * ffn
    for stage, n in enumerate(stages):
        params = n * size + head * ((stage == 0) + (stage == pp - 1))
        sharded = dp if row["zero"] != "0" else 1
        tokens = min(pp - stage, acc) * mbs * 4096
        acts = tokens * n * (of["ffn"] * ffn + of["hidden"] * hidden)
        logits = mbs * 4096 * 131072 * of["logit"] if stage == pp - 1 else 0
        most = max(most, params * (of["kept"] + of["sharded"] / sharded) + acts + logits)
    groups = sum(n > 1 for n in (tp, dp, pp, tp * dp * pp)) # of the world, too
    return most / tp + of["context"] + groups * of["nccl"]


def memory(args):
    """Which layouts of the nanotron sweep would not fit, and which did not."""
    with open(os.path.join(args.rows, SETS["nanotron"][0]), newline="", encoding="utf-8") as f:
        rows = [r for r in csv.DictReader(f) if not args.split or r["split"] == args.split]
    for status in ("fail", "ok"):
        of = [nanotron_bytes(r) > 79.1 * 2 ** 30 for r in rows if r["status"] == status]
        print(f"nanotron {status:4s} {len(of):5d} rows  said not to fit {100 * sum(of) / len(of):5.1f} %")


def summary(name, results, skipped):
    """One line of a set."""
    errors = [100 * (p / j["seconds"] - 1) for j, p in results]
    if not errors:
        print(f"{name:14s} {0:5d} rows, {skipped} without a price")
        return
    size = sorted(map(abs, errors))
    within = sum(e <= 15 for e in size) / len(size)
    print(f"{name:14s} {len(size):5d} rows  median |error| {statistics.median(size):5.1f} %  "
          f"90th {size[int(0.9 * (len(size) - 1))]:5.1f} %  bias {statistics.median(errors):+6.1f} %"
          f"  within 15 %: {100 * within:3.0f} %  without a price: {skipped}")


def main():
    """Reads, simulates, compares."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--rankings", action="store_true")
    ap.add_argument("--memory", action="store_true")
    ap.add_argument("--skein", default="build/release/skein")
    ap.add_argument("--rows", required=True)
    ap.add_argument("--set", default="")
    ap.add_argument("--split", default="")
    ap.add_argument("--sample", type=int, default=0)
    ap.add_argument("--machines", default="")
    ap.add_argument("--plain", action="store_true")
    ap.add_argument("--csv", default="")
    ap.add_argument("--jobs", type=int, default=2)
    args = ap.parse_args()
    args.chips = dict(CHIPS)
    args.chips.update(pair.split("=", 1) for pair in args.machines.split())
    if args.rankings or args.memory:
        if args.rankings:
            rankings(args)
        if args.memory:
            memory(args)
        return
    out = []
    for name in [args.set] if args.set else SETS:
        jobs = rows_of(args, name)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            priced = list(pool.map(lambda j: price(args, j), jobs))
        results = [(j, p[0]) for j, p in zip(jobs, priced) if p[0]]
        for j, p in zip(jobs, priced):
            out.append([name, j["id"], j["seconds"], p[0] or "", p[1], j["words"], j["micro"]])
        summary(name, results, len(jobs) - len(results))
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as f:
            csv.writer(f).writerows([["set", "id", "measured", "simulated", "why", "layout",
                                      "micro"], *out])


if __name__ == "__main__":
    main()
