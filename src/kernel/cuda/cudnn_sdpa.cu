/* cudnn_sdpa.cu - see cudnn_sdpa.h; cudnn_graph.cu describes attention to cuDNN.
 *
 * Engines have notes about whether they give the same bits every time; those of the two forms are
 * alike (9.19), so that it is the form that decides, and test/cuda/attend.cu looks at the bits.
 *
 * The plan's report of a failure has the descriptor, the attribute and what cuDNN
 * itself says; nobody prints them but the test. */
#include "kernel/cuda/cudnn_private.h"
#include "device/library.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#if SK_HAS_CUDNN

enum { MOST_CONFIGS = 16 };

/* Attributes that the headers call deprecated, for their successors describe a device that need
 * not be here: kernels of a plan made by handle are loaded at once. */
enum { BY_HANDLE_PLAN = 400, BY_HANDLE_GRAPH = 800 };

library sk_cudnn;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct sk_sdpa_plan {
    sk_sdpa_shape s;
    int device, form;
    size_t asked;                      /* the most that all of the workspace may take */
    size_t cudnn_workspace, workspace; /* cuDNN's own part; all of it */
    unit u;
    desc plan;
    char report[1024];
    sk_sdpa_plan *next;
};

static sk_sdpa_plan *plans;

/* ---- the library */

/* That of SKEIN_CUDNN and no other, if it names a file; else the loader's, or that beside CUDA. */
static void *open_file(void)
{
    static const char *const names[] = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
                                        "/usr/local/cuda/lib/libcudnn.so.9"};
    const char *wish = getenv("SKEIN_CUDNN");
    void *so = NULL;
    if (wish && !strcmp(wish, "0")) {
        snprintf(sk_cudnn.report, sizeof sk_cudnn.report, "SKEIN_CUDNN=0");
        return NULL;
    }
    if (wish && strchr(wish, '/')) {
        so = dlopen(wish, RTLD_NOW | RTLD_LOCAL);
        if (!so)
            snprintf(sk_cudnn.report, sizeof sk_cudnn.report, "SKEIN_CUDNN=%s: %s", wish,
                     dlerror());
        return so;
    }
    for (int i = 0; i < 3 && !so; i++) so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!so) snprintf(sk_cudnn.report, sizeof sk_cudnn.report, "libcudnn.so.9 was not found");
    return so;
}

static bool open_library(void)
{
    const struct {
        void *to;
        const char *name;
    } calls[] = {
        {&sk_cudnn.create, "cudnnCreate"},
        {&sk_cudnn.set_stream, "cudnnSetStream"},
        {&sk_cudnn.make, "cudnnBackendCreateDescriptor"},
        {&sk_cudnn.set, "cudnnBackendSetAttribute"},
        {&sk_cudnn.get, "cudnnBackendGetAttribute"},
        {&sk_cudnn.finalize, "cudnnBackendFinalize"},
        {&sk_cudnn.execute, "cudnnBackendExecute"},
        {&sk_cudnn.destroy, "cudnnBackendDestroyDescriptor"},
        {&sk_cudnn.text, "cudnnGetErrorString"},
        {&sk_cudnn.last, "cudnnGetLastErrorString"},
        {&sk_cudnn.version, "cudnnGetVersion"},
    };
    sk_cudnn.tried = true;
    void *so = open_file();
    for (size_t i = 0; so && i < sizeof calls / sizeof *calls; i++) {
        void *f = dlsym(so, calls[i].name);
        if (!f) snprintf(sk_cudnn.report, sizeof sk_cudnn.report, "cuDNN has no %s", calls[i].name);
        if (!f) return false;
        memcpy(calls[i].to, &f, sizeof f);
    }
    return so != NULL;
}

/* ---- from a graph to a plan */

static desc graph_of(maker *m, int device)
{
    desc x = sk_cudnn_make(m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    sk_cudnn_set(m, x, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, m->n_ops,
                 m->ops);
    sk_cudnn_set(m, x, (cudnnBackendAttributeName_t)BY_HANDLE_GRAPH, CUDNN_TYPE_HANDLE, 1,
                 &sk_cudnn.handle[device]);
    sk_cudnn_end(m, x, "the graph of operations", m->n_ops);
    return x;
}

/* Does the engine give the same bits every time?  What cannot be asked does not. */
static bool repeats(desc config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    desc engine = NULL;
    int64_t n = 0, got = 0;
    if (sk_cudnn.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine)) return false;
    bool yes = !sk_cudnn.get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                             &got, &engine) &&
               !sk_cudnn.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes);
    for (int64_t i = 0; yes && i < n; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) yes = false;
    sk_cudnn.destroy(engine);
    return yes;
}

/* The plan of an engine's config; NULL, and a note, if there is none or it needs too much. */
static desc plan_of(maker *m, desc config, int device, size_t most, size_t *workspace)
{
    int64_t bytes = 0, got = 0;
    cudnnStatus_t st = CUDNN_STATUS_SUCCESS;
    desc x = sk_cudnn_make(m, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    sk_cudnn_set(m, x, (cudnnBackendAttributeName_t)BY_HANDLE_PLAN, CUDNN_TYPE_HANDLE, 1,
                 &sk_cudnn.handle[device]);
    sk_cudnn_set_desc(m, x, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    sk_cudnn_end(m, x, "a plan for a device", device);
    if (good(m))
        st = sk_cudnn.get(x, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                          &bytes);
    if (st) sk_cudnn_failed(m, st, "asking for the workspace");
    if (good(m) && (size_t)bytes <= most) {
        *workspace = (size_t)bytes;
        return x;
    }
    if (good(m))
        snprintf(m->note, sizeof m->note, "an engine wants %lld bytes of scratch, %zu are there",
                 (long long)bytes, most);
    else memcpy(m->note, m->report, sizeof m->note);
    *m->report = 0; /* another engine may do */
    return NULL;
}

static desc first_plan(maker *m, sk_sdpa_plan *p, desc graph, cudnnBackendHeurMode_t mode,
                       size_t most)
{
    desc configs[MOST_CONFIGS], plan = NULL;
    int64_t n = 0;
    desc heur = sk_cudnn_make(m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    sk_cudnn_set_desc(m, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    sk_cudnn_set(m, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    sk_cudnn_end(m, heur, "heuristics of mode", (int)mode);
    for (int i = 0; i < MOST_CONFIGS; i++)
        configs[i] = sk_cudnn_make(m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!good(m)) return NULL;
    cudnnStatus_t st = sk_cudnn.get(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS, &n, configs);
    if (st) sk_cudnn_failed(m, st, "asking heuristics of mode %d", (int)mode);
    for (int64_t i = 0; good(m) && i < n && !plan; i++)
        if (p->form == 0 && !repeats(configs[i]))
            snprintf(m->note, sizeof m->note, "an engine does not always give the same bits");
        else plan = plan_of(m, configs[i], p->device, most, &p->cudnn_workspace);
    if (!n && !*m->note) snprintf(m->note, sizeof m->note, "no engine takes the graph");
    return plan;
}

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Row sums, and dq in f32 where it is gathered there: before the workspace. */
static size_t own_bytes(const sk_sdpa_plan *p)
{
    const unit *u = &p->u;
    size_t rows_of = (size_t)(u->n * u->hq * u->t) * sizeof(float);
    if (!p->s.backward) return 0;
    return (size_t)round_up((int64_t)rows_of, 256) +
           (p->form ? (size_t)round_up((int64_t)rows_of * u->d, 256) : 0);
}

static void build(sk_sdpa_plan *p)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    maker m = {};
    size_t own = own_bytes(p);
    m.type = p->s.type == SK_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    if (p->s.backward) sk_cudnn_backward(&m, &p->u, p->form);
    else sk_cudnn_forward(&m, &p->u);
    desc graph = graph_of(&m, p->device);
    bool asks = good(&m) && own < p->asked;
    for (int i = 0; asks && i < 2 && !p->plan; i++) {
        *m.report = 0;
        p->plan = first_plan(&m, p, graph, modes[i], p->asked - own);
    }
    p->workspace = own + p->cudnn_workspace;
    if (p->plan) return; /* what it was made of stays */
    snprintf(p->report, sizeof p->report, "%s", *m.report ? m.report : m.note);
    while (m.n_all) sk_cudnn.destroy(m.all[--m.n_all]);
}

/* ---- what one call does */

/* Bytes of scratch for one head, nearly: the square that the deterministic gradient keeps, and
 * what groups of heads are added up from. */
static int64_t head_bytes(const sk_sdpa_shape *s, int form)
{
    int64_t square = form ? 0 : 2 * round_up(s->t, 64) * round_up(s->t, 128);
    int64_t group = s->r > 1 ? 4 * s->t * s->d : 0, gathered = form ? 4 * s->t * s->d : 0;
    return s->backward ? square + group + gathered + 8 * s->t : 0;
}

/* The most of n, in equal parts, that fit; at least 1. */
static int64_t part_of(int64_t n, int64_t bytes, size_t most)
{
    int64_t k = n;
    while (k > 1 && (n % k || k * bytes > (int64_t)most)) k--;
    return k;
}

/* Whole sequences, with all their heads. */
static unit by_batch(const sk_sdpa_shape *s, int64_t bytes, size_t most)
{
    int64_t x = 3 * s->h * s->d, y = s->h * s->d, n = part_of(s->b, bytes * s->h, most);
    unit u = {n, s->h, s->h, s->t, s->d};
    u.x_seq = s->t * x, u.x_head = 3 * s->d, u.x_time = x;
    u.y_seq = s->t * y, u.y_head = s->d, u.y_time = y, u.l_seq = s->h * s->t;
    u.outer = 1, u.inner = s->b / n;
    u.x_inner = n * u.x_seq, u.y_inner = n * u.y_seq, u.l_inner = n * s->h * s->t;
    return u;
}

/* One sequence after the other; groups of heads are what cuDNN takes for sequences. */
static unit by_group(const sk_sdpa_shape *s, int64_t bytes, size_t most)
{
    int64_t x = (s->r + 2) * s->d, y = s->r * s->d, n = part_of(s->h, bytes * s->r, most);
    unit u = {n, s->r, 1, s->t, s->d};
    u.x_seq = x, u.x_head = s->d, u.x_time = s->h * x;
    u.y_seq = y, u.y_head = s->d, u.y_time = s->h * y, u.l_seq = s->r * s->t;
    u.outer = s->b, u.inner = s->h / n;
    u.x_outer = s->t * s->h * x, u.y_outer = s->t * s->h * y, u.l_outer = s->h * s->r * s->t;
    u.x_inner = n * x, u.y_inner = n * y, u.l_inner = n * s->r * s->t;
    return u;
}

/* One group of heads after the other, of all sequences: fewer calls where sequences are many. */
static unit by_column(const sk_sdpa_shape *s, int64_t bytes, size_t most)
{
    int64_t x = (s->r + 2) * s->d, y = s->r * s->d, n = part_of(s->b, bytes * s->r, most);
    unit u = {n, s->r, 1, s->t, s->d};
    u.x_seq = s->t * s->h * x, u.x_head = s->d, u.x_time = s->h * x;
    u.y_seq = s->t * s->h * y, u.y_head = s->d, u.y_time = s->h * y, u.l_seq = s->h * s->r * s->t;
    u.outer = s->h, u.inner = s->b / n;
    u.x_outer = x, u.y_outer = y, u.l_outer = s->r * s->t;
    u.x_inner = n * u.x_seq, u.y_inner = n * u.y_seq, u.l_inner = n * u.l_seq;
    return u;
}

/* The ways to cut a shape into calls, the one with the fewest first; returns how many there are. */
static int units_of(const sk_sdpa_shape *s, int form, size_t most, unit out[2])
{
    int64_t bytes = head_bytes(s, form);
    if (s->r == 1 && bytes * s->h <= (int64_t)most) {
        out[0] = by_batch(s, bytes, most);
        return 1;
    }
    unit group = by_group(s, bytes, most), column = by_column(s, bytes, most);
    bool fewer = column.outer * column.inner < group.outer * group.inner;
    out[0] = fewer ? column : group;
    out[1] = group;
    return fewer ? 2 : 1;
}

/* ---- the table of plans */

static int form_of(const sk_sdpa_shape *s)
{
    const char *form = getenv("SKEIN_SDPA_FORM");
    return s->backward && form ? atoi(form) : 0;
}

static bool same(const sk_sdpa_plan *p, const sk_sdpa_shape *s, int device, int form, size_t most)
{
    const sk_sdpa_shape *q = &p->s;
    return q->type == s->type && q->b == s->b && q->t == s->t && q->h == s->h && q->r == s->r &&
           q->d == s->d && q->backward == s->backward && p->device == device && p->form == form &&
           p->asked == most;
}

/* Is there a handle for the device? */
static bool ready(int device)
{
    if (!sk_cudnn.tried) sk_cudnn.here = open_library();
    if (!sk_cudnn.here) return false;
    if (device < 0 || device >= MOST_DEVICES) return false;
    if (sk_cudnn.handle[device]) return true;
    cudnnStatus_t st = sk_cudnn.create(&sk_cudnn.handle[device]);
    if (!st) return true;
    snprintf(sk_cudnn.report, sizeof sk_cudnn.report, "cudnnCreate: %s", sk_cudnn.text(st));
    return false;
}

static bool known(const sk_sdpa_shape *s)
{
    return (s->type == SK_BF16 || s->type == SK_F16) && s->b > 0 && s->t >= 64 && s->h > 0 &&
           s->r > 0 && s->d > 0 && s->d % 8 == 0;
}

static sk_sdpa_plan *find(const sk_sdpa_shape *s, size_t most)
{
    int device = 0, form = form_of(s);
    if (cudaGetDevice(&device)) (void)cudaGetLastError();
    for (sk_sdpa_plan *p = plans; p; p = p->next)
        if (same(p, s, device, form, most)) return p;
    sk_sdpa_plan *p = (sk_sdpa_plan *)calloc(1, sizeof *p);
    if (!p) return NULL;
    p->s = *s, p->device = device, p->form = form, p->asked = most;
    if (!known(s))
        snprintf(p->report, sizeof p->report,
                 "not bf16 or f16, d not a multiple of 8, or t below 64");
    else if (!ready(device)) snprintf(p->report, sizeof p->report, "%s", sk_cudnn.report);
    else {
        unit ways[2];
        int n = units_of(s, form, most, ways);
        for (int i = 0; i < n && !p->plan; i++) {
            p->u = ways[i];
            build(p);
        }
    }
    p->next = plans;
    return plans = p;
}

sk_sdpa_plan *sk_sdpa_find(const sk_sdpa_shape *s, size_t most)
{
    pthread_mutex_lock(&lock);
    sk_sdpa_plan *p = find(s, most);
    pthread_mutex_unlock(&lock);
    return p && p->plan ? p : NULL;
}

const char *sk_sdpa_reason(const sk_sdpa_shape *s)
{
    const char *report = "nobody asked";
    pthread_mutex_lock(&lock);
    for (sk_sdpa_plan *p = plans; p; p = p->next) { /* the newest first */
        if (!same(p, s, p->device, form_of(s), p->asked)) continue;
        report = p->report;
        break;
    }
    pthread_mutex_unlock(&lock);
    return report;
}

size_t sk_sdpa_workspace(const sk_sdpa_plan *p) { return p->workspace; }

/* ---- running */

typedef struct binding {
    int64_t id[N_BOUND];
    void *at[N_BOUND];
    int n;
} binding;

static void bind(binding *b, int64_t id, const void *at)
{
    b->id[b->n] = id;
    b->at[b->n++] = (void *)at;
}

/* Where everything is in call (outer, inner). */
static binding places(const sk_sdpa_plan *p, const sk_sdpa_data *a, char *workspace, int64_t outer,
                      int64_t inner, float *numbers)
{
    const unit *u = &p->u;
    int64_t r = p->s.r, d = p->s.d, x = outer * u->x_outer + inner * u->x_inner;
    int64_t y = outer * u->y_outer + inner * u->y_inner,
            l = outer * u->l_outer + inner * u->l_inner;
    const char *qkv = (const char *)a->qkv + 2 * x;
    char *dqkv = (char *)a->dqkv + 2 * x;
    binding b = {};
    bind(&b, Q, qkv), bind(&b, K, qkv + 2 * r * d), bind(&b, V, qkv + 2 * (r + 1) * d);
    bind(&b, O, (char *)a->y + 2 * y), bind(&b, STATS, a->lse + l);
    bind(&b, SCALE, &numbers[0]), bind(&b, HIDDEN, &numbers[1]);
    if (!p->s.backward) return b;
    bind(&b, ONE, &numbers[2]), bind(&b, DO, (const char *)a->dy + 2 * y);
    bind(&b, DQ, dqkv), bind(&b, DK, dqkv + 2 * r * d), bind(&b, DV, dqkv + 2 * (r + 1) * d);
    bind(&b, SUMS, workspace);
    if (p->form) bind(&b, GATHER, workspace + round_up(4 * u->n * u->hq * u->t, 256));
    return b;
}

static cudnnStatus_t call(const sk_sdpa_plan *p, const binding *b, void *workspace)
{
    desc pack = NULL;
    cudnnStatus_t st = sk_cudnn.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (st) return st;
    st = sk_cudnn.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, b->n, b->id);
    if (!st)
        st = sk_cudnn.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, b->n,
                          b->at);
    if (!st)
        st = sk_cudnn.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                          &workspace);
    if (!st) st = sk_cudnn.finalize(pack);
    if (!st) st = sk_cudnn.execute(sk_cudnn.handle[p->device], p->plan, pack);
    sk_cudnn.destroy(pack);
    return st;
}

static cudnnStatus_t all_calls(const sk_sdpa_plan *p, const sk_sdpa_data *data, char *workspace,
                               void *stream)
{
    float numbers[] = {(float)(1 / sqrt((double)p->s.d)), -INFINITY, 1};
    char *cudnn_part = p->cudnn_workspace ? workspace + own_bytes(p) : NULL;
    cudnnStatus_t st = sk_cudnn.set_stream(sk_cudnn.handle[p->device], (cudaStream_t)stream);
    for (int64_t o = 0; !st && o < p->u.outer; o++)
        for (int64_t i = 0; !st && i < p->u.inner; i++) {
            binding b = places(p, data, workspace, o, i, numbers);
            st = call(p, &b, cudnn_part);
        }
    return st;
}

sk_status sk_sdpa_run(sk_sdpa_plan *p, const sk_sdpa_data *data, char *workspace, void *stream)
{
    char last[512] = "";
    pthread_mutex_lock(&lock); /* a handle is for one thread at a time */
    cudnnStatus_t st = all_calls(p, data, workspace, stream);
    if (st) sk_cudnn.last(last, sizeof last);
    pthread_mutex_unlock(&lock);
    if (!st) return SK_OK;
    return sk_fail(SK_EIO, "attention: cuDNN failed: %s; %s; SKEIN_CUDNN=0 does without it",
                   sk_cudnn.text(st), last);
}

/* ---- for people */

void sk_sdpa_about(bool open, sk_device_library *out)
{
    Dl_info where;
    out->name = "cuDNN";
    out->use = "attention in bf16 and f16";
    pthread_mutex_lock(&lock);
    if (!sk_cudnn.tried && open) sk_cudnn.here = open_library();
    out->here = sk_cudnn.tried && sk_cudnn.here;
    if (sk_cudnn.tried && !sk_cudnn.here)
        snprintf(out->why, sizeof out->why, "%s", sk_cudnn.report);
    pthread_mutex_unlock(&lock);
    if (!out->here) return;
    unsigned v = (unsigned)sk_cudnn.version();
    snprintf(out->version, sizeof out->version, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
    if (dladdr((void *)sk_cudnn.version, &where))
        snprintf(out->path, sizeof out->path, "%s", where.dli_fname);
}

#else /* built without its headers */

void sk_sdpa_about(bool open, sk_device_library *out)
{
    (void)open;
    out->name = "cuDNN";
    out->use = "attention in bf16 and f16";
    snprintf(out->why, sizeof out->why, "this program was built without cuDNN's headers");
}

struct sk_sdpa_plan {
    int none;
};

sk_sdpa_plan *sk_sdpa_find(const sk_sdpa_shape *s, size_t most)
{
    (void)s, (void)most;
    return NULL;
}

const char *sk_sdpa_reason(const sk_sdpa_shape *s)
{
    (void)s;
    return "built without cuDNN's headers";
}

size_t sk_sdpa_workspace(const sk_sdpa_plan *p)
{
    (void)p;
    return 0;
}

sk_status sk_sdpa_run(sk_sdpa_plan *p, const sk_sdpa_data *data, char *workspace, void *stream)
{
    (void)p, (void)data, (void)workspace, (void)stream;
    return sk_fail(SK_EBUG, "attention: built without cuDNN's headers");
}

#endif
