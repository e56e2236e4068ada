/* move.c - what a run keeps, moved between random pairs of layouts, byte for byte.
 *
 * Random small models with sizes that do not divide; two layouts of as many ranks,
 * {dp, tp, pp, zero} each, often with another batch.  Heaps are plain memory, filled with a
 * pattern; under the old layout every element of every kept tensor is a hash of its name and its
 * place in the whole tensor.  After the move the new layout must hold the same, and not a byte
 * outside the planned heap may have changed.  Each pair is moved on one host and on two, where what
 * is far goes by messages, and heaps of other hosts are not at hand.
 *
 *     program_move [SEED [COUNT]]      default: seed 1, 60 pairs */
#include "lib/check.h"
#include "lib/ranks.h"

#include "base/hash.h"
#include "base/rng.h"
#include "program/relayout_moves.h"

#include <stdlib.h>

enum { GUARD = 256, PATTERN = 0xa5 };

static uint64_t seed, drawn;
static int64_t own_bytes, near_bytes, far_bytes;

static int pick(int from, int to) /* both included */
{
    return from + (int)(sk_rng(seed, 0, drawn++).a % (uint64_t)(to - from + 1));
}

/* --- trials --- */

static void random_model(sk_trial *t)
{
    static const char *const archs[] = {"gpt2", "llama", "mlp"};
    static const char *const optims[] = {"adamw", "sgd", "lamb"};
    t->model = sk_model_find(archs[pick(0, 2)]);
    t->optim = optims[pick(0, 2)];
    t->hyper = t->model->usual;
    int heads = pick(1, 5);
    t->hyper.num_attention_heads = t->hyper.num_key_value_heads = heads;
    t->hyper.hidden_size = heads * 2 * pick(2, 4);
    t->hyper.num_hidden_layers = pick(1, 4);
    t->hyper.intermediate_size = pick(7, 40);
    t->hyper.vocab_size = pick(11, 47);
    t->hyper.max_position_embeddings = 32;
    t->hyper.tie_word_embeddings = pick(0, 1);
    t->hyper.input_size = pick(5, 30);
    t->batch = pick(1, 9);
    t->seq = pick(2, 13);
}

/* A random product of three axes that is n. */
static void random_layout(int n, char *text, size_t size)
{
    static const char *const orders[] = {"pp dp tp", "dp pp tp", "pp tp dp", "tp dp pp"};
    int dp, tp, pp;
    do dp = pick(1, 4), tp = pick(1, 4), pp = pick(1, 4);
    while (dp * tp * pp != n);
    int zero = pick(0, 3), micro = pick(1, 3), order = pick(0, 3);
    snprintf(text, size, "dp=%d tp=%d pp=%d zero=%d micro=%d order: %s", dp, tp, pp, zero, micro,
             orders[order]);
}

/* --- logical tensors by index --- */

static uint32_t value(uint64_t name, int64_t index)
{
    return (uint32_t)sk_hash(name, &index, sizeof index);
}

/* The place of element i of a dense piece in the whole tensor. */
static int64_t logical(const sk_extent *e, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = e->n - 1; d >= 0; d--) {
        at += (e->at[d] + i % e->size[d]) * step;
        i /= e->size[d];
        step *= e->full[d];
    }
    return at;
}

static int64_t count(const sk_buffer *b) { return b->bytes / (int64_t)sizeof(uint32_t); }

static void fill(const sk_buffer *b, char *heap)
{
    uint32_t *x = (uint32_t *)(void *)(heap + b->offset);
    uint64_t name = sk_hash_text(b->name);
    for (int64_t i = 0; i < count(b); i++) x[i] = value(name, logical(&b->box, i));
}

static bool holds(const sk_buffer *b, const char *heap, int rank)
{
    const uint32_t *x = (const uint32_t *)(const void *)(heap + b->offset);
    uint64_t name = sk_hash_text(b->name);
    for (int64_t i = 0; i < count(b); i++)
        if (x[i] != value(name, logical(&b->box, i))) {
            printf("rank %d: element %lld of '%s' is wrong\n", rank, (long long)i, b->name);
            return false;
        }
    return true;
}

/* The weights that this buffer is all or the updated shard of, and of which only that shard is up
 * to date; or NULL. */
static const sk_param_plan *lazy(const sk_program *p, int buf)
{
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (q->lazy && (q->stored == buf || q->shard == buf)) return q;
    }
    return NULL;
}

/* Kept buffers, asked of the program in the test's own way: all that are kept, whole but for lazy
 * weights, and of weights, state or memories. */
static bool is_state(const sk_program *p, int buf)
{
    const sk_buffer *b = &p->bufs.v[buf];
    const sk_param_plan *q = lazy(p, buf);
    if (q) return buf == q->shard;
    return b->keep && b->within < 0 && b->tensor && (b->kind == SK_WEIGHTS || b->zero);
}

/* --- moving --- */

typedef struct pair {
    sk_program **from, **to;
    int n;
    char *heap[SK_TEST_RANKS];
    int64_t bytes[SK_TEST_RANKS];
} pair;

static void open_heaps(pair *p, const sk_moves *m)
{
    for (int r = 0; r < p->n; r++) {
        p->bytes[r] = m->v[r].end;
        p->heap[r] = aligned_alloc(64, (size_t)(p->bytes[r] + GUARD + 63) / 64 * 64);
        sk_assert(p->heap[r]);
        memset(p->heap[r], PATTERN, (size_t)p->bytes[r] + GUARD);
        for (int i = 0; i < p->from[r]->bufs.n; i++)
            if (is_state(p->from[r], i)) fill(&p->from[r]->bufs.v[i], p->heap[r]);
    }
}

/* What rank r can see of the heaps. */
static void gather(const pair *p, const sk_moves *m, int r)
{
    char *seen[SK_TEST_RANKS];
    for (int q = 0; q < p->n; q++) seen[q] = sk_moves_far(m, r, q) ? NULL : p->heap[q];
    sk_move_gather(m, r, seen);
}

/* As ranks do it: all send, then each receives one message after the other. */
static bool messages(const pair *p, const sk_moves *m)
{
    int64_t at[SK_TEST_RANKS], out[SK_TEST_RANKS][SK_TEST_RANKS];
    bool ok = true;
    for (int r = 0; r < p->n; r++) {
        at[r] = m->v[r].out_at;
        for (int q = 0; q < p->n; q++) {
            int64_t n = sk_moves_far(m, r, q) ? sk_move_bytes(m, r, q) : 0;
            out[r][q] = at[r];
            if (n) sk_move_pack(m, r, q, p->heap[r], p->heap[r] + at[r]);
            at[r] += (n + 63) / 64 * 64;
        }
        ok &= at[r] == m->v[r].in_at;
    }
    for (int r = 0; r < p->n; r++)
        for (int q = 0; q < p->n; q++) {
            int64_t n = sk_moves_far(m, r, q) ? sk_move_bytes(m, q, r) : 0;
            char *in = p->heap[r] + m->v[r].in_at;
            ok &= m->v[r].in_at + n <= m->v[r].end;
            if (!n) continue;
            memcpy(in, p->heap[q] + out[q][r], (size_t)n);
            sk_move_unpack(m, q, r, p->heap[r], in);
        }
    return ok;
}

static bool moved_well(const pair *p, const sk_moves *m)
{
    bool ok = true;
    for (int r = 0; r < p->n; r++) {
        int64_t need = 0;
        for (int i = 0; i < p->to[r]->bufs.n; i++) {
            const sk_buffer *b = &p->to[r]->bufs.v[i];
            if (!is_state(p->to[r], i)) continue;
            ok &= holds(b, p->heap[r], r);
            need += b->bytes;
        }
        for (int i = 0; i < GUARD; i++) ok &= (p->heap[r][p->bytes[r] + i] & 0xff) == PATTERN;
        ok &= need == m->v[r].own + m->v[r].near + m->v[r].far; /* nothing twice */
        ok &=
            m->v[r].stage_at >= p->from[r]->heap_bytes && m->v[r].stage_at >= p->to[r]->heap_bytes;
        own_bytes += m->v[r].own;
        near_bytes += m->v[r].near;
        far_bytes += m->v[r].far;
    }
    return ok;
}

static void move(sk_arena *a, pair *p, const int *host_of)
{
    sk_moves m;
    bool made = !sk_moves_make(a, (const sk_program *const *)p->from,
                               (const sk_program *const *)p->to, p->n, host_of, &m);
    check(made);
    if (!made) return;
    open_heaps(p, &m);
    for (int r = 0; r < p->n; r++) gather(p, &m, r);
    check(messages(p, &m));
    for (int r = 0; r < p->n; r++) sk_move_place(&m, r, p->heap[r]);
    check(moved_well(p, &m));
    for (int r = 0; r < p->n; r++) free(p->heap[r]);
}

static void one_pair(int number)
{
    static const int sizes[] = {2, 3, 4, 6, 8};
    char text[2][128];
    sk_arena a = {0};
    sk_graph g[2];
    pair p = {0};
    sk_trial t = {.threads = 1};
    int host_of[SK_TEST_RANKS], n = sizes[pick(0, 4)], before = bad;
    random_model(&t);
    random_layout(n, text[0], sizeof text[0]);
    random_layout(n, text[1], sizeof text[1]);
    for (int r = 0; r < n; r++) host_of[r] = pick(0, 1);
    t.layout = text[0];
    check(!sk_trial_compile(&a, &t, &g[0], &p.from, &p.n));
    t.layout = text[1];
    if (pick(0, 1)) t.batch = pick(1, 9); /* train.batch_schedule */
    check(!sk_trial_compile(&a, &t, &g[1], &p.to, &p.n));
    if (bad == before) move(&a, &p, NULL);
    if (bad == before) move(&a, &p, host_of);
    if (bad != before)
        printf("pair %d: %s b=%lld f=%lld layers=%lld, %s -> %s\n", number, t.model->name,
               (long long)t.batch, (long long)t.hyper.hidden_size,
               (long long)t.hyper.num_hidden_layers, text[0], text[1]);
    sk_arena_end(&a);
}

/* --- parts of a sum --- */

/* The sum over all parts of what encoding lost, as one number a tensor: places have weights. */
static double owed(sk_program *const *p, const pair *k, int n, const char *tensor)
{
    double sum = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < p[r]->params.n; i++) {
            const sk_param_plan *q = &p[r]->params.v[i];
            const sk_buffer *b = q->error >= 0 ? &p[r]->bufs.v[q->error] : NULL;
            if (!b || !q->tells || strcmp(q->tensor->name, tensor)) continue;
            sk_extent whole = b->box;
            whole.at[0] = 0;
            const float *x = (const float *)(const void *)(k->heap[r] + b->offset);
            for (int64_t e = 0; e < count(b); e++)
                sum += (double)x[e] * (double)(1 + logical(&whole, e) % 97);
        }
    return sum;
}

/* Small whole numbers, equal on ranks that have the same part. */
static void fill_errors(const pair *p)
{
    for (int r = 0; r < p->n; r++)
        for (int i = 0; i < p->from[r]->params.n; i++) {
            int error = p->from[r]->params.v[i].error;
            if (error < 0) continue;
            const sk_buffer *b = &p->from[r]->bufs.v[error];
            float *x = (float *)(void *)(p->heap[r] + b->offset);
            for (int64_t e = 0; e < count(b); e++) x[e] = (float)(logical(&b->box, e) % 13 - 4);
        }
}

static void move_parts(const char *from, const char *to, bool two_hosts)
{
    static const int host_of[] = {0, 1, 1, 0};
    static const char *const tensors[] = {"wte", "h.0.qkv.w", "h.1.fc.w", "h.0.proj.w"};
    sk_arena a = {0};
    sk_graph g[2];
    sk_moves m;
    pair p = {0};
    double before[4];
    int found = 0;
    sk_trial t = {.threads = 1, .batch = 4, .seq = 8, .layout = from};
    t.model = sk_model_preset("tiny", &t.hyper);
    check(!sk_trial_compile(&a, &t, &g[0], &p.from, &p.n));
    t.layout = to;
    check(!sk_trial_compile(&a, &t, &g[1], &p.to, &p.n));
    check(!sk_moves_make(&a, (const sk_program *const *)p.from, (const sk_program *const *)p.to,
                         p.n, two_hosts ? host_of : NULL, &m));
    open_heaps(&p, &m);
    fill_errors(&p);
    for (int i = 0; i < 4; i++) before[i] = owed(p.from, &p, p.n, tensors[i]);
    for (int r = 0; r < p.n; r++) gather(&p, &m, r);
    check(messages(&p, &m));
    for (int r = 0; r < p.n; r++) sk_move_place(&m, r, p.heap[r]);
    for (int i = 0; i < 4; i++) found += before[i] != 0;
    for (int i = 0; i < 4; i++) check(owed(p.to, &p, p.n, tensors[i]) == before[i]);
    check(found == (strstr(from, "feedback") ? 4 : 0));
    for (int r = 0; r < p.n; r++) free(p.heap[r]);
    sk_arena_end(&a);
}

/* --- numbers known beforehand --- */

/* From equal copies to tensor parallel pieces everybody has what it needs already; to itself too.
 */
static void stays(const char *from, const char *to, bool all)
{
    sk_arena a = {0};
    sk_graph g[2];
    sk_moves m;
    pair p = {0};
    int64_t others = 0;
    sk_trial t = {.threads = 1, .batch = 4, .seq = 8, .layout = from};
    t.model = sk_model_preset("tiny", &t.hyper);
    check(!sk_trial_compile(&a, &t, &g[0], &p.from, &p.n));
    t.layout = to;
    check(!sk_trial_compile(&a, &t, &g[1], &p.to, &p.n));
    check(!sk_moves_make(&a, (const sk_program *const *)p.from, (const sk_program *const *)p.to,
                         p.n, NULL, &m));
    for (int r = 0; r < p.n; r++) others += m.v[r].near + m.v[r].far;
    check(all == (others == 0));
    sk_arena_end(&a);
}

/* A tensor that no rank has is noticed, and so is one of another size. */
static void refusals(void)
{
    sk_arena a = {0};
    sk_graph g[2];
    sk_moves m;
    pair p = {0};
    sk_trial t = {.threads = 1, .batch = 4, .seq = 8, .layout = "pp=2 micro=2"};
    t.model = sk_model_preset("tiny", &t.hyper);
    check(!sk_trial_compile(&a, &t, &g[0], &p.from, &p.n));
    t.layout = "dp=2";
    check(!sk_trial_compile(&a, &t, &g[1], &p.to, &p.n));
    const sk_program *lost[2] = {p.from[0], p.from[0]};
    fails(sk_moves_make(&a, lost, (const sk_program *const *)p.to, p.n, NULL, &m), SK_EBUG,
          "no rank has");
    t.hyper.vocab_size++;
    t.layout = "pp=2 micro=2";
    check(!sk_trial_compile(&a, &t, &g[0], &p.from, &p.n));
    fails(sk_moves_make(&a, (const sk_program *const *)p.from, (const sk_program *const *)p.to, p.n,
                        NULL, &m),
          SK_EBUG, "other sizes");
    sk_arena_end(&a);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int pairs = argc > 2 ? atoi(argv[2]) : 60;
    for (int i = 0; i < pairs; i++) one_pair(i);
    stays("dp=4", "dp=4", true);
    stays("dp=4", "dp=2 tp=2", true);
    stays("dp=4", "pp=2 tp=2", true);
    stays("dp=4", "dp=4 zero=3", true);
    stays("dp=4 zero=3", "dp=4", false);
    for (int two = 0; two < 2; two++) {
        move_parts("dp=4 zero=3 grads=int4 feedback", "dp=2 tp=2 grads=int8 feedback", two);
        move_parts("dp=2 tp=2 grads=int8 feedback", "dp=4 zero=2 grads=int4 feedback", two);
        move_parts("dp=2 pp=2 micro=2 zero=1 grads=fp8 feedback", "dp=4 grads=int4 feedback", two);
        move_parts("dp=4", "dp=4 grads=int4 feedback", two);
    }
    refusals();
    printf("%d pairs, each on one host and two: %lld bytes stayed, %lld came from ranks of the "
           "host, %lld from others; %d checks, %d bad\n",
           pairs, (long long)own_bytes, (long long)near_bytes, (long long)far_bytes, checks, bad);
    return bad || !own_bytes || !near_bytes || !far_bytes;
}
