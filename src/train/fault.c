/* fault.c - breaking a run on purpose, for tests. */
#include "train/fault.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fault {
    char what[8], first[8];
    long long batch;
    int rank;
} fault;

static int grad_of(const sk_inst *in)
{
    for (int o = 0; in->act == SK_DO_OP && o < in->node->n_out; o++)
        if (in->node->into[o] && in->node->into[o]->role == SK_PARAM) return in->out[o];
    return -1;
}

int sk_fault_at(const sk_program *p, bool first, int *buf)
{
    int at = 0;
    for (int i = 0; i < p->n_train && !(first && at); i++) {
        int made = grad_of(&p->insts.v[i]);
        if (made < 0 || !p->bufs.v[made].bytes) continue;
        *buf = made;
        at = i + 1;
    }
    return at;
}

static bool read_fault(fault *f)
{
    const char *text = getenv("SKEIN_FAULT");
    *f = (fault){0};
    return text && sscanf(text, "%7[a-z]:%lld:%d:%7s", f->what, &f->batch, &f->rank, f->first) >= 3;
}

/* The instruction before which it happens, and the buffer. */
static int place(const fault *f, const sk_program *p, int *buf)
{
    if (strcmp(f->what, "state") != 0) return sk_fault_at(p, *f->first, buf);
    if (!p->params.n) return 0;
    const sk_param_plan *q = &p->params.v[0];
    *buf = q->master >= 0 ? q->master : q->shard;
    return p->n_train - 1;
}

/* "slow:20:1:4": rank 1 takes 20 ms longer for every fourth step. */
static void be_slow(const fault *f, const sk_run *r, int64_t batch, int pc)
{
    int buf = -1;
    long every = *f->first ? strtol(f->first, NULL, 10) : 1;
    if (pc != sk_fault_at(sk_run_program(r), false, &buf) || (batch + 1) % (every > 1 ? every : 1))
        return;
    usleep((useconds_t)(1000 * f->batch));
}

static void before(void *ctx, const sk_run *r, int64_t batch, int pc)
{
    fault f;
    int buf = -1;
    (void)ctx;
    if (!read_fault(&f)) return;
    if (!strcmp(f.what, "slow")) {
        be_slow(&f, r, batch, pc);
        return;
    }
    if (batch + 1 != f.batch) return;
    if (pc != place(&f, sk_run_program(r), &buf) || buf < 0) return;
    float bad = strcmp(f.what, "inf") ? NAN : INFINITY;
    sk_dtype type = sk_run_program(r)->bufs.v[buf].type;
    double one;
    sk_convert(&one, type, &bad, SK_F32, 1);
    if (sk_run_poke(r, buf, &one, sk_dtype_size(type))) fprintf(stderr, "%s\n", sk_error());
}

void sk_fault_arm(sk_run_opts *o, int rank)
{
    fault f;
    if (read_fault(&f) && f.rank == rank) o->before = before;
}

static bool read_clock(double *times)
{
    const char *text = getenv("SKEIN_FAULT");
    *times = 1;
    if (text && sscanf(text, "clock:%lf", times) == 1 && *times >= 1 && *times <= 1e9) return true;
    *times = 1;
    return false;
}

double sk_fault_clock(void)
{
    double times;
    return read_clock(&times) ? times : 1;
}

sk_status sk_fault_check(void)
{
    static const char *const known[] = {"nan", "inf", "state", "slow"};
    const char *text = getenv("SKEIN_FAULT");
    fault f;
    double times;
    if (!text || !*text || read_clock(&times)) return SK_OK;
    bool right = read_fault(&f) && f.batch >= 0 && f.rank >= 0, any = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) any |= !strcmp(f.what, known[i]);
    if (right && any) return SK_OK;
    return sk_fail(SK_ECONF,
                   "environment: SKEIN_FAULT is \"%.40s\"; it breaks a run on purpose, by nan, inf "
                   "or state:BATCH:RANK, slow:MILLISECONDS:RANK or clock:TIMES; unset it, or see "
                   "doc/errors.md",
                   text);
}

sk_status sk_fault_reaches(const sk_setup *s)
{
    fault f;
    int buf = -1;
    if (!read_fault(&f)) return SK_OK;
    if (f.rank >= s->n_ranks)
        return sk_fail(
            SK_ECONF, "environment: SKEIN_FAULT is for rank %d, and the job has %d, counted from 0",
            f.rank, s->n_ranks);
    place(&f, s->programs[f.rank], &buf);
    if (!strcmp(f.what, "slow") || buf >= 0) return SK_OK;
    bool state = !strcmp(f.what, "state");
    return sk_fail(
        SK_ECONF,
        "environment: SKEIN_FAULT is for a %s of rank %d, which has none in this layout; "
        "name another rank",
        state ? "weight" : "gradient", f.rank);
}
