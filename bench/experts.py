#!/usr/bin/python3
"""experts.py - is a layout that a search finds predicted no slower than a published expert's?

    experts.py --skein PROGRAM --rows FOLDER [--set headline|mlperf] [--rows-of TEXT] [--most N]
               [--search 25s] [--limit S] [--time S] [--kept FILE]

FOLDER has rows_headline.csv and mlperf.csv. Each row with a layout is priced as it was published,
and `skein plan --search` looks for one of as many ranks, on the same machine and with the same
batch. A line for each: both predictions, their ratio, CPU seconds of the search. --rows-of takes
rows whose name has TEXT, --most so many of each set; --limit is how many CPU seconds a search may
take in all (60: 30 s of two cores), and --time ends the table. --kept adds lines to FILE and takes
those that are there for told: the table can be made in pieces. Exit code 1: a row is slower, or
late.

The search has no expert's hints: it begins at its own recipes. Expert layouts that are predicted
not to fit are told with `does not fit`.
"""
import argparse
import csv
import io
import os
import resource
import subprocess
import sys
import time

import published


def expert(args, j, machine):
    """Seconds as the row has it, and why there are none."""
    seconds, why = published.price(args, j)
    return seconds, why.splitlines()[0][:90] if why else "", machine


def cpu_seconds():
    """Of the programs that were started and have ended; on a loaded machine they are no more."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def searched(args, j, machine):
    """The layout that is found, its seconds, how long that took; or why there is none."""
    command = [args.skein, "plan", *j["keys"], f"train.batch={j['gbs']}", f"train.seq={j['seq']}",
               f"train.dtype={j['dtype']}", "-n", str(j["ranks"]), "--cluster", machine,
               "--search", args.search, "-o", "csv"]
    begin = cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = cpu_seconds() - begin
    if done.returncode:
        return None, done.stderr.strip().splitlines()[0][:90] if done.stderr else "?", took
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    return float(rows[0]["step_s"]), rows[0]["layout"], took


def verdict(text):
    """Of a line: True where the search is no slower and in time; None: not told."""
    return None if " not told: " in text else not text.endswith("<<")


def line(args, j):
    """One row of the table."""
    machine = args.chips.get(j["chip"], j["chip"]) + ":" + j["engine"]
    theirs, why, _ = expert(args, j, machine)
    if theirs is None:
        return f"{j['id']:34s} not told: {why}"
    ours, found, took = searched(args, j, machine)
    if ours is None:
        return (f"{j['id']:34s} {j['ranks']:6d}  {theirs:9.4g}          -     -  {took:5.1f} s  "
                f"{found}  <<")
    good = ours <= theirs * 1.001 and took <= args.limit
    return (f"{j['id']:34s} {j['ranks']:6d}  {theirs:9.4g}  {ours:9.4g}  {ours / theirs:5.3f}"
            f"  {took:5.1f} s  {found}{'' if good else '  <<'}")


def kept_lines(args):
    """Id of a row -> its line."""
    if not args.kept or not os.path.exists(args.kept):
        return {}
    with open(args.kept, encoding="utf-8") as f:
        return {text.split()[0]: text.rstrip("\n") for text in f if text.strip()}


def told_of(args, j, kept):
    """The verdict on a row, which is printed, and kept if it is new."""
    text = kept.get(j["id"]) or line(args, j)
    print(text, flush=True)
    if args.kept and j["id"] not in kept:
        with open(args.kept, "a", encoding="utf-8") as f:
            f.write(text + "\n")
    return verdict(text)


def main():
    """The table."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--skein", default="build/release/skein")
    ap.add_argument("--rows", required=True)
    ap.add_argument("--set", default="")
    ap.add_argument("--rows-of", default="")
    ap.add_argument("--most", type=int, default=0)
    ap.add_argument("--search", default="25s")
    ap.add_argument("--limit", type=float, default=60)
    ap.add_argument("--kept", default="")
    ap.add_argument("--time", type=float, default=0)
    args = ap.parse_args()
    args.chips, args.plain, args.split, args.sample = dict(published.CHIPS), False, "", 0
    begin, told, kept = time.time(), [], kept_lines(args)
    print(f"{'row':34s} {'ranks':>6s}  {'expert_s':>9s}  {'search_s':>9s}  ratio  search  layout")
    for name in [args.set] if args.set else ["headline", "mlperf"]:
        jobs = [j for j in published.rows_of(args, name) if args.rows_of in j["id"]]
        for j in sorted(jobs, key=lambda j: j["ranks"])[:args.most or len(jobs)]:
            if args.time and time.time() - begin > args.time:
                break
            told.append(told_of(args, j, kept))
    known = [t for t in told if t is not None]
    print(f"{sum(known)} of {len(known)} rows: the search's layout is predicted no slower, within "
          f"{args.limit:g} CPU s; {len(told) - len(known)} not told")
    sys.exit(not known or not all(known))


if __name__ == "__main__":
    main()
