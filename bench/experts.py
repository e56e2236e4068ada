#!/usr/bin/python3
"""experts.py - is a layout that a search finds predicted no slower than a published expert's?

    experts.py --skein PROGRAM --rows FOLDER [--set headline|mlperf] [--rows-of TEXT] [--most N]
               [--search 25s] [--limit S] [--time S]

FOLDER has rows_headline.csv and mlperf.csv. Each row with a layout is priced as it was published,
and `skein plan --search` looks for one of as many ranks, on the same machine and with the same
batch. A line for each: both predictions, their ratio, seconds of the search. --rows-of takes rows
whose name has TEXT, --most so many of each set; --limit is how long a search may take in all
(30), and --time ends the table. Exit code 1: a row is slower, or late.

The search has no expert's hints: it begins at its own recipes. Expert layouts that are predicted
not to fit are told with `does not fit`.
"""
import argparse
import csv
import io
import subprocess
import sys
import time

import published


def expert(args, j, machine):
    """Seconds as the row has it, and why there are none."""
    seconds, why = published.price(args, j)
    return seconds, why.splitlines()[0][:90] if why else "", machine


def searched(args, j, machine):
    """The layout that is found, its seconds, how long that took; or why there is none."""
    command = [args.skein, "plan", *j["keys"], f"train.batch={j['gbs']}", f"train.seq={j['seq']}",
               f"train.dtype={j['dtype']}", "-n", str(j["ranks"]), "--cluster", machine,
               "--search", args.search, "-o", "csv"]
    begin = time.time()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.time() - begin
    if done.returncode:
        return None, done.stderr.strip().splitlines()[0][:90] if done.stderr else "?", took
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    return float(rows[0]["step_s"]), rows[0]["layout"], took


def line(args, j):
    """One row of the table: True where the search is no slower and in time; None: not told."""
    machine = args.chips.get(j["chip"], j["chip"]) + ":" + j["engine"]
    theirs, why, _ = expert(args, j, machine)
    if theirs is None:
        print(f"{j['id']:34s} not told: {why}", flush=True)
        return None
    ours, found, took = searched(args, j, machine)
    if ours is None:
        print(f"{j['id']:34s} {j['ranks']:6d}  {theirs:9.4g}          -     -  {took:5.1f} s  {found}",
              flush=True)
        return False
    good = ours <= theirs * 1.001 and took <= args.limit
    print(f"{j['id']:34s} {j['ranks']:6d}  {theirs:9.4g}  {ours:9.4g}  {ours / theirs:5.3f}"
          f"  {took:5.1f} s  {found}{'' if good else '  <<'}", flush=True)
    return good


def main():
    """The table."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--skein", default="build/release/skein")
    ap.add_argument("--rows", required=True)
    ap.add_argument("--set", default="")
    ap.add_argument("--rows-of", default="")
    ap.add_argument("--most", type=int, default=0)
    ap.add_argument("--search", default="25s")
    ap.add_argument("--limit", type=float, default=30)
    ap.add_argument("--time", type=float, default=0)
    args = ap.parse_args()
    args.chips, args.plain, args.split, args.sample = dict(published.CHIPS), False, "", 0
    begin, told = time.time(), []
    print(f"{'row':34s} {'ranks':>6s}  {'expert_s':>9s}  {'search_s':>9s}  ratio  search  layout")
    for name in [args.set] if args.set else ["headline", "mlperf"]:
        jobs = [j for j in published.rows_of(args, name) if args.rows_of in j["id"]]
        for j in sorted(jobs, key=lambda j: j["ranks"])[:args.most or len(jobs)]:
            if args.time and time.time() - begin > args.time:
                break
            told.append(line(args, j))
    known = [t for t in told if t is not None]
    print(f"{sum(known)} of {len(known)} rows: the search's layout is predicted no slower, within "
          f"{args.limit:g} s; {len(told) - len(known)} not told")
    sys.exit(not known or not all(known))


if __name__ == "__main__":
    main()
