#!/usr/bin/python3
"""regret.py - how much slower is the best of three predicted layouts than the best measured one?

    regret.py --skein PROGRAM --rows FOLDER [--split calib|dev] [--cells N] [--jobs N] [--time S]

FOLDER has nanotron_sweep.csv, a sweep of layouts that its authors measured. A cell is a model on a
number of nodes; of its layouts that were measured well skein predicts every one, and the three
that it calls fastest are compared by what was measured: the regret of a cell is how much slower
the best of the three is than the best of all. Cells of three layouts or fewer say nothing and are
left out. Layouts without a price are not among the three. --time ends it after so many seconds,
with the cells so far. Exit code 1: fewer than 90 % of the cells have a regret of 6 % or less.
"""
import argparse
import concurrent.futures
import csv
import os
import sys
import time

import published

MUST, SHARE, TOP = 6.0, 0.9, 3


def cells_of(args):
    """Cell -> its jobs, one for each layout: of repeated ones the fastest."""
    cells = {}
    with open(os.path.join(args.rows, "nanotron_sweep.csv"), newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            job = published.nanotron(row) if not args.split or row["split"] == args.split else None
            if not job:
                continue
            layouts = cells.setdefault((row["model"], int(row["nodes"])), {})
            key = (job["words"], job["micro"])
            if key not in layouts or job["seconds"] < layouts[key]["seconds"]:
                layouts[key] = job
    return {c: list(v.values()) for c, v in sorted(cells.items()) if len(v) > TOP}


def regret_of(priced):
    """Per cent, and the layout that was chosen; None where fewer than three have a price."""
    known = sorted((p, j["id"], j) for j, p in priced if p)
    if len(known) < TOP:
        return None, ""
    best = min(j["seconds"] for j, _ in priced)
    chosen = min((k[2] for k in known[:TOP]), key=lambda j: j["seconds"])
    return 100 * (chosen["seconds"] / best - 1), chosen["id"]


def main():
    """A line for each cell, and how many are good."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--skein", default="build/release/skein")
    ap.add_argument("--rows", required=True)
    ap.add_argument("--split", default="")
    ap.add_argument("--cells", type=int, default=0)
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--time", type=float, default=0)
    args = ap.parse_args()
    args.chips, args.plain = dict(published.CHIPS), False
    begin, all_regrets = time.time(), []
    cells = list(cells_of(args).items())
    for (model, nodes), jobs in cells[:args.cells or len(cells)]:
        if args.time and time.time() - begin > args.time:
            break
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            prices = list(pool.map(lambda j: published.price(args, j)[0], jobs))
        regret, chosen = regret_of(list(zip(jobs, prices)))
        lost = sum(p is None for p in prices)
        if regret is None:
            print(f"{model:4s} {nodes:3d} nodes  {len(jobs):3d} layouts  {lost} without a price", flush=True)
            continue
        all_regrets.append(regret)
        print(f"{model:4s} {nodes:3d} nodes  {len(jobs):3d} layouts  regret {regret:6.2f} %  {chosen}"
              + (f"  ({lost} without a price)" if lost else ""), flush=True)
    good = sum(r <= MUST for r in all_regrets)
    share = good / len(all_regrets) if all_regrets else 0
    print(f"{good} of {len(all_regrets)} cells within {MUST:g} % ({100 * share:.0f} %; must {100 * SHARE:.0f} %), "
          f"{len(cells) - len(all_regrets)} of {len(cells)} not told")
    sys.exit(share < SHARE)


if __name__ == "__main__":
    main()
