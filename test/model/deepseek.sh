#!/bin/bash
# deepseek.sh - a model with sizes of its own, against models that it must equal.
#
# With plain layers alone it is Llama, and weights end up equal; with every expert chosen the softmax
# of all logits is that of the chosen ones, so it is Mixtral.  Its sizes go into config.json,
# config.yaml and checkpoints, and come back.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp README.md "$work/text"
cd "$work"

train() { # run directory, more words
    local run=$1
    shift
    timeout 60 "$skein" train data.train=text data.tokenizer=byte train.batch=4 train.seq=24 train.threads=1 train.steps=5 \
        optim.schedule=constant optim.warmup=0 val.every=0 sample.every=0 log.every=0 run="$run" "$@" >"$run.out" 2>&1 || { cat "$run.out"; exit 1; }
}
losses() { sed -nE 's/.*"step":([0-9]+),"loss":([-+0-9.e]+).*/\1 \2/p' "$1/metrics.jsonl"; }
near() { # two runs
    paste <(losses "$1") <(losses "$2") | awk '{ d = $2 - $4; n++; if (d > 1e-5 || d < -1e-5) bad++ } END { exit !(n == 5 && !bad) }' ||
        { echo "$1 and $2 differ:"; paste <(losses "$1") <(losses "$2"); exit 1; }
}

sizes=(model.hidden_size=32 model.num_hidden_layers=2 model.num_attention_heads=4 model.num_key_value_heads=2
    model.vocab_size=256 model.max_position_embeddings=64 model.norm_eps=1e-5 model.rope_theta=10000)
train plain model.arch=deepseek "${sizes[@]}" model.intermediate_size=88 model.first_k_dense_replace=2
train llama model.arch=llama "${sizes[@]}" model.intermediate_size=88
[ "$(losses plain)" = "$(losses llama)" ] || { near plain llama; echo "plain and llama are near, but not equal"; exit 1; }

experts=(model.num_experts_per_tok=4 model.num_local_experts=4 model.n_shared_experts=2 model.router_aux_loss_coef=0.01)
train many model.arch=deepseek "${sizes[@]}" "${experts[@]}" model.intermediate_size=48
train mixtral model.arch=mixtral "${sizes[@]}" "${experts[@]}" model.intermediate_size=48
near many mixtral

train tiny model=deepseek-tiny
grep -q '"first_k_dense_replace": 1' tiny/final/config.json || { cat tiny/final/config.json; exit 1; }
grep -q "moe_intermediate_size: 24" tiny/config.yaml || { cat tiny/config.yaml; exit 1; }
train on model=deepseek-tiny resume=tiny/ckpt/step-0000000005 train.steps=7
train through model=deepseek-tiny train.steps=7
cmp on/final/model.safetensors through/final/model.safetensors
train two model=deepseek-tiny -n 2 layout=ep=2
near tiny two
"$skein" export tiny/ckpt/step-0000000005 hf >export.out 2>&1 || { cat export.out; exit 1; }
cmp hf/model.safetensors tiny/final/model.safetensors
train again model=hf # the weights of the directory: another first loss than that of the start values
if [ "$(losses again | head -1)" = "$(losses tiny | head -1)" ]; then echo "the directory's weights were not read"; exit 1; fi
if "$skein" plan model=deepseek-tiny model.first_k_dense_replace=-1 >bad.out 2>&1; then cat bad.out; exit 1; fi
grep -q "first_k_dense_replace is -1" bad.out || { cat bad.out; exit 1; }

echo "deepseek: equal to llama and mixtral where it must be; its sizes come back"
