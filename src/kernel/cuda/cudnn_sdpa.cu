/* sdpa.cu - see sdpa.h.
 *
 * cuDNN's fused kernels are found by pattern: one describes attention as a graph of small
 * operations (product, scale, mask by comparing indices, softmax in six steps, product) and asks
 * the heuristics for engines, and the flash attention among them takes the graph as a whole.  The
 * pattern is the one that NVIDIA's own front end writes; what is not exactly like it finds no
 * engine.  In the gradient, dq = ds k is one product more than the kernel can keep: the result of
 * ds is written out and multiplied by a second kernel (deterministic), or dq is gathered in f32 by
 * atomics (form 1).
 *
 * Engines have notes about whether they give the same bits every time; those of the two forms are
 * alike (9.19), so that it is the form that decides, and test/cuda/attend.cu looks at the bits.
 *
 * Failures are told in the plan's story with the descriptor, the attribute and what cuDNN itself
 * says; nobody prints them but the test. */
#include "kernel/cuda/cudnn_sdpa.h"
#include "device/library.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#if __has_include(<cudnn_graph.h>)

#include <cudnn_graph.h>

#include <math.h>

typedef cudnnBackendDescriptor_t desc;

enum { MOST_DESCS = 256, MOST_OPS = 48, MOST_CONFIGS = 16, MOST_DEVICES = 64 };

/* Attributes that the headers call deprecated, for their successors describe a device that need
 * not be here: kernels of a plan made by handle are loaded at once. */
enum { BY_HANDLE_PLAN = 400, BY_HANDLE_GRAPH = 800 };

/* Names of the tensors that are bound to memory when the plan runs; others are numbered after. */
enum { Q = 1, K, V, O, STATS, SCALE, HIDDEN, DO, DQ, DK, DV, SUMS, ONE, GATHER, N_BOUND };

typedef struct library {
    bool tried, here;
    char story[256];
    cudnnStatus_t (*create)(cudnnHandle_t *);
    cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t);
    cudnnStatus_t (*make)(cudnnBackendDescriptorType_t, desc *);
    cudnnStatus_t (*set)(desc, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
                         const void *);
    cudnnStatus_t (*get)(desc, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
                         int64_t *, void *);
    cudnnStatus_t (*finalize)(desc);
    cudnnStatus_t (*execute)(cudnnHandle_t, desc, desc);
    cudnnStatus_t (*destroy)(desc);
    const char *(*text)(cudnnStatus_t);
    void (*last)(char *, size_t);
    size_t (*version)(void);
    cudnnHandle_t handle[MOST_DEVICES]; /* by device, made when needed */
    desc prop;                          /* a device that is not here, for looking only */
} library;

static library lib;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* One call of a plan: n sequences of hq query heads, with steps in elements. */
typedef struct unit {
    int64_t n, hq, hk, t, d;
    int64_t x_seq, x_head, x_time, y_seq, y_head, y_time, l_seq;
    int64_t outer, inner;              /* calls: outer times inner */
    int64_t x_outer, y_outer, l_outer; /* from one call to the next; l: of lse */
    int64_t x_inner, y_inner, l_inner;
} unit;

struct sk_sdpa_plan {
    sk_sdpa_shape s;
    int device, form;
    size_t asked;                      /* the most that all of the workspace may take */
    size_t cudnn_workspace, workspace; /* cuDNN's own part; all of it */
    unit u;
    desc plan;
    char story[1024];
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
        snprintf(lib.story, sizeof lib.story, "SKEIN_CUDNN=0");
        return NULL;
    }
    if (wish && strchr(wish, '/')) {
        so = dlopen(wish, RTLD_NOW | RTLD_LOCAL);
        if (!so) snprintf(lib.story, sizeof lib.story, "SKEIN_CUDNN=%s: %s", wish, dlerror());
        return so;
    }
    for (int i = 0; i < 3 && !so; i++) so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!so) snprintf(lib.story, sizeof lib.story, "libcudnn.so.9 was not found");
    return so;
}

static bool open_library(void)
{
    const struct {
        void *to;
        const char *name;
    } calls[] = {
        {&lib.create, "cudnnCreate"},
        {&lib.set_stream, "cudnnSetStream"},
        {&lib.make, "cudnnBackendCreateDescriptor"},
        {&lib.set, "cudnnBackendSetAttribute"},
        {&lib.get, "cudnnBackendGetAttribute"},
        {&lib.finalize, "cudnnBackendFinalize"},
        {&lib.execute, "cudnnBackendExecute"},
        {&lib.destroy, "cudnnBackendDestroyDescriptor"},
        {&lib.text, "cudnnGetErrorString"},
        {&lib.last, "cudnnGetLastErrorString"},
        {&lib.version, "cudnnGetVersion"},
    };
    lib.tried = true;
    void *so = open_file();
    for (size_t i = 0; so && i < sizeof calls / sizeof *calls; i++) {
        void *f = dlsym(so, calls[i].name);
        if (!f) snprintf(lib.story, sizeof lib.story, "cuDNN has no %s", calls[i].name);
        if (!f) return false;
        memcpy(calls[i].to, &f, sizeof f);
    }
    return so != NULL;
}

/* ---- descriptors; after the first failure nothing is done, and the story is kept */

typedef struct maker {
    char story[1024]; /* why nothing can be made */
    char note[1024];  /* why the last engine was not taken */
    desc all[MOST_DESCS], ops[MOST_OPS];
    int n_all, n_ops;
    int64_t n_hidden; /* tensors that are nowhere in memory */
    cudnnDataType_t type;
} maker;

static bool good(const maker *m) { return !*m->story; }

static void failed(maker *m, cudnnStatus_t st, const char *fmt, ...)
{
    char what[128], last[512] = "";
    va_list ap;
    if (!good(m)) return;
    lib.last(last, sizeof last);
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    snprintf(m->story, sizeof m->story, "%s: %s; %s", what, lib.text(st), last);
}

static desc make(maker *m, cudnnBackendDescriptorType_t type)
{
    desc x = NULL;
    if (!good(m)) return NULL;
    sk_assert(m->n_all < MOST_DESCS);
    cudnnStatus_t st = lib.make(type, &x);
    if (st) failed(m, st, "making a descriptor of type %d", (int)type);
    else m->all[m->n_all++] = x;
    return x;
}

static void set(maker *m, desc x, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (!good(m)) return;
    cudnnStatus_t st = lib.set(x, name, type, n, value);
    if (st) failed(m, st, "setting attribute %d", (int)name);
}

static void set_desc(maker *m, desc x, cudnnBackendAttributeName_t name, desc value)
{
    set(m, x, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void end(maker *m, desc x, const char *what, int number)
{
    if (!good(m)) return;
    cudnnStatus_t st = lib.finalize(x);
    if (st) failed(m, st, "finalizing %s %d", what, number);
}

/* ---- tensors */

typedef struct four {
    int64_t v[4];
} four;

static four packed(four size)
{
    const int64_t *s = size.v;
    return four{{s[1] * s[2] * s[3], s[2] * s[3], s[3], 1}};
}

enum { BOUND, HIDDEN_ONE, VALUE };

static desc tensor(maker *m, int64_t id, cudnnDataType_t type, four size, four step, int kind)
{
    desc x = make(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t align = 16;
    bool yes = true;
    set(m, x, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(m, x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size.v);
    set(m, x, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, step.v);
    set(m, x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(m, x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (kind == HIDDEN_ONE) set(m, x, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == VALUE) set(m, x, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    end(m, x, "tensor", (int)id);
    return x;
}

static desc hidden_as(maker *m, cudnnDataType_t type, four size, four step)
{
    return tensor(m, 100 + m->n_hidden++, type, size, step, HIDDEN_ONE);
}

static desc hidden(maker *m, cudnnDataType_t type, four size)
{
    return hidden_as(m, type, size, packed(size));
}

static desc number(maker *m, int64_t id)
{
    four one = {{1, 1, 1, 1}};
    return tensor(m, id, CUDNN_DATA_FLOAT, one, one, VALUE);
}

/* ---- operations */

static void add(maker *m, desc op)
{
    end(m, op, "operation", m->n_ops);
    sk_assert(m->n_ops < MOST_OPS);
    m->ops[m->n_ops++] = op;
}

static void product(maker *m, desc a, desc b, desc c)
{
    cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    desc how = make(m, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(m, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    end(m, how, "product of operation", m->n_ops);
    desc op = make(m, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(m, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(m, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(m, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_desc(m, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add(m, op);
}

static desc way(maker *m, cudnnPointwiseMode_t mode, cudnnDataType_t prec, int64_t axis)
{
    desc how = make(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(m, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(m, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &prec);
    if (axis >= 0) set(m, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    end(m, how, "pointwise of operation", m->n_ops);
    return how;
}

/* y = x, mode(x, b), or b where `where` is false and x elsewhere. */
static void pointwise(maker *m, desc how, desc x, desc b, desc where, desc y)
{
    desc op = make(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (where) set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where);
    set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(m, op);
}

static desc each(maker *m, cudnnPointwiseMode_t mode, desc x, desc b, four size)
{
    desc y = hidden(m, CUDNN_DATA_FLOAT, size);
    pointwise(m, way(m, mode, CUDNN_DATA_FLOAT, -1), x, b, NULL, y);
    return y;
}

static void reduce_to(maker *m, cudnnReduceTensorOp_t mode, desc x, desc y)
{
    cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    desc how = make(m, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(m, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    set(m, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    end(m, how, "reduction of operation", m->n_ops);
    desc op = make(m, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(m, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(m, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_desc(m, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add(m, op);
}

static desc reduce(maker *m, cudnnReduceTensorOp_t mode, desc x, four size)
{
    desc y = hidden(m, CUDNN_DATA_FLOAT, size);
    reduce_to(m, mode, x, y);
    return y;
}

static void turn(maker *m, desc x, desc y)
{
    desc op = make(m, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(m, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(m, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(m, op);
}

/* ---- attention as a graph */

static four size4(int64_t a, int64_t b, int64_t c, int64_t d) { return four{{a, b, c, d}}; }

static desc queries(maker *m, const unit *u, int64_t id) /* and their gradient */
{
    return tensor(m, id, m->type, size4(u->n, u->hq, u->t, u->d),
                  size4(u->x_seq, u->x_head, u->x_time, 1), BOUND);
}

/* Keys or values: from time to time, or turned around for a product. */
static desc shared(maker *m, const unit *u, int64_t id, bool turned)
{
    int64_t head = u->hk == 1 ? u->d : u->x_head;
    if (turned)
        return tensor(m, id, m->type, size4(u->n, u->hk, u->d, u->t),
                      size4(u->x_seq, head, 1, u->x_time), BOUND);
    return tensor(m, id, m->type, size4(u->n, u->hk, u->t, u->d),
                  size4(u->x_seq, head, u->x_time, 1), BOUND);
}

static desc result(maker *m, const unit *u, int64_t id)
{
    return tensor(m, id, m->type, size4(u->n, u->hq, u->t, u->d),
                  size4(u->y_seq, u->y_head, u->y_time, 1), BOUND);
}

static desc rows(maker *m, const unit *u, int64_t id)
{
    four size = size4(u->n, u->hq, u->t, 1);
    four step = id == STATS ? size4(u->l_seq, u->t, 1, 1) : packed(size);
    return tensor(m, id, CUDNN_DATA_FLOAT, size, step, BOUND);
}

/* Scores of the future become -infinity. */
static desc hide(maker *m, desc x, four square)
{
    desc row = hidden(m, CUDNN_DATA_INT32, square), column = hidden(m, CUDNN_DATA_INT32, square);
    desc seen = hidden(m, CUDNN_DATA_BOOLEAN, square), y = hidden(m, CUDNN_DATA_FLOAT, square);
    pointwise(m, way(m, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2), x, NULL, NULL, row);
    pointwise(m, way(m, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3), x, NULL, NULL, column);
    pointwise(m, way(m, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1), row, column, NULL, seen);
    pointwise(m, way(m, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1), x, number(m, HIDDEN),
              seen, y);
    return y;
}

static void forward(maker *m, const unit *u)
{
    four square = size4(u->n, u->hq, u->t, u->t), row = size4(u->n, u->hq, u->t, 1);
    desc s = hidden(m, CUDNN_DATA_FLOAT, square), p = hidden(m, m->type, square);
    product(m, queries(m, u, Q), shared(m, u, K, true), s);
    s = hide(m, each(m, CUDNN_POINTWISE_MUL, s, number(m, SCALE), square), square);
    desc top = reduce(m, CUDNN_REDUCE_TENSOR_MAX, s, row);
    desc e =
        each(m, CUDNN_POINTWISE_EXP, each(m, CUDNN_POINTWISE_SUB, s, top, square), NULL, square);
    desc sum = reduce(m, CUDNN_REDUCE_TENSOR_ADD, e, row);
    desc log = each(m, CUDNN_POINTWISE_LOG, sum, NULL, row);
    pointwise(m, way(m, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, -1), top, log, NULL,
              rows(m, u, STATS));
    pointwise(m, way(m, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, -1), e, sum, NULL, p);
    product(m, p, shared(m, u, V, false), result(m, u, O));
}

/* dk or dv = weights turned around times x; a group of heads is added up. */
static void gather(maker *m, const unit *u, desc weights, desc x, int64_t id)
{
    int64_t t = u->t;
    four step = size4(u->hq * t * t, t * t, 1, t), full = size4(u->n, u->hq, t, u->d);
    desc w = hidden_as(m, m->type, size4(u->n, u->hq, t, t), step);
    turn(m, weights, w);
    if (u->hq == u->hk) {
        product(m, w, x, shared(m, u, id, false));
        return;
    }
    desc heads = hidden(m, m->type, full);
    product(m, w, x, heads);
    reduce_to(m, CUDNN_REDUCE_TENSOR_ADD, heads, shared(m, u, id, false));
}

static void backward(maker *m, const unit *u, int form)
{
    four square = size4(u->n, u->hq, u->t, u->t), row = size4(u->n, u->hq, u->t, 1);
    four wide = size4(u->n, u->hq, u->t, u->d);
    desc q = queries(m, u, Q), k = shared(m, u, K, true), dy = result(m, u, DO);
    desc scale = number(m, SCALE), sums = rows(m, u, SUMS), s = hidden(m, CUDNN_DATA_FLOAT, square);
    desc yy = each(m, CUDNN_POINTWISE_MUL, dy, result(m, u, O), wide);
    pointwise(m, way(m, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1),
              reduce(m, CUDNN_REDUCE_TENSOR_ADD, yy, row), number(m, ONE), NULL, sums);
    product(m, q, k, s);
    s = each(m, CUDNN_POINTWISE_MUL, s, scale, square);
    s = hide(m, each(m, CUDNN_POINTWISE_SUB, s, rows(m, u, STATS), square), square);
    desc p = each(m, CUDNN_POINTWISE_EXP, s, NULL, square);
    gather(m, u, p, dy, DV);
    desc dp = hidden(m, CUDNN_DATA_FLOAT, square);
    product(m, dy, shared(m, u, V, true), dp);
    dp = each(m, CUDNN_POINTWISE_SUB, dp, sums, square);
    dp = each(m, CUDNN_POINTWISE_MUL, dp, p, square);
    desc ds = each(m, CUDNN_POINTWISE_MUL, dp, scale, square);
    gather(m, u, ds, q, DK);
    int64_t head = u->hk == 1 ? u->d : u->x_head;
    desc back =
        hidden_as(m, m->type, size4(u->n, u->hk, u->t, u->d), size4(u->x_seq, head, u->x_time, 1));
    turn(m, k, back);
    if (form == 0) {
        product(m, ds, back, queries(m, u, DQ));
        return;
    }
    desc gathered = tensor(m, GATHER, CUDNN_DATA_FLOAT, wide, packed(wide), BOUND);
    product(m, ds, back, gathered);
    pointwise(m, way(m, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, -1), gathered, NULL, NULL,
              queries(m, u, DQ));
}

/* ---- from a graph to a plan */

static desc graph_of(maker *m, int device)
{
    desc x = make(m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(m, x, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, m->n_ops, m->ops);
    if (!lib.prop)
        set(m, x, (cudnnBackendAttributeName_t)BY_HANDLE_GRAPH, CUDNN_TYPE_HANDLE, 1,
            &lib.handle[device]);
    end(m, x, "the graph of operations", m->n_ops);
    return x;
}

/* Does the engine give the same bits every time?  What cannot be asked does not. */
static bool repeats(desc config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    desc engine = NULL;
    int64_t n = 0, got = 0;
    if (lib.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine)) return false;
    bool yes = !lib.get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
                        &engine) &&
               !lib.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes);
    for (int64_t i = 0; yes && i < n; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) yes = false;
    lib.destroy(engine);
    return yes;
}

/* The plan of an engine's config; NULL, and a note, if there is none or it needs too much. */
static desc plan_of(maker *m, desc config, int device, size_t most, size_t *workspace)
{
    int64_t bytes = 0, got = 0;
    cudnnStatus_t st = CUDNN_STATUS_SUCCESS;
    desc x = make(m, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (lib.prop) set_desc(m, x, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, lib.prop);
    else
        set(m, x, (cudnnBackendAttributeName_t)BY_HANDLE_PLAN, CUDNN_TYPE_HANDLE, 1,
            &lib.handle[device]);
    set_desc(m, x, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    end(m, x, "a plan for a device", device);
    if (good(m))
        st =
            lib.get(x, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got, &bytes);
    if (st) failed(m, st, "asking for the workspace");
    if (good(m) && (size_t)bytes <= most) {
        *workspace = (size_t)bytes;
        return x;
    }
    if (good(m))
        snprintf(m->note, sizeof m->note, "an engine wants %lld bytes of scratch, %zu are there",
                 (long long)bytes, most);
    else memcpy(m->note, m->story, sizeof m->note);
    *m->story = 0; /* another engine may do */
    return NULL;
}

static desc first_plan(maker *m, sk_sdpa_plan *p, desc graph, cudnnBackendHeurMode_t mode,
                       size_t most)
{
    desc configs[MOST_CONFIGS], plan = NULL;
    int64_t n = 0;
    desc heur = make(m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_desc(m, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(m, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (lib.prop) set_desc(m, heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, lib.prop);
    end(m, heur, "heuristics of mode", (int)mode);
    for (int i = 0; i < MOST_CONFIGS; i++) configs[i] = make(m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!good(m)) return NULL;
    cudnnStatus_t st = lib.get(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                               MOST_CONFIGS, &n, configs);
    if (st) failed(m, st, "asking heuristics of mode %d", (int)mode);
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
    if (p->s.backward) backward(&m, &p->u, p->form);
    else forward(&m, &p->u);
    desc graph = graph_of(&m, p->device);
    bool asks = good(&m) && own < p->asked;
    for (int i = 0; asks && i < 2 && !p->plan; i++) {
        *m.story = 0;
        p->plan = first_plan(&m, p, graph, modes[i], p->asked - own);
    }
    p->workspace = own + p->cudnn_workspace;
    if (p->plan) return; /* what it was made of stays */
    snprintf(p->story, sizeof p->story, "%s", *m.story ? m.story : m.note);
    while (m.n_all) lib.destroy(m.all[--m.n_all]);
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
    if (!lib.tried) lib.here = open_library();
    if (!lib.here || lib.prop) return lib.here;
    if (device < 0 || device >= MOST_DEVICES) return false;
    if (lib.handle[device]) return true;
    cudnnStatus_t st = lib.create(&lib.handle[device]);
    if (!st) return true;
    snprintf(lib.story, sizeof lib.story, "cudnnCreate: %s", lib.text(st));
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
    if (!lib.prop && cudaGetDevice(&device)) (void)cudaGetLastError();
    for (sk_sdpa_plan *p = plans; p; p = p->next)
        if (same(p, s, device, form, most)) return p;
    sk_sdpa_plan *p = (sk_sdpa_plan *)calloc(1, sizeof *p);
    if (!p) return NULL;
    p->s = *s, p->device = device, p->form = form, p->asked = most;
    if (!known(s))
        snprintf(p->story, sizeof p->story,
                 "not bf16 or f16, d not a multiple of 8, or t below 64");
    else if (!ready(device)) snprintf(p->story, sizeof p->story, "%s", lib.story);
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
    const char *story = "nobody asked";
    pthread_mutex_lock(&lock);
    for (sk_sdpa_plan *p = plans; p; p = p->next) { /* the newest first */
        if (!same(p, s, p->device, form_of(s), p->asked)) continue;
        story = p->story;
        break;
    }
    pthread_mutex_unlock(&lock);
    return story;
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
    cudnnStatus_t st = lib.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (st) return st;
    st = lib.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, b->n, b->id);
    if (!st)
        st = lib.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, b->n, b->at);
    if (!st)
        st = lib.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!st) st = lib.finalize(pack);
    if (!st) st = lib.execute(lib.handle[p->device], p->plan, pack);
    lib.destroy(pack);
    return st;
}

static cudnnStatus_t all_calls(const sk_sdpa_plan *p, const sk_sdpa_data *data, char *workspace,
                               void *stream)
{
    float numbers[] = {(float)(1 / sqrt((double)p->s.d)), -INFINITY, 1};
    char *cudnn_part = p->cudnn_workspace ? workspace + own_bytes(p) : NULL;
    cudnnStatus_t st = lib.set_stream(lib.handle[p->device], (cudaStream_t)stream);
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
    if (st) lib.last(last, sizeof last);
    pthread_mutex_unlock(&lock);
    if (!st) return SK_OK;
    return sk_fail(SK_EIO, "attention: cuDNN failed: %s; %s; SKEIN_CUDNN=0 does without it",
                   lib.text(st), last);
}

/* ---- for people */

void sk_sdpa_about(bool open, sk_device_library *out)
{
    Dl_info where;
    out->name = "cuDNN";
    out->use = "attention in bf16 and f16";
    pthread_mutex_lock(&lock);
    if (!lib.tried && open) lib.here = open_library();
    out->here = lib.tried && lib.here;
    if (lib.tried && !lib.here) snprintf(out->why, sizeof out->why, "%s", lib.story);
    pthread_mutex_unlock(&lock);
    if (!out->here) return;
    unsigned v = (unsigned)lib.version();
    snprintf(out->version, sizeof out->version, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
    if (dladdr((void *)lib.version, &where))
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
