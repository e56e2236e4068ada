#!/usr/bin/python3
"""ratio.py - a training step of skein beside its peers and its floor, in one run.

    ratio.py --skein PROGRAM --gemm PROGRAM --text FILE [--blas NAME=FOLDER ...] [--rounds R]
             [--steps K] [--models gpt2,nano] [--only REGEX] [--json FILE]

bench/train.sh prepares all that and calls this. Machines drift, so nothing is measured long: each
round runs every contender once for K steps after one that is thrown away, in an order that turns
by one from round to round. A run during which others used more than --foreign percent of the host
(other processes, or the hypervisor) is repeated, twice at most. A contender's time is the median
over rounds of its median step; a ratio is the median over rounds of the ratio within the round.
One more run, not timed, watches memory: the sum of the proportional set sizes (pages shared by
ranks count once) of the contender's processes, ten times a second. Everything runs on two cores.
"""
import argparse
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = {"gpt2": 4 * 256, "nano": 12 * 256}
BATCH = {"gpt2": 4, "nano": 12}
FLOORS = {"floor, causal": ("GEMMs, causal halves, cut by rows", "GEMMs, causal halves, by ranks"),
          "floor, full": ("GEMMs, full squares, cut by rows", "GEMMs, full squares, by ranks")}


# ---- who runs, and how

def core_type(gemm):
    """The processor that OpenBLAS should be told, if it does not know a new one by itself: then it
    falls back to SSE3, at a fifth of the speed.  Empty if its own choice is good."""
    out = subprocess.run([gemm, "core"], stdout=subprocess.PIPE, text=True, check=True)
    core = out.stdout.strip().lower()
    with open("/proc/cpuinfo") as f:
        flags = next((line for line in f if line.startswith("flags")), "").split()
    if core not in ("prescott", "core2", "nehalem", "sandybridge", "barcelona", "generic"):
        return core, ""
    for flag, name in (("avx512vl", "SKYLAKEX"), ("avx2", "HASWELL")):  # as skein chooses
        if flag in flags:
            return core, name
    return core, ""


def contenders(a, told):
    """[(name, function from model and steps to a command, environment)]"""
    core = {"OPENBLAS_CORETYPE": told} if told else {}
    out = []

    def add(name, command, env):
        if not a.only or re.search(a.only, name):
            out.append((name, command, env))

    for what, words in (("causal", "causal halves"), ("full", "full squares")):
        for cut, how in (("rows", "cut by rows"), ("ranks", "by ranks")):
            add(f"GEMMs, {words}, {how}",
                lambda m, k, cut=cut, what=what: [a.gemm, m, cut, what, "2", str(k)], core)

    def skein(model, steps, ranks):
        return [a.skein, "train", f"model={model}", f"data.train={a.text}", "data.tokenizer=byte",
                "data.order=sequential", "data.val_fraction=0", f"train.steps={steps}",
                f"train.batch={BATCH[model]}", "train.seq=256", "train.dtype=f32",
                "optim.name=adamw", "optim.lr=1e-4", "optim.schedule=constant", "optim.warmup=0",
                "optim.clip=0", "val.every=0", "sample.every=0", f"layout=dp={ranks}",
                "run=RUN", "-n", str(ranks)]

    if a.skein:
        add("skein, 1 rank of 2 threads", lambda m, k: skein(m, k, 1), {})
        add("skein, 2 ranks of 1 thread", lambda m, k: skein(m, k, 2), {})

    def torch(*more):
        script = os.path.join(HERE, "torch_gpt.py")
        return lambda m, k: ["/usr/bin/python3", script, m, str(k), "--text", a.text, *more]

    if a.torch:
        add("PyTorch as installed, 2 threads", torch(), {})
        add("PyTorch DDP as installed, 2 ranks of 1 thread",
            torch("--ranks", "2", "--threads", "1"), {"OMP_NUM_THREADS": "1"})
        for name, folder in (b.split("=", 1) for b in a.blas):
            env = {**core, "LD_LIBRARY_PATH": folder, "OMP_NUM_THREADS": "2",
                   "BLIS_NUM_THREADS": "2", "OMP_PROC_BIND": "true"}
            add(f"PyTorch with {name}, 2 threads", torch("--threads", "2"), env)
            env = {**core, "LD_LIBRARY_PATH": folder, "OMP_NUM_THREADS": "1",
                   "BLIS_NUM_THREADS": "1"}
            add(f"PyTorch DDP with {name}, 2 ranks of 1 thread",
                torch("--ranks", "2", "--threads", "1"), env)
    return out


# ---- one run of one contender

def family(pid):
    """pid and all that it started"""
    out, queue = [], [pid]
    while queue:
        p = queue.pop()
        out.append(p)
        try:
            for task in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{task}/children") as f:
                    queue += [int(x) for x in f.read().split()]
        except OSError:
            pass
    return out


def memory(pid):
    """MiB; pages that several share count once"""
    total = 0
    for p in family(pid):
        try:
            with open(f"/proc/{p}/smaps_rollup") as f:
                total += sum(int(x.split()[1]) for x in f if x.startswith("Pss:"))
        except OSError:
            pass
    return total / 1024


class Run:
    def __init__(self):
        self.ms, self.first, self.peak, self.error, self.foreign = [], None, 0.0, "", 0.0


def busy():
    """seconds that the host's cores have worked or were stolen; those of our ended children"""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, soft, steal = map(int, f.readline().split()[1:9])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    all_ticks = user + nice + system + irq + soft + steal
    return all_ticks / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def stop(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def read_lines(child, run, begin, log):
    for line in child.stdout:
        log.append(line)
        words = line.split()
        if len(words) >= 2 and re.fullmatch(r"\d+", words[0]):
            try:
                run.ms.append(float(words[1]))
            except ValueError:
                continue
            run.first = run.first or time.time() - begin


def read_metrics(path):
    out = []
    try:
        with open(path) as f:
            for line in f:
                if line.endswith("\n"):
                    d = json.loads(line)
                    if "ms" in d and "loss" in d:
                        out.append(d["ms"])
    except (OSError, ValueError):
        pass
    return out


def run_once(name, command, env, cpus, watch, limit):
    run, log = Run(), []
    folder = tempfile.mkdtemp(prefix="skein-bench-")
    metrics = os.path.join(folder, "run", "metrics.jsonl") if name.startswith("skein") else None
    command = [c.replace("run=RUN", "run=" + os.path.join(folder, "run")) for c in command]

    def own():
        os.setsid()
        os.sched_setaffinity(0, cpus)

    begin, before = time.time(), busy()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, **env}, preexec_fn=own)
    if metrics:  # what it prints is for people; the numbers are in the file
        reader = threading.Thread(target=lambda: log.extend(child.stdout))
    else:
        reader = threading.Thread(target=read_lines, args=(child, run, begin, log))
    reader.start()
    while child.poll() is None:
        if watch:
            run.peak = max(run.peak, memory(child.pid))
        if metrics and run.first is None and read_metrics(metrics):
            run.first = time.time() - begin
        if time.time() - begin > limit:
            run.error = f"stopped after {limit} s"
            stop(child)
        time.sleep(0.1 if watch else 0.02 if metrics and run.first is None else 0.2)
    reader.join()
    foreign = busy()[0] - before[0] - (busy()[1] - before[1])
    run.foreign = max(0.0, 100 * foreign / (time.time() - begin) / os.cpu_count())
    if metrics:
        run.ms = read_metrics(metrics)
    if child.returncode and not run.error:
        run.error = f"exit code {child.returncode}: " + "".join(log[-3:]).strip()[-300:]
    if not run.error and not run.ms:
        run.error = "printed no step"
    shutil.rmtree(folder, ignore_errors=True)
    return run


# ---- the rounds

def run_clean(a, *how):
    """the cleanest of up to three runs"""
    runs = []
    while len(runs) < 3:
        runs.append(run_once(*how, watch=False, limit=a.limit))
        if runs[-1].error or runs[-1].foreign <= a.foreign:
            return runs[-1]
    return min(runs, key=lambda r: r.foreign)


def measure(a, who, cpus):
    """{(model, name): dict(rounds=[ms or None], first=[s], peak=MiB, error=text)}"""
    found = {(m, n): dict(rounds=[], first=[], foreign=[], peak=0.0, error="") for m in a.models
             for n, _, _ in who}
    for r in range(a.rounds + 1):
        watch = r == a.rounds  # the last round is for memory alone
        for m in a.models:
            for name, command, env in who[r % len(who):] + who[:r % len(who)]:
                f = found[m, name]
                if f["error"] or watch and name.startswith("GEMMs"):
                    continue
                if watch:
                    f["peak"] = run_once(name, command(m, 2), env, cpus, True, a.limit).peak
                    continue
                run = run_clean(a, name, command(m, 1 + a.steps), env, cpus)
                f["error"] = run.error
                ms = middle(run.ms[1:])
                f["rounds"].append(ms)
                f["foreign"].append(run.foreign)
                if run.first:
                    f["first"].append(run.first)
                print(f"round {r + 1} {m:5} {name:53} {run.error or text(ms, ',.0f') + ' ms'}, "
                      f"others used {run.foreign:.0f} % of the host", file=sys.stderr, flush=True)
    return found


def middle(values):
    values = [v for v in values if v]
    return statistics.median(values) if values else None


def ratio(x, y):
    """median over rounds of x / y"""
    return middle([p / q for p, q in zip(x, y) if p and q])


def lowest(rows):
    """round by round, the lowest of several"""
    rows = [r for r in rows if r]
    return [min((x for x in column if x), default=None) for column in zip(*rows)]


def text(x, form):
    return "–" if x is None else format(x, form)


def table(a, who, found):
    for m in a.models:
        rounds = {n: found[m, n]["rounds"] for n, _, _ in who}
        floor = {k: lowest([rounds.get(n, []) for n in names]) for k, names in FLOORS.items()}
        peers = [n for n in rounds if n.startswith("PyTorch") and rounds[n]]
        best = min(peers, key=lambda n: middle(rounds[n]) or 9e9, default=None)
        print(f"\n### {m}, batch {BATCH[m]} of 256 tokens, float32, AdamW, no clipping\n")
        print("| | ms a step | tokens/s | × floor, causal | × floor, full | best PyTorch ÷ this "
              "| peak MiB | first step ends after s |\n|---|--:|--:|--:|--:|--:|--:|--:|")
        for n, _, _ in who:
            f, x = found[m, n], rounds[n]
            if f["error"]:
                print(f"| {n} | {' '.join(f['error'].split())[:150]} | | | | | | |")
                continue
            ms = middle(x)
            print(f"| {n}{' (best)' if n == best else ''} | {text(ms, ',.0f')} "
                  f"| {text(ms and TOKENS[m] / ms * 1e3, ',.0f')} "
                  f"| {text(ratio(x, floor['floor, causal']), '.2f')} "
                  f"| {text(ratio(x, floor['floor, full']), '.2f')} "
                  f"| {text(ratio(rounds[best], x) if best else None, '.2f')} "
                  f"| {text(f['peak'] or None, ',.0f')} "
                  f"| {text(None if n.startswith('GEMMs') else middle(f['first']), '.1f')} |")
    sys.stdout.flush()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--skein", default="")
    p.add_argument("--gemm", required=True)
    p.add_argument("--text", required=True)
    p.add_argument("--no-torch", dest="torch", action="store_false")
    p.add_argument("--blas", action="append", default=[], metavar="NAME=FOLDER")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--models", type=lambda s: s.split(","), default=["gpt2", "nano"])
    p.add_argument("--only", default="")
    p.add_argument("--foreign", type=float, default=6.0)
    p.add_argument("--limit", type=float, default=600, help="seconds that one run may take")
    p.add_argument("--json", default="")
    a = p.parse_args()
    cpus = sorted(os.sched_getaffinity(0))[:2]
    core, told = core_type(a.gemm)
    who = contenders(a, told)
    begin = time.time()
    found = measure(a, who, cpus)
    with open("/proc/cpuinfo") as f:
        cpu = next((x.split(":", 1)[1].strip() for x in f if x.startswith("model name")), "?")
    print(f"{cpu}, cores {cpus}, {a.rounds} rounds of {a.steps} steps, {time.time() - begin:.0f} s."
          f" OpenBLAS takes this processor for {core}"
          + (f"; floor and tuned peers run with OPENBLAS_CORETYPE={told}." if told else "."))
    worst = max(x for v in found.values() for x in v["foreign"] or [0])
    print(f"Others used at most {worst:.0f} % of the host during a run that was kept.")
    table(a, who, found)
    if a.json:
        with open(a.json, "w") as f:
            json.dump({f"{m}: {n}": v for (m, n), v in found.items()}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
