#!/bin/bash
# onebit.sh - 1-bit Adam from the command line.
#
# Up to optim.freeze_step a run has the bytes of adamw.  Resumed before and behind that step it ends with the same bytes.  What
# is owed is in checkpoints, a term for each rank, and is read by runs with another number of ranks, or with other axes beside.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny data.train=text data.tokenizer=byte train.steps=12 train.batch=12 train.seq=32
    optim.weight_decay=0.1 optim.betas=0.9,0.95 optim.warmup=2 ckpt.every=3 ckpt.keep=0 sample.every=0 log.every=0 val.every=6)
onebit=(optim.name=onebit-adam optim.freeze_step=5)

for l in dp=1 dp=2 dp=3; do
    train "warm-$l" "${onebit[@]}" layout=$l train.steps=5
    train "adamw-$l" layout=$l train.steps=5 optim.name=adamw
    same "warm-$l" "adamw-$l"
done
job+=("${onebit[@]}")

for l in dp=2 "dp=2 tp=2" "pp=2 dp=2 micro=2" "mesh hosts=2 dp=2; split b over hosts; split b over dp; shard state over dp"; do
    train whole layout="$l"
    "$skein" verify whole >said || { cat said; fail "$l: not verified"; }
    for at in 3 6 9; do
        train again layout="$l" resume=whole/ckpt/step-000000000$at
        same again whole
        rm -r again
    done
    grep -q '"wte.error"' whole/ckpt/step-0000000009/MANIFEST.json || fail "$l: what is owed is not in the checkpoint"
    grep -q '"wte.replica"' whole/ckpt/step-0000000009/MANIFEST.json && fail "$l: replicas in the checkpoint"
    for other in dp=1 dp=2 dp=4 "dp=2 tp=2"; do
        train other layout="$other" resume=whole/ckpt/step-0000000009
        rm -r other
    done
    rm -r whole
done

# A step that runs again, of experts or of kept results that had no room, sends what it owes once.
for l in dp=2 "pp=2 dp=2 micro=2" "mesh hosts=2 dp=2; split b over hosts; split b over dp; shard state over dp"; do
    train roomy layout="$l" model=mixtral-tiny train.steps=9
    train full layout="$l" model=mixtral-tiny train.steps=9 model.capacity_factor=1 train.dropless=1
    same full roomy
    [ "$(grep -c '"again":1' full/metrics.jsonl)" = 9 ] || fail "$l: no step of experts ran again"
    train kept layout="$l" model=switch-tiny model.num_hidden_layers=6 train.steps=9
    [[ "$l" = mesh* ]] && line="; " || line=" " # words of a long form stand in a line of their own
    train packed layout="$l${line}gist=5" model=switch-tiny model.num_hidden_layers=6 train.steps=9
    same packed kept
    [ "$(grep -c '"again":1' packed/metrics.jsonl)" = 9 ] || fail "$l: no step with gist ran again"
    rm -r roomy full kept packed
done

refused 78 "order=canonical loses nothing" "${job[@]}" layout=dp=2 order=canonical run=no
refused 78 "leave out zero" "${job[@]}" layout="dp=2 zero=1" run=no
refused 78 "all groups need an optimizer that does so" "${job[@]}" layout=dp=2 optim.groups="wte: sgd" run=no
refused 78 "optim.state=f32" "${job[@]}" layout=dp=2 optim.state=bf16 run=no
refused 78 "stop and resume with the other layout" "${job[@]}" layout=dp=2 train.relayout="5: tp=2" run=no
echo "onebit: $runs models with the same bytes, $checks refusals"
