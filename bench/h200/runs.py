#!/usr/bin/env python3
"""runs.py - one run of a contender, measured from outside; tables of many.

    runs.py run --results FILE --who NAME --model NAME --steps N --warm N [--limit S] -- COMMAND ...
    runs.py table --results FILE [--must MODEL=TOK_S,...] [--goal MODEL=TOK_S,...]

bench/h200.sh calls this.  A COMMAND that has a word with @RUN@ in it is `skein train`: the word
gets a fresh folder, and the run is ended, by SIGKILL, when metrics.jsonl there has N + warm steps.
What it would save at its end is not measured and may be 25 GB.  Any other command ends by itself
and prints one line of JSON (torch_peer.py), or CSV (`skein bench step -o csv`).

One line of JSON for each run is added to FILE:
    ms        median of the steps behind the first --warm ones, as the contender tells them
    ms_clock  the same by this program's clock, from line to line of metrics.jsonl; it is 0 if
              unknown, and the two must not differ by much
    first_s   seconds from the start of the process to the end of its first step
    own_gib   peak of device memory as the contender counts it; for PyTorch, of what it allocated
    smi_gib   peak of what nvidia-smi shows as used on the GPU, less what it showed before: this
              has the CUDA context and the allocator's cache too, and is the same meter for all
"""
import argparse
import csv
import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PEAK = 989.4e12  # dense bf16 of an H200 (SXM), by its datasheet
# name in the table, layers, width, hidden, words, gated, batch, seq
MODELS = {
    "gpt2": ("GPT-2 124M", 12, 768, 3072, 50304, False, 64, 1024),
    "gpt2-xl": ("GPT-2 1.5B", 48, 1600, 6400, 50304, False, 16, 1024),
    "llama-1b": ("Llama-shaped 0.89B", 16, 2048, 5632, 32768, True, 16, 2048),
}
WHO = (("eager", "PyTorch eager"), ("compile", "PyTorch compile"), ("skein", "skein"))


# ---- one run

class Meter(threading.Thread):
    """Used memory of the first GPU, MiB, twice a second, by one nvidia-smi that stays."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.child, self.ready = 0.0, None, threading.Event()
        self.before = self.look()
        for _ in range(20):  # what the last run had may still be on its way back
            if self.before is None or self.before < 1024:
                break
            time.sleep(0.5)
            now = self.look()
            self.before = self.before if now is None else min(self.before, now)

    @staticmethod
    def words():
        return ["nvidia-smi", "-i", "0", "--query-gpu=memory.used",
                "--format=csv,noheader,nounits"]

    def look(self):
        try:
            out = subprocess.run(self.words(), stdout=subprocess.PIPE, text=True, timeout=30,
                                 stderr=subprocess.DEVNULL, check=True)
            return float(out.stdout.split()[0])
        except (OSError, ValueError, IndexError, subprocess.SubprocessError):
            return None

    def run(self):
        if self.before is None:
            self.ready.set()
            return
        self.child = subprocess.Popen([*self.words(), "-lms", "500"], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True)
        for line in self.child.stdout:
            self.ready.set()
            try:
                self.peak = max(self.peak, float(line))
            except ValueError:
                pass

    def gib(self):
        if self.child:
            self.child.kill()
            self.child.wait()
        return max(0.0, self.peak - self.before) / 1024 if self.peak else 0.0


class Lines:
    """The steps of a metrics.jsonl as they come, and when each was seen."""

    def __init__(self, path):
        self.path, self.at, self.rest = path, 0, b""
        self.steps, self.seen = [], []

    def look(self):
        try:
            with open(self.path, "rb") as f:
                f.seek(self.at)
                new = f.read()
        except OSError:
            return
        self.at += len(new)
        *whole, self.rest = (self.rest + new).split(b"\n")
        for line in whole:
            d = json.loads(line)
            if "ms" in d and "loss" in d:
                self.steps.append(d)
                self.seen.append(time.time())


def stop(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def watch_train(a, child, lines, begin):
    """Until it has done its steps, failed, or taken too long; "" or what is wrong."""
    while len(lines.steps) < a.warm + a.steps:
        ended = child.poll()
        lines.look()
        if len(lines.steps) >= a.warm + a.steps:
            break
        if ended is not None:
            return f"ended with code {ended} after {len(lines.steps)} steps"
        if time.time() - begin > a.limit:
            return f"{len(lines.steps)} steps in {a.limit:.0f} s"
        time.sleep(0.005)
    return ""


def run_train(a, command, log):
    folder = tempfile.mkdtemp(prefix="skein-h200-")
    run = os.path.join(folder, "run")
    lines = Lines(os.path.join(run, "metrics.jsonl"))
    begin = time.time()
    child = subprocess.Popen([w.replace("@RUN@", run) for w in command], stdout=log,
                             stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wrong = watch_train(a, child, lines, begin)
    finally:
        stop(child)
        shutil.rmtree(folder, ignore_errors=True)
    if wrong:
        return dict(error=wrong)
    timed, seen = lines.steps[a.warm:a.warm + a.steps], lines.seen
    clock = (seen[a.warm + a.steps - 1] - seen[a.warm - 1]) / a.steps * 1e3
    middle = statistics.median(d["ms"] for d in timed)
    return dict(ms=middle, ms_least=min(d["ms"] for d in timed),
                ms_most=max(d["ms"] for d in timed), ms_clock=round(clock, 3),
                first_s=round(seen[0] - begin, 3), own_gib=round(timed[-1]["mem_bytes"] / 2**30, 2),
                losses=[d["loss"] for d in lines.steps])


def read_answer(text):
    """The JSON line of torch_peer.py, or the last row of skein bench step -o csv."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            d = json.loads(line)
            return dict(d, own_gib=d["peak_gib"])
    at = text.find("layout,ranks,")
    rows = list(csv.DictReader(io.StringIO(text[at:]))) if at >= 0 else []
    if not rows:
        return dict(error="printed no result")
    return dict(ms=float(rows[-1]["ms"]), own_gib=round(int(rows[-1]["mem_bytes"]) / 2**30, 2))


def run_whole(a, command, log):
    env = {**os.environ, "START": str(time.time())}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env,
                             start_new_session=True)
    try:
        out, _ = child.communicate(timeout=a.limit)
    except subprocess.TimeoutExpired:
        stop(child)
        return dict(error=f"not done in {a.limit:.0f} s")
    log.write(out.encode())
    if child.returncode:
        return dict(error=f"exit code {child.returncode}")
    return read_answer(out)


def tail(log):
    log.seek(0)
    return " / ".join(log.read().decode(errors="replace").strip().splitlines()[-4:])[-600:]


def run(a):
    command = a.command
    meter = Meter()
    meter.start()
    meter.ready.wait(10)  # its own start would slow that of the contender
    with tempfile.TemporaryFile() as log:
        try:
            whole = not any("@RUN@" in w for w in command)
            found = (run_whole if whole else run_train)(a, command, log)
        except OSError as e:
            found = dict(error=str(e))
        if "error" in found:
            found["said"] = tail(log)
    found = {**found, "who": a.who, "model": a.model, "smi_gib": round(meter.gib(), 2),
             "time": round(time.time()), "command": " ".join(command)}
    with open(a.results, "a") as f:
        f.write(json.dumps(found) + "\n")
    if "error" in found:
        print(f"{a.model:9} {a.who:8} {found['error']}: {found['said']}", file=sys.stderr)
        return 1
    tokens = MODELS[a.model][6] * MODELS[a.model][7]
    print(f"{a.model:9} {a.who:8} {found['ms']:9.2f} ms {tokens / found['ms'] * 1e3:10,.0f} tok/s  "
          f"first step {found.get('first_s', 0):6.2f} s  peak {found['own_gib']:6.2f} GiB, "
          f"nvidia-smi {found['smi_gib']:6.2f}", file=sys.stderr, flush=True)
    return 0


# ---- tables

def flops(model):
    """Of a token, forward and backward: 6 for each number of a matrix (the tied table once, as the
    head; positions not at all), and 6 * seq * width a layer for causal attention, the half of what
    full squares take."""
    _, layers, width, hidden, words, gated, _, seq = MODELS[model]
    matrices = layers * (4 * width * width + (3 if gated else 2) * width * hidden) + words * width
    return 6.0 * matrices + 6.0 * layers * seq * width


def read(path):
    """{(model, who): [run, ...]}, and of failed ones what they said"""
    good, bad = {}, {}
    with open(path) as f:
        for line in f:
            d = json.loads(line)
            (bad if "error" in d else good).setdefault((d["model"], d["who"]), []).append(d)
    return good, bad


def pairs(text):
    return {k: float(v) for k, v in (w.split("=") for w in text.split(",") if w)}


def cell(x, form):
    return "–" if not x else format(x, form)


def middle(runs, key):
    values = [r[key] for r in runs if r.get(key)]
    return statistics.median(values) if values else None


def speed(good, m, who):
    ms = middle(good.get((m, who), []), "ms")
    return MODELS[m][6] * MODELS[m][7] / ms * 1e3 if ms else None


def speeds(good, models, must, goal):
    print("| model, batch × seq | PyTorch eager, tok/s | PyTorch compile | skein | must | goal "
          "| skein ÷ compile | skein ms | MFU skein (compile), % |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for m in models:
        v = {who: speed(good, m, who) for who, _ in WHO}
        mfu = {who: v[who] and 100 * v[who] * flops(m) / PEAK for who in v}
        ratio = v["skein"] / v["compile"] if v["skein"] and v["compile"] else None
        ms = middle(good.get((m, "skein"), []), "ms")
        print(f"| {MODELS[m][0]}, {MODELS[m][6]} × {MODELS[m][7]} | {cell(v['eager'], ',.0f')} "
              f"| {cell(v['compile'], ',.0f')} | {cell(v['skein'], ',.0f')} "
              f"| {cell(must.get(m), ',.0f')} | {cell(goal.get(m), ',.0f')} "
              f"| {cell(ratio, '.2f')} | {cell(ms, '.1f')} "
              f"| {cell(mfu['skein'], '.1f')} ({cell(mfu['compile'], '.1f')}) |")


def costs(good, models):
    print("\n| model | | peak GiB, own count | peak GiB, nvidia-smi | start to first step, s "
          "| runs | ms least to most |\n|---|---|--:|--:|--:|--:|--:|")
    for m in models:
        for who, name in WHO:
            runs = good.get((m, who))
            if not runs:
                continue
            first = runs[0].get("first_s")  # later ones find caches
            print(f"| {MODELS[m][0]} | {name} | {cell(middle(runs, 'own_gib'), '.1f')} "
                  f"| {cell(middle(runs, 'smi_gib'), '.1f')} | {cell(first, '.1f')} | {len(runs)} "
                  f"| {min(r.get('ms_least', r['ms']) for r in runs):.1f} to "
                  f"{max(r.get('ms_most', r['ms']) for r in runs):.1f} |")


def table(a):
    good, bad = read(a.results)
    models = [m for m in MODELS if any(k[0] == m for k in good)]
    speeds(good, models, pairs(a.must), pairs(a.goal))
    costs(good, models)
    for (m, who), runs in good.items():
        for r in runs:
            clock = r.get("ms_clock")
            if clock and abs(clock / r["ms"] - 1) > 0.05:
                print(f"\nnote: {m}, {who}: the median step is {r['ms']:.2f} ms, but from line to "
                      f"line they took {clock:.2f} ms")
    for (m, who), runs in bad.items():
        print(f"\nfailed: {m}, {who}, {len(runs)} times: {runs[-1]['error']}: {runs[-1]['said']}")
    return 0


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="what", required=True)
    r = sub.add_parser("run")
    r.add_argument("--results", required=True)
    r.add_argument("--who", required=True, choices=[w for w, _ in WHO])
    r.add_argument("--model", required=True, choices=MODELS)
    r.add_argument("--steps", type=int, default=20)
    r.add_argument("--warm", type=int, default=5)
    r.add_argument("--limit", type=float, default=280)
    t = sub.add_parser("table")
    t.add_argument("--results", required=True)
    t.add_argument("--must", default="")
    t.add_argument("--goal", default="")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    a = p.parse_args(words[:at])
    a.command = words[at + 1:]
    if a.what == "run" and not a.command:
        p.error("run: the command is missing behind --")
    return run(a) if a.what == "run" else table(a)


if __name__ == "__main__":
    sys.exit(main())
