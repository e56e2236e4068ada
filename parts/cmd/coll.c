/* coll.c - `skein coll`: the algorithms of collectives, proved, counted and drawn.
 *
 * Everything is read from the step lists that a run would execute; nothing runs.  The
 * rounds of a drawing are those of the senders. */
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "coll/choose.h"
#include "coll/prove.h"

#include <string.h>

static const char usage[] =
    "usage: skein coll [NAME] [-n RANKS] [--op KIND] [--root R] [--axes 2,4] [--parts K]\n"
    "                  [-o text|svg|csv|json|md]\n\n"
    "Without a name: the algorithms, what they can do and what it costs (a: latency of a message,\n"
    "b: seconds per byte, S: bytes of the vector, n: ranks, log: base 2).  With one: the proof on\n"
    "RANKS (1 to 64), the counted cost beside the closed form, and its messages, round by round:\n"
    "0->1 [2] is chunk 2 from rank 0 to rank 1, [2+] is added as it arrives.  NAME:4x2 has the "
    "degrees\n"
    "of the rounds of a butterfly.\n"
    "    skein coll ring -n 4\n"
    "    skein coll binary_blocks -n 7 -o svg > blocks.svg\n";

enum { MOST = 64, RANKS = 8 };

typedef struct words {
    const char *name, *n, *op, *root, *axes, *parts, *form;
} words;

/* --- the table of algorithms --- */

static const char *kinds_of(sk_arena *a, const sk_coll *c)
{
    sk_out o = {.arena = a};
    for (int k = 0; k < SK_N_COLLS; k++)
        if (c->kinds >> k & 1) sk_out_add(&o, "%s%s", o.n ? " " : "", sk_coll_names[k]);
    return o.s ? o.s : "";
}

static const char *order_of(const sk_coll *c) { return c->order == SK_ORDER_TREE ? "tree" : "own"; }

static sk_status table(sk_arena *a, const char *form)
{
    static const char *const head[] = {"name", "order", "cost", "ops"};
    sk_table t = {.arena = a, .head = head, .n_cols = 4};
    for (int i = 0; sk_coll_parts[i]; i++) {
        const sk_coll *c = sk_coll_parts[i];
        const char *cells[] = {c->name, order_of(c), c->cost, kinds_of(a, c)};
        sk_table_add(&t, cells);
    }
    return sk_table_print(&t, form, stdout);
}

/* --- what is asked for --- */

static sk_status unknown(const char *what, const char *word, const char *const *names, int n)
{
    const char *near = sk_nearest(word, names, n);
    return sk_fail(SK_EUSAGE, "command line: there is no %s \"%.40s\"%s%s%s", what, word,
                   near ? " - did you mean \"" : "; skein coll lists them", near ? near : "",
                   near ? "\"?" : "");
}

static sk_status find_coll(sk_arena *a, const char *name, const sk_coll **out, uint64_t *degrees)
{
    int n = 0, pin = 0;
    *degrees = 0;
    if (strchr(name, ':')) {
        SK_TRY(sk_pin_find("command line:", name, &pin, degrees));
        *out = sk_coll_parts[pin - 1];
        return SK_OK;
    }
    int i = sk_coll_find(name);
    if (i >= 0) {
        *out = sk_coll_parts[i];
        return SK_OK;
    }
    while (sk_coll_parts[n]) n++;
    const char **names = sk_many(a, const char *, n + 1);
    for (int k = 0; k < n; k++) names[k] = sk_coll_parts[k]->name;
    return unknown("algorithm", name, names, n);
}

static sk_status find_kind(const sk_coll *c, const char *op, sk_coll_kind *out)
{
    int k = op ? sk_kind_find(op) : 0;
    while (!op && k < SK_N_COLLS && !(c->kinds >> k & 1)) k++;
    if (k == SK_N_COLLS) return unknown("collective", op ? op : "", sk_coll_names, SK_N_COLLS);
    *out = (sk_coll_kind)k;
    return SK_OK;
}

static sk_status read_number(const char *what, const char *word, int low, int high, int *out)
{
    int64_t n;
    if (!word) return SK_OK;
    if (!sk_read_int(word, &n) || n < low || n > high)
        return sk_fail(SK_EUSAGE, "command line: %s is \"%.40s\"; a number from %d to %d is needed",
                       what, word, low, high);
    *out = (int)n;
    return SK_OK;
}

static sk_status read_axes(sk_arena *a, const char *text, sk_coll_ask *ask)
{
    char *rest = text ? sk_strdup(a, text) : NULL, *word;
    while ((word = strsep(&rest, ","))) {
        if (ask->n_axes == SK_COLL_AXES)
            return sk_fail(SK_EUSAGE, "command line: --axes has more than %d numbers",
                           SK_COLL_AXES);
        SK_TRY(read_number("one of --axes", word, 1, MOST, &ask->axes[ask->n_axes++]));
    }
    return SK_OK;
}

static sk_status read_ask(sk_arena *a, const words *w, const sk_coll *c, sk_coll_ask *ask)
{
    int product = 1;
    SK_TRY(find_kind(c, w->op, &ask->kind));
    SK_TRY(read_axes(a, w->axes, ask));
    for (int i = 0; i < ask->n_axes; i++) product *= ask->axes[i];
    ask->n = ask->n_axes ? product : RANKS;
    SK_TRY(read_number("-n", w->n, 1, MOST, &ask->n));
    if (ask->n > MOST || (ask->n_axes && product != ask->n))
        return sk_fail(SK_EUSAGE, "command line: --axes %s make %d rank%s, not %d", w->axes,
                       product, sk_plural(product), ask->n > MOST ? MOST : ask->n);
    SK_TRY(read_number("--root", w->root, 0, ask->n - 1, &ask->root));
    SK_TRY(read_number("--parts", w->parts, 1, 1024, &ask->parts));
    if (sk_coll_can(c, ask)) return SK_OK;
    return sk_fail(SK_EUSAGE, "%s does no %s on %d rank%s%s%s; it does %s: %s", c->name,
                   sk_coll_names[ask->kind], ask->n, sk_plural(ask->n), w->axes ? " = " : "",
                   w->axes ? w->axes : "", kinds_of(a, c), c->doc);
}

/* --- messages --- */

typedef struct message {
    int round, from, to, chunk, n;
    bool added;
} message;

typedef struct messages {
    message *v;
    int n, cap;
    int rounds;
} messages;

/* The other end of the n-th receive from a peer. */
static const sk_step *receive(const sk_steps *l, int from, int turn)
{
    for (int i = 0; i < l->list.n; i++) {
        const sk_step *s = &l->list.v[i];
        bool recv = s->act == SK_STEP_RECV || s->act == SK_STEP_RECV_SUM;
        if (recv && s->peer == from && !turn--) return s;
    }
    return NULL;
}

/* Rounds in which nobody sends are left out. */
static void renumber(sk_arena *a, messages *m, int last)
{
    int *number = sk_many(a, int, last + 2);
    for (int i = 0; i < m->n; i++) number[m->v[i].round] = 1;
    for (int r = 0; r <= last; r++) number[r] = number[r] ? ++m->rounds : 0;
    for (int i = 0; i < m->n; i++) m->v[i].round = number[m->v[i].round];
}

static messages collect(sk_arena *a, const sk_steps *lists, int n)
{
    messages m = {0};
    int last = 0;
    for (int from = 0; from < n; from++) {
        int turn[MOST] = {0};
        for (int i = 0; i < lists[from].list.n; i++) {
            const sk_step *s = &lists[from].list.v[i];
            if (s->act != SK_STEP_SEND) continue;
            const sk_step *r = receive(&lists[s->peer], from, turn[s->peer]++);
            message one = {s->round, from, s->peer,
                           s->chunk, s->n, r && r->act == SK_STEP_RECV_SUM};
            *(message *)sk_push(a, &m) = one;
            if (s->round > last) last = s->round;
        }
    }
    renumber(a, &m, last);
    return m;
}

static const char *chunks_of(sk_arena *a, const message *m)
{
    const char *plus = m->added ? "+" : "";
    if (m->n == 1) return sk_print(a, "%d%s", m->chunk, plus);
    return sk_print(a, "%d-%d%s", m->chunk, m->chunk + m->n - 1, plus);
}

/* --- forms --- */

static void put_text(sk_arena *a, const messages *m)
{
    for (int r = 1; r <= m->rounds; r++) {
        printf("round %d:", r);
        for (int i = 0; i < m->n; i++)
            if (m->v[i].round == r)
                printf(" %d->%d [%s]", m->v[i].from, m->v[i].to, chunks_of(a, &m->v[i]));
        printf("\n");
    }
}

static sk_status put_table(sk_arena *a, const messages *m, const char *form)
{
    static const char *const head[] = {"round", "from", "to", "chunk", "chunks", "added"};
    sk_table t = {.arena = a, .head = head, .n_cols = 6};
    for (int r = 1; r <= m->rounds; r++)
        for (int i = 0; i < m->n; i++) {
            const message *x = &m->v[i];
            if (x->round != r) continue;
            const char *cells[] = {sk_print(a, "%d", r),     sk_print(a, "%d", x->from),
                                   sk_print(a, "%d", x->to), sk_print(a, "%d", x->chunk),
                                   sk_print(a, "%d", x->n),  x->added ? "1" : "0"};
            sk_table_add(&t, cells);
        }
    return sk_table_print(&t, form, stdout);
}

enum { LEFT = 70, TOP = 60, WIDE = 64, HIGH = 72 }; /* pixels */

static const char *const colours[] = {"#36648b", "#d2691e"}; /* chunks that are added: orange */

static void put_head(const sk_coll *c, const sk_coll_ask *ask, int wide, int high)
{
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
           "font-family=\"sans-serif\" font-size=\"12\">\n<defs>",
           wide, high);
    for (int i = 0; i < 2; i++)
        printf(
            "<marker id=\"tip%d\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" "
            "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"%s\"/></marker>",
            i, colours[i]);
    printf("</defs>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
           "<text x=\"12\" y=\"20\" font-size=\"14\">%s %s on %d rank%s</text>\n",
           c->name, sk_coll_names[ask->kind], ask->n, sk_plural(ask->n));
}

static void put_grid(int n, int rounds)
{
    for (int i = 0; i < n; i++)
        printf("<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>"
               "<path d=\"M%d %dV%d\" stroke=\"#ccc\"/>\n",
               LEFT + WIDE * i, TOP - 14, i, LEFT + WIDE * i, TOP - 6, TOP + HIGH * rounds + 6);
    for (int r = 1; r <= rounds; r++)
        printf("<text x=\"12\" y=\"%d\" fill=\"#888\">round %d</text>\n",
               TOP + HIGH * r - HIGH / 2 + 4, r);
}

/* The label stands a third of the way, where arrows that cross have come apart. */
static void put_arrow(sk_arena *a, const message *m)
{
    int x = LEFT + WIDE * m->from, y = TOP + HIGH * (m->round - 1) + 8;
    int to_x = LEFT + WIDE * m->to, to_y = TOP + HIGH * m->round - 8;
    const char *colour = colours[m->added], *chunks = chunks_of(a, m);
    printf("<g><title>%d to %d: %s</title><path d=\"M%d %dL%d %d\" fill=\"none\" stroke=\"%s\" "
           "marker-end=\"url(#tip%d)\"/><text x=\"%d\" y=\"%d\" font-size=\"10\" fill=\"%s\">%s"
           "</text></g>\n",
           m->from, m->to, chunks, x, y, to_x, to_y, colour, m->added, x + (to_x - x) / 3 + 3,
           y + (to_y - y) / 3, colour, chunks);
}

static void put_svg(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask, const messages *m)
{
    put_head(c, ask, 2 * LEFT + WIDE * (ask->n - 1), TOP + HIGH * m->rounds + 30);
    put_grid(ask->n, m->rounds);
    for (int i = 0; i < m->n; i++) put_arrow(a, &m->v[i]);
    printf("</svg>\n");
}

static sk_status put_cost(sk_arena *a, const sk_coll_cost *counted, const sk_coll_cost *price)
{
    static const char *const head[] = {"", "rounds", "S sent", "S summed"};
    const sk_coll_cost *rows[] = {counted, price};
    sk_table t = {.arena = a, .head = head, .n_cols = 4};
    for (int i = 0; i < 2; i++) {
        const char *cells[] = {i ? "closed form" : "counted", sk_print(a, "%g", rows[i]->rounds),
                               sk_print(a, "%.6g", rows[i]->sent),
                               sk_print(a, "%.6g", rows[i]->summed)};
        sk_table_add(&t, cells);
    }
    return sk_table_print(&t, NULL, stdout);
}

static sk_status put_proof(sk_arena *a, const sk_coll *c, const sk_steps *list, const sk_proof *p)
{
    const sk_coll_ask *ask = &list->ask;
    sk_coll_cost price = sk_coll_price(c, ask);
    bool ordered = sk_kind_sums(ask->kind) && sk_coll_order(c, ask) == SK_ORDER_TREE;
    printf("%s: %s\n%s on %d rank%s: proved%s; chunks %d, messages %lld\n", c->name, c->doc,
           sk_coll_names[ask->kind], ask->n, sk_plural(ask->n),
           ordered ? ", sums in the order of the tree" : "", list->cells, (long long)p->messages);
    return put_cost(a, &p->cost, &price);
}

static sk_status show(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask, const char *form)
{
    sk_proof p;
    SK_TRY(sk_prove_coll(a, c, ask, &p));
    sk_steps *lists = sk_many(a, sk_steps, ask->n);
    sk_coll_ask one = *ask;
    for (one.me = 0; one.me < ask->n; one.me++) sk_steps_build(c, &one, a, &lists[one.me]);
    messages m = collect(a, lists, ask->n);
    if (form && strcmp(form, "svg") != 0) return put_table(a, &m, form);
    if (form) {
        put_svg(a, c, ask, &m);
        return SK_OK;
    }
    SK_TRY(put_proof(a, c, lists, &p));
    put_text(a, &m);
    return SK_OK;
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    words w = {0};
    const sk_argv_option options[] = {
        {"-n", &w.n, false},        {"--op", &w.op, false},       {"--root", &w.root, false},
        {"--axes", &w.axes, false}, {"--parts", &w.parts, false}, {"-o", &w.form, false},
        {NULL, NULL, false},
    };
    const sk_coll *c = NULL;
    sk_coll_ask ask = {0};
    int n = 0;
    SK_TRY(sk_argv_words(a, argc, argv, options, &w.name, 1, &n));
    if (w.form && !strcmp(w.form, "text")) w.form = NULL;
    if (!n) return table(a, w.form);
    SK_TRY(find_coll(a, w.name, &c, &ask.degrees));
    SK_TRY(read_ask(a, &w, c, &ask));
    if (c->build) return show(a, c, &ask, w.form);
    printf("%s: %s; it has no list of steps\n", c->name, c->doc);
    return SK_OK;
}

const sk_cmd sk_cmd_coll = {
    .name = "coll",
    .doc = "algorithms of collectives: proof, cost and drawing",
    .help = usage,
    .run = run,
};
