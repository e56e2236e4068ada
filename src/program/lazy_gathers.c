/* lazy_gathers.c - updated weights are made whole where the next step first reads them (zero=1, 2).
 *
 * An update leaves each rank of the shard axis the shard of the weights that it has updated.  To
 * gather the others behind the update would leave nothing to do meanwhile.  So a step ends with
 * shards, and the next one gathers them in buckets, in the order in which its tasks first read
 * them, while the layers before them compute.  Megatron calls it overlapped gather of parameters,
 * FSDP forward prefetch.
 *
 * All gathers start where the section begins, so that those of a stage of a pipeline are under way
 * before its first message comes.  Calls of one group are done one after the other: where ranks
 * along the shard axis also exchange activations, only a few gathers are ahead of these.
 *
 * The whole weight keeps its place in memory, and between sections only this rank's shard of it is
 * up to date: what reads weights there (checkpoints, relayout) takes sk_param_kept.  Validations
 * follow a gather of all (sk_program.n_mean).
 *
 * It is not for weights that ranks have in one memory (replica), that change within a step, or that
 * are placed outside of the device: these are gathered behind their update (update.c). */
#include "program/lowering.h"

/* Buckets of a step, which is half of what waits.c has under way; and of those, how many are
 * started ahead of the one that is read, where others use their group. */
enum { MOST = SK_COMM_FLIGHT / 4, FEW = 2 };

bool sk_lower_is_lazy(const sk_lowering *e, const sk_param_plan *q)
{
    return q->shard != q->stored && !e->l->replica && !e->l->home[SK_PARAMS] &&
           !e->plan.schedule->async;
}

typedef struct sk_lazy_bucket {
    sk_ints params;
    int64_t bytes;
    int narrow;
    sk_level_calls calls; /* that are not started */
} bucket;

struct sk_lazy {
    bucket *v; /* in the order in which their first weights are read */
    int n, cap;
    int64_t least;             /* bytes that fill a bucket */
    int *bucket_of;            /* by parameter: 1 + its bucket; 0: it is not gathered so */
    int started, ended, ahead; /* of a gather over two axes the second part ends it */
};

/* The bucket that has room for weights of this width; a call moves elements of one type. */
static bucket *open_bucket(sk_lowering *e, int narrow)
{
    struct sk_lazy *x = e->lazy;
    for (int i = x->n - 1; i >= 0; i--) {
        if (x->v[i].narrow != narrow) continue;
        if (x->v[i].bytes < x->least) return &x->v[i];
        break;
    }
    bucket *b = sk_push(e->tmp, x);
    *b = (bucket){.narrow = narrow};
    return b;
}

static void add(sk_lowering *e, int param)
{
    const sk_param_plan *q = &e->p->params.v[param];
    if (!q->lazy || e->lazy->bucket_of[param]) return;
    bucket *b = open_bucket(e, sk_narrow(q->tensor));
    *sk_push(e->tmp, &b->params) = param;
    b->bytes += sk_lower_logical(e, q->tensor);
    e->lazy->bucket_of[param] = 1 + (int)(b - e->lazy->v);
}

static void add_task(sk_lowering *e, sk_task t)
{
    const sk_ints *nodes = &e->plan.of_chunk[2 * t.chunk + (t.work != SK_WORK_F)];
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        if (!sk_lower_in_task(e, n, t) || sk_node_validates(e->g, n)) continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k]->role == SK_PARAM) add(e, e->plan.param_of[n->in[k]->id]);
    }
}

/* Buckets in the order of first uses: tasks of a chunk read alike in all micro-batches. */
static void fill_buckets(sk_lowering *e)
{
    const sk_tasks *tasks = &e->tasks[e->p->stage];
    int chunks = 0;
    for (int i = 0; i < tasks->n; i++)
        if (tasks->v[i].chunk >= chunks) chunks = tasks->v[i].chunk + 1;
    char *seen = sk_many(e->tmp, char, (chunks + 1) * SK_WORK_U);
    for (int i = 0; i < tasks->n; i++) {
        sk_task t = tasks->v[i];
        if (t.work == SK_WORK_U || seen[t.chunk * SK_WORK_U + (int)t.work]++) continue;
        add_task(e, t);
    }
}

static void start(sk_lowering *e, bucket *b)
{
    sk_program *p = e->p;
    for (int i = 0; i < b->params.n; i++) {
        const sk_param_plan q = p->params.v[b->params.v[i]];
        sk_lower_join_levels(e, &b->calls, &q, q.shard, q.stored, 0,
                             sk_print(p->arena, "weights from %s", q.tensor->name));
    }
    sk_lower_start_level(e, &b->calls, 0, SK_FLIES_ON);
}

static void start_up_to(sk_lowering *e, int last)
{
    struct sk_lazy *x = e->lazy;
    for (; x->started <= last && x->started < x->n; x->started++) start(e, &x->v[x->started]);
}

/* The second part waits for the first: it starts shortly before it is needed. */
static void end_up_to(sk_lowering *e, int last)
{
    struct sk_lazy *x = e->lazy;
    for (; x->ended <= last && x->ended < x->started; x->ended++)
        sk_lower_start_level(e, &x->v[x->ended].calls, 1, SK_FLIES_ON);
}

void sk_lower_lazy_begin(sk_lowering *e)
{
    const sk_program *p = e->p;
    struct sk_lazy *x = e->lazy = sk_new(e->tmp, struct sk_lazy);
    int64_t bytes = 0;
    for (int i = 0; i < p->params.n; i++)
        if (p->params.v[i].lazy) bytes += sk_lower_logical(e, p->params.v[i].tensor);
    x->least = bytes / MOST < sk_lower_bucket(e) ? sk_lower_bucket(e) : bytes / MOST + 1;
    x->bucket_of = sk_many(e->tmp, int, p->params.n + 1);
    fill_buckets(e);
    x->ahead = x->n;
    for (int a = 0; bytes && a < e->l->mesh.n; a++)
        if (sk_layout_shards(e->l, a) && sk_layout_repeats(e->l, a)) x->ahead = FEW;
    e->at.task = 0;
    e->at.micro = -1;
    e->at.layer = 0;
    e->at.phase = SK_FORWARD;
    start_up_to(e, x->ahead - 1);
}

void sk_lower_lazy(sk_lowering *e, int param)
{
    if (!e->training || !e->p->params.v[param].lazy) return;
    sk_assert(e->lazy->bucket_of[param]);
    int at = e->lazy->bucket_of[param] - 1;
    start_up_to(e, at + e->lazy->ahead);
    end_up_to(e, at + 1);
}
