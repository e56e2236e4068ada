/* steps.c - writing step lists, and asking algorithms for them. */
#include "coll/execute.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int sk_coll_find(const char *name)
{
    for (int i = 0; sk_coll_parts[i]; i++)
        if (!strcmp(sk_coll_parts[i]->name, name)) return i;
    return -1;
}

static bool sound(const sk_coll_ask *a)
{
    int product = 1;
    if (a->n < 1 || a->root < 0 || a->root >= a->n || a->parts < 0) return false;
    if (a->n_axes < 0 || a->n_axes > SK_COLL_AXES) return false;
    for (int i = 0; i < a->n_axes; i++) {
        if (a->axes[i] < 1 || a->axes[i] > a->n) return false;
        product *= a->axes[i];
        if (product > a->n) return false;
    }
    return !a->n_axes || product == a->n;
}

bool sk_coll_can(const sk_coll *c, const sk_coll_ask *a)
{
    return (c->kinds >> a->kind & 1) && sound(a) && (c->degrees || !a->degrees) &&
           (a->n == 1 || !c->can || c->can(a));
}

sk_order sk_coll_order(const sk_coll *c, const sk_coll_ask *a)
{
    return c->tree && c->tree(a) ? SK_ORDER_TREE : c->order;
}

/* --- degrees --- */

int64_t sk_degrees_product(uint64_t degrees)
{
    int64_t product = 1;
    for (int i = 0; sk_degree(degrees, i) && product <= INT32_MAX; i++)
        product *= sk_degree(degrees, i);
    return product;
}

const char *sk_degrees_print(uint64_t degrees, char to[SK_DEGREES_TEXT])
{
    int used = 0;
    to[0] = 0;
    for (int i = 0; sk_degree(degrees, i); i++)
        used += snprintf(to + used, (size_t)(SK_DEGREES_TEXT - used), "%c%d", i ? 'x' : ':',
                         sk_degree(degrees, i));
    return to;
}

bool sk_degrees_read(const char *text, uint64_t *degrees)
{
    *degrees = 0;
    for (int i = 0; i < SK_COLL_DEGREES; i++) {
        int d = 0;
        for (; *text >= '0' && *text <= '9' && d <= SK_MOST_DEGREE; text++)
            d = 10 * d + (*text - '0');
        if (d < 2 || d > SK_MOST_DEGREE) return false;
        *degrees |= (uint64_t)d << 8 * i;
        if (!*text) return true;
        if (*text++ != 'x') return false;
    }
    return false;
}

bool sk_degrees_tree(uint64_t degrees, int n)
{
    for (int i = 0; sk_degree(degrees, i + 1); i++)
        if (!sk_power_of_two(sk_degree(degrees, i))) return false;
    return degrees && sk_degrees_product(degrees) == n;
}

sk_coll_cost sk_coll_price(const sk_coll *c, const sk_coll_ask *a)
{
    if (a->n == 1 || !c->price) return (sk_coll_cost){0};
    return c->price(a);
}

/* --- asking --- */

static int host_at(const int *ranks, int i, const int *host_of) { return host_of[ranks[i]]; }

/* Members per host if all have as many and in a row; else 0. */
static int even_hosts(const int *ranks, int n, const int *host_of)
{
    int each = 1;
    while (each < n && host_at(ranks, each, host_of) == host_at(ranks, 0, host_of)) each++;
    if (each == n || n % each) return 0;
    for (int i = 0; i < n; i += each)
        for (int j = 0; j < n; j++)
            if ((host_at(ranks, i, host_of) == host_at(ranks, j, host_of)) !=
                (j / each == i / each))
                return 0;
    return each;
}

void sk_coll_ask_for(sk_coll_kind kind, const int *ranks, int n, int me, int root,
                     const int *host_of, const sk_links *links, sk_coll_ask *out)
{
    *out = (sk_coll_ask){.kind = kind, .n = n, .me = me, .root = sk_kind_rooted(kind) ? root : 0};
    if (links) out->rate = links->rate, out->ranks = ranks, out->all = links->n;
    int each = host_of && n > 1 ? even_hosts(ranks, n, host_of) : 0;
    if (!each) return;
    out->n_axes = 2;
    out->axes[0] = n / each;
    out->axes[1] = each;
}

/* --- lists --- */

/* Nobody to talk to: what is mine is all there is.  Kinds that are
 * `copied` find it in DST. */
static void alone(sk_steps *s)
{
    s->cells = 1;
    if (!sk_kind_rows[s->ask.kind].copied) sk_steps_copy(s, sk_dst(0), sk_src(0), 0, 1);
}

void sk_steps_build(const sk_coll *c, const sk_coll_ask *a, sk_arena *arena, sk_steps *out)
{
    *out = (sk_steps){.arena = arena, .ask = *a, .cells = a->n};
    sk_assert(sk_coll_can(c, a) && a->me >= 0 && a->me < a->n);
    if (a->n == 1) alone(out);
    else if (c->build) c->build(out);
}

void sk_steps_next(sk_steps *s) { s->round++; }

static sk_step *add(sk_steps *s, sk_step_act act, int peer, int chunk, int n)
{
    sk_assert(peer >= 0 && peer < s->ask.n && chunk >= 0 && n > 0 && chunk + n <= s->cells);
    sk_step *step = sk_push(s->arena, &s->list);
    step->act = act;
    step->round = s->round;
    step->peer = peer;
    step->chunk = chunk;
    step->n = n;
    return step;
}

/* A cell that a step uses; scratch grows with its use. */
static sk_cell use(sk_steps *s, sk_cell c, int n)
{
    sk_assert(c.at >= 0);
    if (c.space == SK_TMP && c.at + n > s->tmp_cells) s->tmp_cells = c.at + n;
    return c;
}

void sk_steps_send(sk_steps *s, int peer, sk_cell from, int chunk, int n)
{
    if (n) add(s, SK_STEP_SEND, peer, chunk, n)->from = use(s, from, n);
}

void sk_steps_recv(sk_steps *s, int peer, sk_cell into, int chunk, int n)
{
    if (n) add(s, SK_STEP_RECV, peer, chunk, n)->into = use(s, into, n);
}

void sk_steps_recv_sum(sk_steps *s, int peer, sk_cell into, sk_cell with, int chunk, int n)
{
    if (!n) return;
    sk_step *step = add(s, SK_STEP_RECV_SUM, peer, chunk, n);
    step->into = use(s, into, n);
    step->with = use(s, with, n);
}

void sk_steps_copy(sk_steps *s, sk_cell into, sk_cell from, int chunk, int n)
{
    if (!n) return;
    sk_step *step = add(s, SK_STEP_COPY, s->ask.me, chunk, n);
    step->into = use(s, into, n);
    step->from = use(s, from, n);
}

void sk_steps_sum(sk_steps *s, sk_cell into, sk_cell from, sk_cell with, int chunk, int n)
{
    if (!n) return;
    sk_step *step = add(s, SK_STEP_SUM, s->ask.me, chunk, n);
    step->into = use(s, into, n);
    step->from = use(s, from, n);
    step->with = use(s, with, n);
}

void sk_steps_tree(sk_steps *s, sk_cell into, sk_cell from, int k, sk_cell own_is, int own,
                   int chunk)
{
    sk_assert(k > 0 && own < k);
    sk_step *step = add(s, SK_STEP_TREE, s->ask.me, chunk, 1);
    step->into = use(s, into, 1);
    step->from = use(s, from, own == k - 1 ? k - 1 : k);
    step->with = use(s, own_is, 1);
    step->k = k;
    step->own = own;
}

double sk_stream_share(const sk_coll_ask *a, int m)
{
    return a->fill > 0 ? fmin(1, a->wide * (1 - pow(1 - fmin(a->fill, 1), m))) : 1;
}

/* Measured on one core of a loaded machine, rows of one f32, by 0.1 ns a byte (the preset's gamma):
 * 2, 7 and 12 streams took 5, 11.5 and 16.7 ns a byte, packing 0.46 and unpacking 0.08. */
double sk_stream_adding(const sk_coll_ask *a, int d) { return a->fill > 0 ? 30 + 11 * d : 1; }

double sk_stream_packing(const sk_coll_ask *a) { return a->fill > 0 ? 5.4 : 0; }
