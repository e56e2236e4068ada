/* choose.c - prices of algorithms, and the cheapest of them. */
#include "coll/choose.h"
#include "coll/link_price.h"
#include "coll/loggp.h"
#include "base/proc.h"
#include "base/strings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

const sk_costs sk_costs_preset = SK_COSTS_PRESET;

void sk_host_mark(char *to, size_t n)
{
    struct utsname u = {.release = "?"};
    char cpu[96] = "processor";
    sk_proc_line("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    (void)uname(&u);
    snprintf(to, n, "%.90s, %d cores, %ld KiB, Linux %.60s", cpu, sk_proc_cores(),
             sysconf(_SC_LEVEL3_CACHE_SIZE) / 1024, u.release);
    for (char *p = to; *p; p++)
        if (*p == '#' || *p == '\n') *p = ' '; /* it is a value in a file with remarks */
}

int sk_hosts_count(const int *ranks, int n, const int *host_of)
{
    int hosts = 0, last = -1;
    if (!host_of) return 1;
    for (int i = 0; i < n; i++) {
        int host = host_of[ranks[i]], k = host > last ? i : 0; /* usually they come in order */
        while (k < i && host_of[ranks[k]] != host) k++;
        hosts += k == i;
        if (host > last) last = host;
    }
    return hosts;
}

/* --- in the heaps --- */

/* What a member does of a whole vector read and a whole vector written. */
static double shm_share(sk_coll_kind kind, int n)
{
    const sk_kind_row *row = &sk_kind_rows[kind];
    if (row->origin == SK_FROM_FIRST) return (n + 3.0) / 4; /* reads n / 2 vectors of n */
    if (sk_kind_sums(kind)) return row->dst == SK_OPERAND_WHOLE ? 1 : (1 + 1.0 / n) / 2;
    return sk_kind_rooted(kind) && sk_kind_cut(kind) ? 1.0 / n : 1;
}

/* How far away so many bytes are: 0 in cache, 1 in memory, by the logarithm between. */
static double far_share(const sk_costs *c, double bytes)
{
    double from = fmax((double)c->cache, 1), to = fmax((double)c->far, from);
    if (bytes <= from) return 0;
    return bytes >= to ? 1 : log(bytes / from) / log(to / from);
}

double sk_shm_price(const sk_costs *c, sk_coll_kind kind, int n, int64_t bytes)
{
    const sk_shm_cost *m = &c->shm;
    double s = (double)bytes, cores = c->cores > 0 ? (double)c->cores : 1;
    double near = sk_kind_sums(kind) ? m->sum : m->copy,
           far = sk_kind_sums(kind) ? m->sum_far : m->copy_far;
    if (n < 2) return 0;
    double latency = n > cores ? n * m->crowded : m->tiny + (n - 2) * m->member;
    double rate = near * fmax(1, n / cores), most = fmax(rate, n * far);
    double share = far_share(c, n * s);
    if (share > 0) rate *= pow(most / rate, share);
    return latency + s * rate * shm_share(kind, n);
}

/* --- lists --- */

/* What one member does in a list, and what of it leaves its host. */
typedef struct count {
    int rounds, rounds_out, messages, messages_out;
    int came_out;               /* streams from other hosts: those that send to it in a round */
    double moved, moved_out;    /* cells */
    int round, round_out, peer; /* of the step before; the sender of the receive before */
} count;

static void count_step(count *k, const sk_step *s, bool out)
{
    bool came = s->act != SK_STEP_SEND, next = s->round != k->round;
    k->messages++;
    k->messages_out += out;
    k->moved += s->n;
    k->moved_out += out ? s->n : 0;
    k->rounds += next;
    k->rounds_out += out && s->round != k->round_out;
    if (next) k->peer = -1;
    /* two messages of one member are one stream */
    k->came_out += out && came && s->peer != k->peer;
    k->round = s->round;
    if (out) k->round_out = s->round;
    if (came) k->peer = s->peer;
}

int sk_members_here(const sk_coll_ask *ask, int hosts)
{
    bool known = ask->n_axes > 1 && ask->n % hosts == 0;
    return hosts < 2 ? ask->n : known ? ask->n / hosts : 1;
}

static count count_list(const sk_coll *c, const sk_coll_ask *ask, int me, int here)
{
    sk_arena tmp = {0};
    sk_steps list;
    count k = {.round = -1, .round_out = -1, .peer = -1};
    sk_coll_ask one = *ask;
    one.me = me;
    sk_steps_build(c, &one, &tmp, &list);
    for (int i = 0; i < list.list.n; i++) {
        const sk_step *s = &list.list.v[i];
        if (s->act != SK_STEP_SEND && s->act != SK_STEP_RECV && s->act != SK_STEP_RECV_SUM)
            continue;
        count_step(&k, s, s->peer / here != me / here);
    }
    sk_arena_end(&tmp);
    return k;
}

/* Between the price of a thing inside a host and outside of it. */
static double mix(double in, double out, double share_out) { return in + (out - in) * share_out; }

/* Streams that come from other hosts at a time share a link, and more than share it. */
static double beta_between(const sk_link *l, const count *w)
{
    double fan = w->rounds_out ? (double)w->came_out / w->rounds_out : 1;
    return fan > 1 ? l->beta * (1 + l->incast * log2(fan)) : l->beta;
}

static double price_of(const sk_costs *c, const sk_coll_cost *k, const count *w, bool apart,
                       double bytes)
{
    const sk_link *in = &c->inside, *out = &c->between;
    double rounds_out = w->rounds ? (double)w->rounds_out / w->rounds : apart;
    double moved_out = w->moved > 0 ? w->moved_out / w->moved : apart;
    return k->rounds * mix(in->alpha, out->alpha, rounds_out) +
           (w->messages - w->messages_out) * in->each + w->messages_out * out->each +
           fmax(k->sent * bytes - moved_out * out->burst, 0) *
               mix(in->beta, beta_between(out, w), moved_out) +
           k->summed * bytes * c->gamma;
}

double sk_closed_price(const sk_costs *c, int algorithm, const sk_coll_ask *ask, int hosts,
                       int64_t bytes)
{
    const sk_coll *a = sk_coll_parts[algorithm];
    int here = sk_members_here(ask, hosts);
    sk_coll_cost k = a->price(ask);
    int first = sk_kind_rooted(ask->kind) ? ask->root : 0;
    /* where hosts are no aligned blocks, others leave theirs more often than the first */
    int who[] = {first, here - 1, ask->n - 1}, n = hosts > 1 && here > 1 ? 3 : 1;
    double dearest = 0;
    for (int i = 0; i < n; i++) {
        count w = count_list(a, ask, who[i], here);
        dearest = fmax(dearest, price_of(c, &k, &w, hosts > 1, (double)bytes));
    }
    return dearest;
}

/* LogGP plays whole vectors: lists that pack are only compared by the closed form. */
static bool played(int algorithm, const sk_coll_ask *ask)
{
    const sk_coll *a = sk_coll_parts[algorithm];
    return a->price && a->build && !ask->rate && ask->n <= SK_LOGGP_MEMBERS && !a->packs &&
           ask->fill <= 0;
}

double sk_call_price(const sk_costs *c, int algorithm, const sk_coll_ask *ask, int hosts,
                     int64_t bytes)
{
    if (ask->n < 2) return 0;
    if (algorithm == SK_BUILTIN)
        return hosts > 1 ? INFINITY : sk_shm_price(c, ask->kind, ask->n, bytes);
    const sk_coll *a = sk_coll_parts[algorithm];
    if (!a->price || !a->build) return INFINITY;
    if (ask->rate) return sk_link_price(c, a, ask, sk_members_here(ask, hosts), bytes);
    if (!played(algorithm, ask)) return sk_closed_price(c, algorithm, ask, hosts, bytes);
    sk_loggp m = sk_loggp_of(c);
    return sk_loggp_play(&m, algorithm, ask, hosts, bytes, NULL);
}

/* --- choosing --- */

static bool able(const sk_coll *a, const sk_coll_ask *ask, sk_reduce reduce)
{
    if (sk_kind_sums(ask->kind) && a->adasum != (reduce == SK_ADASUM)) return false;
    return sk_coll_can(a, ask);
}

bool sk_chosen_by_itself(const sk_coll *a, const sk_coll_ask *ask, sk_reduce reduce)
{
    bool order = sk_coll_order(a, ask) == SK_ORDER_TREE || !sk_kind_sums(ask->kind) ||
                 reduce == SK_ADASUM || ask->any_order;
    return order && a->price && a->build && !a->native && (!a->packs || ask->fill > 0);
}

typedef struct candidates { /* who looks at them */
    sk_coll_ask ask;
    sk_reduce reduce;
    sk_candidate *visit;
    void *ctx;
} candidates;

static void offer(candidates *k, int algorithm, uint64_t degrees)
{
    const sk_coll *a = sk_coll_parts[algorithm];
    k->ask.degrees = degrees;
    if (sk_chosen_by_itself(a, &k->ask, k->reduce) && able(a, &k->ask, k->reduce))
        k->visit(k->ctx, algorithm, degrees);
}

/* Degrees that make n and whose sums are in the order of the tree: powers of two, and the last is
 * what is left. */
static void offer_degrees(candidates *k, int algorithm, uint64_t degrees, int round, int left)
{
    enum { ROUNDS = 3 };
    uint64_t last = degrees | (uint64_t)left << 8 * round;
    if (left >= 2 && left <= SK_MOST_DEGREE && (left > 2 || round)) offer(k, algorithm, last);
    for (int d = 2; round + 1 < ROUNDS && d < left && d <= SK_MOST_DEGREE; d *= 2)
        if (left % d == 0)
            offer_degrees(k, algorithm, degrees | (uint64_t)d << 8 * round, round + 1, left / d);
}

static bool in_heaps(const sk_coll_ask *ask, int hosts, sk_reduce reduce)
{
    return hosts < 2 && !(sk_kind_sums(ask->kind) && reduce == SK_ADASUM);
}

void sk_candidates(const sk_coll_ask *ask, int hosts, sk_reduce reduce, sk_candidate *visit,
                   void *ctx)
{
    candidates k = {*ask, reduce, visit, ctx};
    bool heaps = in_heaps(ask, hosts, reduce);
    for (int i = 0; ask->n > 1 && sk_coll_parts[i]; i++) {
        if (heaps && !sk_coll_parts[i]->packs) continue;
        offer(&k, i, 0);
        if (sk_coll_parts[i]->degrees) offer_degrees(&k, i, 0, 0, ask->n);
    }
}

typedef struct best { /* so far */
    const sk_costs *costs;
    sk_coll_ask *ask;
    int hosts, algorithm;
    int64_t bytes;
    uint64_t degrees;
    double seconds;
} best;

/* Of one call of many, which find a bucket as the last one left it. */
static double steady_price(const best *b, int algorithm)
{
    sk_costs c = *b->costs;
    if (played(algorithm, b->ask) && c.between.burst > 0) {
        sk_loggp m = sk_loggp_of(&c);
        m.steady = true;
        return sk_loggp_play(&m, algorithm, b->ask, b->hosts, b->bytes, NULL);
    }
    c.between.burst = 0;
    return sk_call_price(&c, algorithm, b->ask, b->hosts, b->bytes);
}

static void compare(void *ctx, int algorithm, uint64_t degrees)
{
    best *b = ctx;
    b->ask->degrees = degrees;
    double price = steady_price(b, algorithm);
    bool simpler = price == b->seconds && b->degrees && !degrees;
    if (price >= b->seconds && !simpler) return;
    b->seconds = price;
    b->algorithm = algorithm;
    b->degrees = degrees;
}

int sk_choose(const sk_costs *c, sk_coll_ask *ask, int hosts, sk_reduce reduce, int64_t bytes,
              double *seconds)
{
    best b = {c, ask, hosts, SK_NO_CHOICE, bytes, 0, INFINITY};
    if (ask->n < 2 || in_heaps(ask, hosts, reduce)) {
        b.algorithm = SK_BUILTIN;
        b.seconds = sk_shm_price(c, ask->kind, ask->n, bytes);
    }
    sk_candidates(ask, hosts, reduce, compare, &b);
    ask->degrees = b.degrees;
    if (seconds) *seconds = b.seconds;
    return b.algorithm;
}

/* The part that stands for SK_BUILTIN. */
static const sk_coll *heaps_part(void)
{
    int i = 0;
    while (sk_coll_parts[i] && !sk_coll_parts[i]->heaps) i++;
    sk_assert(sk_coll_parts[i]);
    return sk_coll_parts[i];
}

const char *sk_algorithm_name(int algorithm)
{
    return (algorithm >= 0 ? sk_coll_parts[algorithm] : heaps_part())->name;
}

static const char *those_able(sk_arena *a, const sk_coll_ask *ask, int hosts, sk_reduce reduce)
{
    sk_out o = {.arena = a};
    if (hosts < 2 && reduce != SK_ADASUM) sk_out_add(&o, "%s", heaps_part()->name);
    for (int i = 0; sk_coll_parts[i]; i++)
        if (!sk_coll_parts[i]->native && able(sk_coll_parts[i], ask, reduce))
            sk_out_add(&o, "%s%s", o.n ? ", " : "", sk_coll_parts[i]->name);
    return o.n ? o.s : "none";
}

/* Degrees that do not make n. */
static sk_status refuse_degrees(const sk_coll *a, const sk_coll_ask *ask)
{
    char text[SK_DEGREES_TEXT];
    return sk_fail(SK_ECONF,
                   "the algorithm %s%s is for %lld ranks, and this %s has %d; degrees that make %d "
                   "are needed%s",
                   a->name, sk_degrees_print(ask->degrees, text),
                   (long long)sk_degrees_product(ask->degrees), sk_coll_names[ask->kind], ask->n,
                   ask->n,
                   a->order == SK_ORDER_TREE ? ", all but the last powers of two"
                                             : ", or less, but at least half of it");
}

static sk_status refuse(int pin, const sk_coll_ask *ask, int hosts, sk_reduce reduce)
{
    sk_arena tmp = {0};
    const char *able_ones = those_able(&tmp, ask, hosts, reduce);
    const char *what = sk_coll_names[ask->kind];
    const char *sum = sk_kind_sums(ask->kind) && reduce == SK_ADASUM ? " of adasum" : "";
    sk_status st;
    const sk_coll *a = pin > 0 ? sk_coll_parts[pin - 1] : NULL;
    sk_coll_ask plain = *ask;
    plain.degrees = 0;
    if (a && ask->degrees && able(a, &plain, reduce)) {
        sk_arena_end(&tmp);
        return refuse_degrees(a, ask);
    }
    if (a && sk_coll_can(a, ask)) /* not the number of ranks, but the reduction */
        st = sk_fail(SK_ECONF, "comm.algorithm: %s %s, and this %s %s; these do it: %s", a->name,
                     a->adasum ? "combines by adasum" : "sums", what,
                     a->adasum ? "sums" : "combines by adasum", able_ones);
    else if (pin == SK_PIN_NONE)
        st = sk_fail(SK_ECONF,
                     "no algorithm does %s%s for %d ranks on %d hosts unless it is asked for by "
                     "name (comm.algorithm, or skein_call.algorithm); these can: %s",
                     what, sum, ask->n, hosts, able_ones);
    else
        st = sk_fail(SK_ECONF,
                     "the algorithm %s does not do %s%s for %d rank%s on %d host%s; these do: %s",
                     sk_algorithm_name(pin == SK_BUILTIN ? SK_BUILTIN : pin - 1), what, sum, ask->n,
                     sk_plural(ask->n), hosts, sk_plural(hosts), able_ones);
    sk_arena_end(&tmp);
    return st;
}

sk_status sk_choose_call(const sk_costs *c, int pin, sk_coll_ask *ask, int hosts, sk_reduce reduce,
                         int64_t bytes, int *algorithm)
{
    bool fits = true;
    *algorithm = SK_BUILTIN;
    if (ask->n < 2) return SK_OK; /* whatever is pinned: there is nothing to do */
    if (pin == SK_PIN_NONE) {
        *algorithm = sk_choose(c ? c : &sk_costs_preset, ask, hosts, reduce, bytes, NULL);
        fits = *algorithm != SK_NO_CHOICE;
    } else if (pin == SK_BUILTIN) fits = in_heaps(ask, hosts, reduce);
    else {
        *algorithm = pin - 1;
        fits = able(sk_coll_parts[*algorithm], ask, reduce);
    }
    return fits ? SK_OK : refuse(pin, ask, hosts, reduce);
}

sk_status sk_choose_wired(const sk_coll *c, bool wire)
{
    if (!c->native || c->build || wire) return SK_OK;
    return sk_fail(SK_ECONF,
                   "comm.algorithm: %s goes through the wire of a library that connects hosts, and "
                   "all ranks are on one host; leave it out, or take %s",
                   c->name, heaps_part()->name);
}

/* Names of the parts that take degrees, with commas. */
static const char *with_degrees(char *to, size_t size)
{
    size_t n = 0;
    for (int i = 0; sk_coll_parts[i] && n < size; i++)
        if (sk_coll_parts[i]->degrees)
            n += (size_t)snprintf(to + n, size - n, "%s%s", n ? ", " : "", sk_coll_parts[i]->name);
    return to;
}

/* "butterfly:4x2" */
static sk_status find_degrees(const char *key, const char *name, const char *colon, int *pin,
                              uint64_t *degrees)
{
    char text[64], those[256] = "";
    snprintf(text, sizeof text, "%.*s", (int)(colon - name), name);
    SK_TRY(sk_pin_find(key, text, pin, degrees));
    const sk_coll *a = *pin > 0 ? sk_coll_parts[*pin - 1] : NULL;
    if (!a || !a->degrees)
        return sk_fail(SK_EUSAGE, "%s '%.60s': %s takes no degrees; those that do: %s", key, name,
                       text, with_degrees(those, sizeof those));
    if (sk_degrees_read(colon + 1, degrees)) return SK_OK;
    return sk_fail(SK_EUSAGE,
                   "%s '%.60s': up to %d degrees of 2 to %d with an x between them are needed, "
                   "such as %s:4x2",
                   key, name, SK_COLL_DEGREES, SK_MOST_DEGREE, text);
}

sk_status sk_pin_find(const char *key, const char *name, int *pin, uint64_t *degrees)
{
    const char *names[128] = {"auto"}, *colon = strchr(name, ':');
    int n = 1, at = sk_coll_find(name);
    *pin = SK_PIN_NONE;
    *degrees = 0;
    if (colon) return find_degrees(key, name, colon, pin, degrees);
    if (!*name || !strcmp(name, "auto")) return SK_OK;
    *pin = at >= 0 && sk_coll_parts[at]->heaps ? SK_BUILTIN : at + 1;
    if (*pin != SK_PIN_NONE) return SK_OK;
    while (n < 128 && sk_coll_parts[n - 1]) names[n] = sk_coll_parts[n - 1]->name, n++;
    const char *near = sk_nearest(name, names, n);
    return sk_fail(SK_EUSAGE, "%s '%.40s' is unknown%s%s%s; skein list coll shows them", key, name,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}
