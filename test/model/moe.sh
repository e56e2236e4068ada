#!/bin/bash
# moe.sh - mixtures of experts by the commands: both models learn the alphabet and go on saying
# it, what is exported comes back to the bit, and config.json says what Mixtral's says.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"

alphabet=abcdefghijklmnopqrstuvwxyz
for _ in $(seq 200); do printf '%s' $alphabet; done >text

fail() {
    echo "$*"
    exit 1
}

# Windows of 32 bytes of the text begin with every other letter: no further, and from one of those.
goes_on() {
    local got
    got=$("$skein" sample "$1" --prompt ghijklm --tokens 25 --temp 0)
    [ "$got" = ghijklmnopqrstuvwxyzabcdefghijkl ] || fail "$1 says $got"
}

learn() { # name, then words
    local run=$1
    shift
    "$skein" train "$@" data.train=text train.batch=8 train.seq=32 train.threads=1 train.steps=250 optim.lr=1e-2 \
        val.every=0 sample.every=0 run="$run" >out 2>err || { cat out err; fail "$run: no training"; }
    goes_on "$run"
    "$skein" export "$run" "$run.hf" >"$run.note"
    goes_on "$run.hf"
    "$skein" import "$run.hf" run="$run.again" data.train=text train.seq=32 >out || fail "import: $(cat out)"
    rm -rf "$run.again/final"
    goes_on "$run.again"
    "$skein" export "$run.again" "$run.back" >out
    cmp "$run.hf/model.safetensors" "$run.back/model.safetensors" || fail "$run: not the same bits"
    cmp "$run.hf/config.json" "$run.back/config.json" || fail "$run: not the same sizes"
}

learn switch model=switch-tiny
learn mixtral model=mixtral-tiny
learn deep model=mixtral-tiny model.n_shared_experts=2 model.expert_groups=2 model.capacity_factor=1.5 \
    model.router_aux_loss_coef=0.013
learn biased model=mixtral-tiny model.router_bias_update_speed=0.001 model.router_aux_loss_coef=0

for word in '"MixtralForCausalLM"' '"model_type": "mixtral"' '"num_local_experts": 4' \
    '"num_experts_per_tok": 2' '"skein_router_aux_loss_coef": 0.02' '"rms_norm_eps": 1e-05'; do
    grep -q "$word" mixtral.hf/config.json || fail "config.json lacks $word: $(cat mixtral.hf/config.json)"
done
for k in gate experts.0.w1 experts.3.w2 experts.2.w3; do
    grep -qa "\"model.layers.1.block_sparse_moe.$k.weight\"" mixtral.hf/model.safetensors || fail "no $k"
done
grep -qa '"model.layers.0.block_sparse_moe.experts.1.w2.weight":{"dtype":"F32","shape":\[32,48\]' \
    mixtral.hf/model.safetensors || fail "the shape of w2"
grep -qa '"model.layers.1.block_sparse_moe.gate.e_score_correction_bias":{"dtype":"F32","shape":\[4\]' \
    biased.hf/model.safetensors || fail "no bias of the router"
grep -q '"router_bias_update_speed": 0.001' biased.hf/config.json || fail "no speed in config.json"
! grep -qa e_score_correction_bias mixtral.hf/model.safetensors || fail "a bias that nobody asked for"
grep -q 'note: other programs would leave out the bias of its routers$' biased.note || fail "no note: $(cat biased.note)"
grep -q 'leave out its shared experts, its groups of experts$' deep.note || fail "no note: $(cat deep.note)"
! grep -q note mixtral.note || fail "a note of nothing: $(cat mixtral.note)"
grep -q '"n_shared_experts": 2' deep.hf/config.json || fail "no shared experts in config.json"

refused() { # words of the message, then words of train
    local words=$1
    shift
    ! "$skein" train "$@" data.train=text train.steps=1 run=no >out 2>&1 || fail "not refused: $*"
    grep -q "$words" out || fail "$* says: $(cat out)"
}
refused 'num_experts_per_tok is 5' model=mixtral-tiny model.num_experts_per_tok=5
refused 'expert_groups 3' model=mixtral-tiny model.expert_groups=3
refused 'n_shared_experts is 1' model=switch-tiny model.n_shared_experts=1
refused 'num_local_experts is 0' model=switch-tiny model.num_local_experts=0
refused 'router_bias_update_speed is -1' model=switch-tiny model.router_bias_update_speed=-1
echo "four mixtures say the alphabet from three places; exports come back to the bit"
