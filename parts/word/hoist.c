/* hoist.c - the first gather of sharded weights of a task starts during the task before it.
 *
 * Gathers of a task start where the task begins, and `prefetch` moves those of later layers to
 * earlier layers of the same task.  The first ones have nothing to hide behind: every task begins
 * with a wait.  The pass moves them, across the end of the task before, to where the last layer of
 * that task begins to compute.  FSDP calls it forward and backward prefetch.  The gathered weights
 * of one more layer are alive meanwhile.
 *
 * A gather moves only past instructions that do not write what it reads: an update of the weights,
 * where stages update on their own, stays before it. */
#include "layout/word.h"
#include "program/acts.h"
#include "program/pass.h"

typedef struct range {
    int from, to;
} range;

static bool gathers(const sk_program *p, const sk_inst *in) /* weights of a layer */
{
    return in->act == SK_DO_START && p->calls.v[in->call].param_set;
}

static bool starts_gather(const sk_program *p, const sk_inst *in)
{
    return in->act == SK_DO_ENCODE || gathers(p, in);
}

/* The task that begins at `from`. */
static range task_at(const sk_program *p, int from, int end)
{
    range r = {from, from + 1};
    while (r.to < end && p->insts.v[r.to].task == p->insts.v[from].task) r.to++;
    return r;
}

/* The first node of its last layer: gathers of that layer itself have been started before. */
static int last_layer(const sk_program *p, range task)
{
    const sk_inst *v = p->insts.v;
    int at = task.to - 1;
    while (at > task.from && v[at - 1].layer == v[task.to - 1].layer) at--;
    while (at < task.to - 1 && v[at].act != SK_DO_OP) at++;
    return at;
}

/* The gather at pc, with the encodings before it; returns how many instructions moved. */
static int hoist_one(sk_program *p, sk_arena *tmp, int pc, range before, int to)
{
    const sk_inst *v = p->insts.v;
    int from = pc;
    while (from > before.to && v[from - 1].act == SK_DO_ENCODE &&
           sk_insts_depend(p, &v[from - 1], &v[pc]))
        from--;
    for (int i = to; i < from; i++)
        for (int k = from; k <= pc; k++)
            if (sk_insts_depend(p, &v[i], &v[k])) return 0;
    p->calls.v[v[pc].call].flies = SK_FLIES_ON;
    sk_insts_move(p, tmp, from, pc + 1 - from, to);
    return pc + 1 - from;
}

/* The first gather of the task, and those that start with it. */
static void hoist_task(sk_program *p, sk_arena *tmp, range before, range task)
{
    int to = last_layer(p, before), pc = task.from;
    while (pc < task.to && !gathers(p, &p->insts.v[pc])) pc++;
    for (; pc < task.to && starts_gather(p, &p->insts.v[pc]); pc++) {
        if (!gathers(p, &p->insts.v[pc])) continue;
        int n = hoist_one(p, tmp, pc, before, to);
        to += n;
        before.to += n;
    }
}

static void hoist_section(sk_program *p, sk_arena *tmp, int from, int end)
{
    range before = {-1, -1};
    for (int pc = from; pc < end;) {
        range task = task_at(p, pc, end);
        bool both =
            before.from >= 0 && p->insts.v[before.from].task >= 0 && p->insts.v[pc].task >= 0;
        if (both) hoist_task(p, tmp, before, task);
        before = task;
        pc = task.to;
    }
}

static sk_status hoist(sk_program *p, sk_arena *tmp)
{
    hoist_section(p, tmp, 0, p->n_train);
    hoist_section(p, tmp, p->n_train, p->insts.n);
    return SK_OK;
}

static const sk_pass pass = {
    .station = "buckets", .doc = "first gathers of a task start in the task before", .list = hoist};

const sk_word sk_word_hoist = {
    .name = "hoist",
    .doc = "the first weights of a task are gathered during the task before",
    .sentence = {"gather weights across tasks"},
    .example = "dp=2 zero=3 hoist",
    .alias = {{"forward_prefetch", "hoist"}, {"backward_prefetch", "hoist"}},
    .kind = SK_WORD_FLAG,
    .place = 105,
    .works = sk_words_gathered,
    .about = "weights that are gathered, and every rank has them whole",
    .cure = "zero=3 (shard params over AXIS)",
    .lowers = SK_LOWERS_WAITING,
    .pass = {&pass},
};
