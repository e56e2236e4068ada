/* op.c - running the CPU kernel of an op, whatever the storage types of its operands are. */
#include "graph/op.h"

char sk_op_type(const sk_op *op, int n_in, int i)
{
    if (!op->types) return 'x';
    return op->types[i < n_in ? i : i + 1];
}

static bool is_float(sk_dtype t) { return t == SK_F32 || t == SK_BF16 || t == SK_F16; }

static bool taken(char letter, sk_dtype type, sk_dtype first)
{
    switch (letter) {
    case 'x':
        return is_float(type) && type == first;
    case 'f':
        return is_float(type);
    case '4':
        return type == SK_F32;
    case 'i':
        return type == SK_I32;
    default:
        return is_float(type) || type == SK_I32;
    }
}

static const char *needed(char letter, bool first)
{
    if (letter == 'x' && !first) return "the type of operand 0";
    return letter == 'i'   ? "i32"
           : letter == '4' ? "f32"
           : letter == 's' ? "i32, f32, bf16 or f16"
                           : "f32, bf16 or f16";
}

sk_status sk_op_takes(const sk_op *op, const sk_args *a)
{
    bool ordered = sk_args_canonical(a);
    for (int i = 0; i < a->n_in + a->n_out; i++) {
        sk_dtype type = sk_args_view(a, i)->type;
        const char *what = i < a->n_in ? "operand" : "result";
        int n = i < a->n_in ? i : i - a->n_in;
        char letter = sk_op_type(op, a->n_in, i);
        if (!taken(letter, type, a->in[0].type))
            return sk_fail(SK_ECONF, "%s: %s %d is %s, the GPU half needs %s", op->name, what, n,
                           sk_dtype_name(type), needed(letter, !i));
        if (ordered && type != SK_F32 && type != SK_I32)
            return sk_fail(SK_ECONF, "%s: %s %d is %s, canonical order is for f32", op->name, what,
                           n, sk_dtype_name(type));
    }
    return SK_OK;
}

static bool is_narrow(const sk_view *v) { return v->type == SK_BF16 || v->type == SK_F16; }

static size_t staged(const sk_view *v, bool wide)
{
    size_t bytes = wide ? (size_t)sk_count(v) * sizeof(real) : 0;
    return (bytes + 63) / 64 * 64;
}

size_t sk_op_stage(const sk_args *a)
{
    size_t n = 0;
    for (int i = 0; i < a->n_in; i++) n += staged(&a->in[i], is_narrow(&a->in[i]));
    for (int o = 0; o < a->n_out; o++) n += staged(&a->out[o], is_narrow(&a->out[o]));
    return n;
}

size_t sk_op_scratch(const sk_op *op, const sk_args *a)
{
    size_t own = op->scratch ? (op->scratch(a) + 63) / 64 * 64 : 0;
    return own + sk_op_stage(a);
}

/* A place for the wide form, in the order of the operands. */
static void move_to(sk_view *v, char **workspace)
{
    if (!is_narrow(v)) return;
    v->data = *workspace;
    v->type = SK_F32;
    *workspace += staged(v, true);
}

sk_args sk_op_widened(const sk_args *a, char *workspace)
{
    sk_args b = *a;
    for (int i = 0; i < b.n_in; i++) move_to(&b.in[i], &workspace);
    for (int o = 0; o < b.n_out; o++) move_to(&b.out[o], &workspace);
    return b;
}

/* This thread's share of a view, from one type to the other. */
static void convert_part(const sk_view *to, const sk_view *from, int part, int of)
{
    int64_t n = sk_count(to), at = n * part / of, end = n * (part + 1) / of;
    sk_assert(n == sk_count(from) && part >= 0 && part < of);

    if (to->type == from->type) return;
    sk_convert((char *)to->data + (size_t)at * sk_dtype_size(to->type), to->type,
               (const char *)from->data + (size_t)at * sk_dtype_size(from->type), from->type,
               end - at);
}

void sk_op_widen(const sk_args *a, const sk_args *wide, int part, int of)
{
    for (int i = 0; i < a->n_in; i++) convert_part(&wide->in[i], &a->in[i], part, of);
    for (int o = 0; o < a->n_out; o++)
        if (a->add >> o & 1) convert_part(&wide->out[o], &a->out[o], part, of);
}

void sk_op_narrowed(const sk_op *op, const sk_args *a, const sk_args *wide, int part, int of)
{
    for (int i = 0; i < a->n_in; i++)
        if (op->changes >> i & 1) convert_part(&a->in[i], &wide->in[i], part, of);
    for (int o = 0; o < a->n_out; o++) convert_part(&a->out[o], &wide->out[o], part, of);
}

/* All at once, by one thread. */
static void run_staged(const sk_op *op, const sk_args *a)
{
    size_t own = sk_op_scratch(op, a) - sk_op_stage(a);
    sk_args b = sk_op_widened(a, (char *)a->scratch + own);
    b.part = 0;
    b.of = 1;
    sk_op_widen(a, &b, 0, 1);
    op->cpu(&b);
    sk_op_narrowed(op, a, &b, 0, 1);
}

void sk_op_run_cpu(const sk_op *op, const sk_args *a)
{
    if (!sk_op_stage(a)) op->cpu(a);
    else if (a->part == 0) run_staged(op, a);
}

double sk_op_flops(const sk_op *op, const sk_args *a)
{
    return op->flops ? op->flops(a) : (double)sk_count(&a->out[0]);
}
