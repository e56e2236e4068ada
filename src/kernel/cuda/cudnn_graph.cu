/* cudnn_graph.cu - attention as a graph of cuDNN's operations.
 *
 * cuDNN's fused kernels are found by pattern: one describes attention as a graph of small
 * operations (product, scale, mask by comparing indices, softmax in six steps, product) and asks
 * the heuristics for engines, and the flash attention among them takes the graph as a whole.  The
 * pattern is the one that NVIDIA's own front end writes; what is not exactly like it finds no
 * engine.  In the gradient, dq = ds k is one product more than the kernel can keep: the result of
 * ds is written out and multiplied by a second kernel (deterministic), or dq is gathered in f32 by
 * atomics (form 1). */
#include "kernel/cuda/cudnn_private.h"

#include <stdarg.h>
#include <stdio.h>

#if SK_HAS_CUDNN

void sk_cudnn_failed(maker *m, cudnnStatus_t st, const char *fmt, ...)
{
    char what[128], last[512] = "";
    va_list ap;
    if (!good(m)) return;
    sk_cudnn.last(last, sizeof last);
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    snprintf(m->report, sizeof m->report, "%s: %s; %s", what, sk_cudnn.text(st), last);
}

desc sk_cudnn_make(maker *m, cudnnBackendDescriptorType_t type)
{
    desc x = NULL;
    if (!good(m)) return NULL;
    sk_assert(m->n_all < MOST_DESCS);
    cudnnStatus_t st = sk_cudnn.make(type, &x);
    if (st) sk_cudnn_failed(m, st, "making a descriptor of type %d", (int)type);
    else m->all[m->n_all++] = x;
    return x;
}

void sk_cudnn_set(maker *m, desc x, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (!good(m)) return;
    cudnnStatus_t st = sk_cudnn.set(x, name, type, n, value);
    if (st) sk_cudnn_failed(m, st, "setting attribute %d", (int)name);
}

void sk_cudnn_set_desc(maker *m, desc x, cudnnBackendAttributeName_t name, desc value)
{
    sk_cudnn_set(m, x, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void sk_cudnn_end(maker *m, desc x, const char *what, int number)
{
    if (!good(m)) return;
    cudnnStatus_t st = sk_cudnn.finalize(x);
    if (st) sk_cudnn_failed(m, st, "finalizing %s %d", what, number);
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
    desc x = sk_cudnn_make(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t align = 16;
    bool yes = true;
    sk_cudnn_set(m, x, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    sk_cudnn_set(m, x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size.v);
    sk_cudnn_set(m, x, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, step.v);
    sk_cudnn_set(m, x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    sk_cudnn_set(m, x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (kind == HIDDEN_ONE)
        sk_cudnn_set(m, x, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == VALUE)
        sk_cudnn_set(m, x, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    sk_cudnn_end(m, x, "tensor", (int)id);
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
    sk_cudnn_end(m, op, "operation", m->n_ops);
    sk_assert(m->n_ops < MOST_OPS);
    m->ops[m->n_ops++] = op;
}

static void product(maker *m, desc a, desc b, desc c)
{
    cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    desc how = sk_cudnn_make(m, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    sk_cudnn_set(m, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    sk_cudnn_end(m, how, "product of operation", m->n_ops);
    desc op = sk_cudnn_make(m, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add(m, op);
}

static desc way(maker *m, cudnnPointwiseMode_t mode, cudnnDataType_t prec, int64_t axis)
{
    desc how = sk_cudnn_make(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    sk_cudnn_set(m, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    sk_cudnn_set(m, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &prec);
    if (axis >= 0) sk_cudnn_set(m, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    sk_cudnn_end(m, how, "pointwise of operation", m->n_ops);
    return how;
}

/* y = x, mode(x, b), or b where `where` is false and x elsewhere. */
static void pointwise(maker *m, desc how, desc x, desc b, desc where, desc y)
{
    desc op = sk_cudnn_make(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (where) sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
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
    desc how = sk_cudnn_make(m, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    sk_cudnn_set(m, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    sk_cudnn_set(m, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                 &mode);
    sk_cudnn_end(m, how, "reduction of operation", m->n_ops);
    desc op = sk_cudnn_make(m, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
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
    desc op = sk_cudnn_make(m, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    sk_cudnn_set_desc(m, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
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

void sk_cudnn_forward(maker *m, const unit *u)
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

void sk_cudnn_backward(maker *m, const unit *u, int form)
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

#endif
