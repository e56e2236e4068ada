/* machine.c - built-in machines, the file that describes another, and prices. */
#include "plan/machine.h"
#include "base/file_io.h"
#include "base/strings.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PCIe 5 for each GPU, an eighth of the host's memory, an NVMe drive for each. */
#define GPU                                                                                      \
    .ranks_per_host = 8, .overlap = true, .overhead = 2e-6, .copy_rate = 50e9, .file_rate = 3e9, \
    .host_rate = 40e9
#define LINK(alpha_s, bytes_per_s)                  \
    {                                               \
        .alpha = alpha_s, .beta = 1 / (bytes_per_s) \
    }

/* Rates are those that programs reach, not those on the box: best 16-bit matrix products (the box
 * says `peak`, dense, as device/cuda.cu has it), 0.85 of the memory's rate, ring all-reduce of
 * large buffers, NCCL's own latencies. */
const sk_machine sk_machines[] = {
    {.name = "cpu",
     .doc = "preset, not measured: ranks of one host over shared memory",
     .flops = 8e10,
     .memory_rate = 1e10,
     .per_thread = true,
     .ranks_per_host = INT_MAX,
     .costs = SK_COSTS_PRESET,
     .chosen = true,
     .overhead = 1e-6},
    {.name = "a100-8",
     .doc = "preset, not measured: hosts of 8 A100-80GB, NVLink 3, 200 Gb/s for each GPU",
     .flops = 271e12,
     .peak = 312e12,
     .memory_rate = 1.7e12,
     .memory = 80000000000,
     .costs = {.inside = LINK(3.4e-6, 235e9), .between = LINK(14e-6, 23e9)},
     GPU},
    {.name = "h100-8",
     .doc = "preset, not measured: hosts of 8 H100-80GB, NVLink 4, 400 Gb/s for each GPU",
     .flops = 794e12,
     .peak = 989.4e12,
     .memory_rate = 2.85e12,
     .memory = 80000000000,
     .costs = {.inside = LINK(3.4e-6, 370e9), .between = LINK(14e-6, 46e9)},
     GPU},
    {.name = "h200-8",
     .doc = "preset, not measured: hosts of 8 H200-141GB, NVLink 4, 400 Gb/s for each GPU",
     .flops = 794e12,
     .peak = 989.4e12,
     .memory_rate = 4.1e12,
     .memory = 141000000000,
     .costs = {.inside = LINK(3.4e-6, 366e9), .between = LINK(14e-6, 46e9)},
     GPU},
    {.name = "b200-8",
     .doc = "preset, not measured: hosts of 8 B200-180GB, NVLink 5, 400 Gb/s for each GPU",
     .flops = 1745e12,
     .peak = 2250e12,
     .memory_rate = 6.8e12,
     .memory = 180000000000,
     .costs = {.inside = LINK(3.4e-6, 682e9), .between = LINK(14e-6, 46e9)},
     GPU},
    {.name = "unit",
     .doc = "for counting: a block costs 1 forward and 2 backward, the rest nothing",
     .ranks_per_host = INT_MAX,
     .overlap = true,
     .unit = true},
    {.flops = 0},
};

/* --- reading --- */

/* RATE is kept as its inverse; SPEED is not, and 0 says that it is not known.  COUNT is WHOLE in 64
 * bits; so is BYTES, where a fraction is dropped (79.6G need not be whole). */
typedef enum form { REAL, RATE, SPEED, WHOLE, COUNT, BYTES, TEXT, YES_NO, COLLS, VERSION } form;

typedef struct key {
    const char *name;
    form form;
    size_t at;
    double least, most;
} key;

#define AT(field) offsetof(sk_machine, field)
static const key keys[] = {
    {"version", VERSION, 0, 0, 0},
    {"name", TEXT, AT(name), 0, sizeof((sk_machine *)0)->name},
    {"host", TEXT, AT(costs.host), 0, sizeof((sk_machine *)0)->costs.host},
    {"flops", REAL, AT(flops), 1, 1e21},
    {"peak", REAL, AT(peak), 0, 1e21},
    {"per_thread", YES_NO, AT(per_thread), 0, 0},
    {"memory_rate", REAL, AT(memory_rate), 1, 1e18},
    {"memory", BYTES, AT(memory), 0, 1e18},
    {"copy_rate", SPEED, AT(copy_rate), 1, 1e18},
    {"file_rate", SPEED, AT(file_rate), 1, 1e18},
    {"host_rate", SPEED, AT(host_rate), 1, 1e18},
    {"ranks_per_host", WHOLE, AT(ranks_per_host), 1, INT_MAX},
    {"alpha_inside", REAL, AT(costs.inside.alpha), 0, 1e3},
    {"rate_inside", RATE, AT(costs.inside.beta), 1, 1e18},
    {"each_inside", REAL, AT(costs.inside.each), 0, 1e3},
    {"alpha_between", REAL, AT(costs.between.alpha), 0, 1e3},
    {"rate_between", RATE, AT(costs.between.beta), 1, 1e18},
    {"each_between", REAL, AT(costs.between.each), 0, 1e3},
    {"incast_between", REAL, AT(costs.between.incast), 0, 1e3},
    {"burst_between", REAL, AT(costs.between.burst), 0, 1e18},
    {"gap_inside", REAL, AT(costs.inside.gap), 0, 1e3},
    {"gap_between", REAL, AT(costs.between.gap), 0, 1e3},
    {"add_rate", RATE, AT(costs.gamma), 1, 1e18},
    {"shm_tiny", REAL, AT(costs.shm.tiny), 0, 1e3},
    {"shm_member", REAL, AT(costs.shm.member), 0, 1e3},
    {"shm_crowded", REAL, AT(costs.shm.crowded), 0, 1e3},
    {"shm_sum_rate", RATE, AT(costs.shm.sum), 1, 1e18},
    {"shm_copy_rate", RATE, AT(costs.shm.copy), 1, 1e18},
    {"shm_sum_rate_far", RATE, AT(costs.shm.sum_far), 1, 1e18},
    {"shm_copy_rate_far", RATE, AT(costs.shm.copy_far), 1, 1e18},
    {"cache", BYTES, AT(costs.cache), 0, 1e18},
    {"far", BYTES, AT(costs.far), 0, 1e18},
    {"cores", COUNT, AT(costs.cores), 1, 1e6},
    {"overhead", REAL, AT(overhead), 0, 1e3},
    {"overlap", YES_NO, AT(overlap), 0, 0},
    {"collectives", COLLS, 0, 0, 0},
};
enum { N_KEYS = sizeof keys / sizeof *keys };
#define LIKE ((uint64_t)1 << 63) /* beside a bit for each key */
_Static_assert(N_KEYS < 63, "keys have one word of bits");

typedef struct line {
    const char *path;
    int number;
    char key[64], value[256];
} line;

static bool read_flag(const char *s, const char *yes, const char *no, bool *out)
{
    *out = !strcmp(s, yes);
    return *out || !strcmp(s, no);
}

static bool set(sk_machine *m, const key *k, const char *value)
{
    void *to = (char *)m + k->at;
    double x = 0;
    switch (k->form) {
    case VERSION:
        return !strcmp(value, "1");
    case TEXT:
        snprintf(to, (size_t)k->most, "%s", value);
        return *value != 0;
    case YES_NO:
        return read_flag(value, "yes", "no", to) || read_flag(value, "true", "false", to);
    case COLLS:
        m->chosen = !strcmp(value, "chosen");
        return read_flag(value, "ring", m->chosen ? "chosen" : "best", &m->ring);
    default:
        if (!sk_read_real(value, &x)) return false;
        if (!(x >= k->least && x <= k->most) && !(k->form == SPEED && x == 0)) return false;
    }
    if ((k->form == WHOLE || k->form == COUNT) && x != floor(x)) return false;
    if (k->form == WHOLE) *(int *)to = (int)x;
    else if (k->form == COUNT || k->form == BYTES) *(int64_t *)to = (int64_t)x;
    else *(double *)to = k->form == RATE ? 1 / x : x;
    return true;
}

static const char *needed(const key *k, char *text, size_t n)
{
    if (k->form == VERSION) return "1, the only one this skein knows,";
    if (k->form == TEXT) return "a name";
    if (k->form == YES_NO) return "yes or no";
    if (k->form == COLLS) return "best, ring or chosen";
    snprintf(text, n, "a %snumber from %g to %g%s",
             k->form == WHOLE || k->form == COUNT ? "whole " : "", k->least, k->most,
             k->form == SPEED ? ", or 0" : "");
    return text;
}

static sk_status unknown(const line *l)
{
    const char *names[N_KEYS + 1] = {"like"};
    for (int i = 0; i < N_KEYS; i++) names[i + 1] = keys[i].name;
    const char *near = sk_nearest(l->key, names, N_KEYS + 1);
    return sk_fail(SK_ECONF, "%s:%d: a machine has no '%s'%s%s%s", l->path, l->number, l->key,
                   near ? " - did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static const sk_machine *find(const char *name)
{
    for (const sk_machine *m = sk_machines; *m->name; m++)
        if (!strcmp(m->name, name)) return m;
    return NULL;
}

static sk_status apply(const line *l, sk_machine *m, uint64_t *seen)
{
    char text[80];
    int i = 0;
    if (!strcmp(l->key, "like")) {
        const sk_machine *base = find(l->value);
        if (*seen || !base)
            return sk_fail(SK_ECONF, "%s:%d: 'like: %s' %s", l->path, l->number, l->value,
                           base ? "must be the first line" : "names no built-in machine");
        *seen = LIKE;
        *m = *base;
        return SK_OK;
    }
    while (i < N_KEYS && strcmp(keys[i].name, l->key)) i++;
    if (i == N_KEYS) return unknown(l);
    if (*seen >> i & 1)
        return sk_fail(SK_ECONF, "%s:%d: '%s' is there a second time", l->path, l->number, l->key);
    *seen |= (uint64_t)1 << i;
    if (set(m, &keys[i], l->value)) return SK_OK;
    return sk_fail(SK_ECONF, "%s:%d: %s is '%s'; %s is needed", l->path, l->number, l->key,
                   l->value, needed(&keys[i], text, sizeof text));
}

/* "key: value   # remark" -> key and value; false: neither that nor empty.  An empty line leaves
 * the key empty. */
static bool split(const char *s, size_t n, line *l)
{
    size_t end = 0, colon = 0;
    while (end < n && s[end] != '#') end++;
    while (end && strchr(" \t\r", s[end - 1])) end--;
    l->key[0] = l->value[0] = 0;
    if (!end) return true;
    while (colon < end && s[colon] != ':') colon++;
    size_t from = colon + 1;
    while (from < end && strchr(" \t", s[from])) from++;
    size_t key_end = colon;
    while (key_end && strchr(" \t", s[key_end - 1])) key_end--;
    bool fits = key_end && key_end < sizeof l->key && from < end && end - from < sizeof l->value;
    if (!fits || s[0] == ' ' || s[0] == '\t' || memchr(s, 0, end)) return false;
    memcpy(l->key, s, key_end);
    l->key[key_end] = 0;
    memcpy(l->value, s + from, end - from);
    l->value[end - from] = 0;
    return true;
}

/* A machine that was written from nothing must say what everything else is priced by. */
static sk_status complete(const char *path, const sk_machine *m)
{
    const char *missing = m->unit                     ? NULL
                          : m->flops <= 0             ? "flops"
                          : m->memory_rate <= 0       ? "memory_rate"
                          : m->costs.inside.beta <= 0 ? "rate_inside"
                          : m->ranks_per_host == 0    ? "ranks_per_host"
                          : m->ranks_per_host < INT_MAX && m->costs.between.beta <= 0
                              ? "rate_between"
                              : NULL;
    if (!missing && m->costs.far > 0 && m->costs.far < m->costs.cache)
        return sk_fail(SK_ECONF,
                       "%s: 'far' is %lld and 'cache' %lld; what is far begins behind the cache, "
                       "and needs at least as many bytes",
                       path, (long long)m->costs.far, (long long)m->costs.cache);
    if (!missing) return SK_OK;
    return sk_fail(SK_ECONF, "%s: '%s' is missing; add it, or begin with 'like: h100-8'", path,
                   missing);
}

static sk_status read_file(sk_arena *a, const char *path, sk_machine *out)
{
    sk_text t;
    uint64_t seen = 0;
    line l = {.path = path};
    sk_machine m = {.doc = "from a file", .name = "machine"};
    SK_TRY(sk_file_read(a, path, &t));
    for (const char *p = t.s, *end = t.s + t.n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        l.number++;
        if (!split(p, (size_t)(stop - p), &l))
            return sk_fail(SK_ECONF, "%s:%d: 'key: value' is needed, as in 'flops: 6e14'", path,
                           l.number);
        if (*l.key) SK_TRY(apply(&l, &m, &seen));
        p = stop + 1;
    }
    SK_TRY(complete(path, &m));
    *out = m;
    out->doc = sk_print(a, "from %s", path);
    return SK_OK;
}

sk_status sk_machine_read(sk_arena *a, const char *what, sk_machine *out)
{
    const sk_machine *m = find(what);
    if (m) {
        *out = *m;
        return SK_OK;
    }
    if (sk_is_file(what)) return read_file(a, what, out);
    sk_out o = {.arena = a};
    for (m = sk_machines; *m->name; m++) sk_out_add(&o, "%s%s", o.n ? ", " : "", m->name);
    return sk_fail(SK_EUSAGE,
                   "machine '%.200s' is neither a file nor one of: %s (and, for skein simulate, "
                   "here)",
                   what, o.s);
}

/* --- writing --- */

static void write_key(sk_out *o, const sk_machine *m, const key *k)
{
    const char *from = (const char *)m + k->at;
    double x = k->form == REAL || k->form == RATE || k->form == SPEED
                   ? *(const double *)(const void *)from
                   : 0;
    switch (k->form) {
    case VERSION:
        sk_out_add(o, "%s: 1\n", k->name);
        return;
    case TEXT:
        if (*from) sk_out_add(o, "%s: %s\n", k->name, from);
        return;
    case YES_NO:
        sk_out_add(o, "%s: %s\n", k->name, *(const bool *)from ? "yes" : "no");
        return;
    case COLLS:
        sk_out_add(o, "%s: %s\n", k->name, m->chosen ? "chosen" : m->ring ? "ring" : "best");
        return;
    case WHOLE:
        sk_out_add(o, "%s: %d\n", k->name, *(const int *)(const void *)from);
        return;
    case COUNT:
    case BYTES:
        if ((double)*(const int64_t *)(const void *)from < k->least) return; /* not known */
        sk_out_add(o, "%s: %lld\n", k->name, (long long)*(const int64_t *)(const void *)from);
        return;
    default:
        if (k->form == RATE && x <= 0) return; /* not known */
        sk_out_add(o, "%s: %.9g\n", k->name, k->form == RATE ? 1 / x : x);
    }
}

sk_status sk_machine_write(sk_arena *a, const char *path, const sk_machine *m)
{
    sk_out o = {.arena = a};
    const char *slash = strrchr(path, '/');
    sk_out_add(&o, "# a machine, as src/plan/machine.h describes; %s\n", m->doc ? m->doc : "");
    for (int i = 0; i < N_KEYS; i++) write_key(&o, m, &keys[i]);
    if (slash && slash > path) SK_TRY(sk_dir_make(sk_print(a, "%.*s", (int)(slash - path), path)));
    return sk_file_replace(path, o.s, o.n);
}

const char *sk_machine_path(sk_arena *a)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config && *config == '/') return sk_print(a, "%s/skein/machine.txt", config);
    if (home && *home) return sk_print(a, "%s/.config/skein/machine.txt", home);
    return NULL;
}

sk_status sk_machine_default(sk_arena *a, const char *what, sk_machine *out, const char **warning)
{
    char here[sizeof out->costs.host];
    const char *path = what && *what ? NULL : sk_machine_path(a);
    *warning = NULL;
    if (what && *what) return sk_machine_read(a, what, out);
    if (!path || !sk_is_file(path)) return sk_machine_read(a, "cpu", out);
    SK_TRY(read_file(a, path, out));
    sk_host_mark(here, sizeof here);
    if (!*out->costs.host || !strcmp(here, out->costs.host)) return SK_OK;
    *warning = sk_print(a,
                        "%s was measured on another host (%s; this is %s), so presets are used; "
                        "skein bench coll --calibrate measures this one",
                        path, out->costs.host, here);
    return sk_machine_read(a, "cpu", out);
}

/* --- prices --- */

double sk_machine_peak(const sk_machine *m, int ranks, int threads)
{
    double one = m->peak > 0 ? m->peak : m->flops;
    return one * ranks * (m->per_thread ? threads : 1);
}

double sk_machine_work(const sk_machine *m, double flops, int64_t bytes, int threads)
{
    if (m->unit) return 0;
    double rate = m->per_thread ? m->flops * threads : m->flops;
    return fmax(flops / rate, (double)bytes / m->memory_rate) + m->overhead;
}

double sk_machine_copy(const sk_machine *m, int64_t bytes, bool file)
{
    double rate = m->copy_rate > 0 ? m->copy_rate : m->memory_rate / 2;
    if (file) rate = m->file_rate > 0 ? m->file_rate : 1e9;
    return m->unit ? 0 : (double)bytes / rate;
}

double sk_machine_host(const sk_machine *m, int64_t bytes)
{
    if (m->unit) return 0;
    return (double)bytes / (m->host_rate > 0 ? m->host_rate : m->memory_rate) + m->overhead;
}

double sk_machine_send(const sk_machine *m, int64_t bytes, bool one_host)
{
    const sk_link *l = one_host ? &m->costs.inside : &m->costs.between;
    return l->alpha + (double)bytes * l->beta;
}

static double ring(const sk_machine *m, double bytes, sk_reach r)
{
    double beta =
        r.hosts > 1 ? fmax(m->costs.inside.beta, m->costs.between.beta) : m->costs.inside.beta;
    int hops = r.hosts > 1 ? r.hosts - 1 : 0;
    double alpha = (r.n - 1 - hops) * m->costs.inside.alpha + hops * m->costs.between.alpha;
    return alpha + bytes * (r.n - 1) / r.n * beta;
}

static int steps(int n) /* of a tree over n: log2, rounded up */
{
    int k = 0;
    while (k < 31 && 1 << k < n) k++;
    return k;
}

static double tree(const sk_machine *m, double bytes, sk_reach r)
{
    const double filled = 0.92; /* of the link, by a pipelined double tree */
    double beta =
        r.hosts > 1 ? fmax(m->costs.inside.beta, m->costs.between.beta) : m->costs.inside.beta;
    double alpha = steps(r.most) * m->costs.inside.alpha + steps(r.hosts) * m->costs.between.alpha;
    return alpha + bytes * beta / filled;
}

static double two_level(const sk_machine *m, double bytes, sk_reach r)
{
    double in =
        (r.most - 1) * m->costs.inside.alpha + bytes * (r.most - 1) / r.most * m->costs.inside.beta;
    double out = (r.hosts - 1) * m->costs.between.alpha +
                 bytes / r.most * (r.hosts - 1) / r.hosts * m->costs.between.beta;
    return in + out;
}

/* One way of the bytes (reduce-scatter or all-gather); an all-reduce is both. */
double sk_machine_coll(const sk_machine *m, sk_coll_kind kind, int64_t bytes, sk_reach r)
{
    if (m->unit || r.n < 2) return 0;
    if (m->chosen && m->costs.shm.tiny > 0 && r.hosts < 2)
        return sk_shm_price(&m->costs, kind, r.n, bytes);
    double s = (double)bytes, best = ring(m, s, r);
    if (!m->ring) {
        best = fmin(best, tree(m, s, r));
        if (r.hosts > 1 && r.most > 1 && r.n == r.hosts * r.most)
            best = fmin(best, two_level(m, s, r));
    }
    return kind == SK_ALLREDUCE ? 2 * best : best;
}

sk_reach sk_machine_reach(const sk_machine *m, const int *ranks, int n)
{
    sk_reach r = {.n = n};
    int last = -1, here = 0;
    for (int i = 0; i < n; i++) {
        int host = ranks[i] / m->ranks_per_host;
        here = host == last ? here + 1 : 1;
        r.hosts += host != last;
        if (here > r.most) r.most = here;
        last = host;
    }
    return r;
}

const int *sk_machine_hosts(sk_arena *a, const sk_machine *m, int n_ranks)
{
    if (!m->chosen || n_ranks <= m->ranks_per_host) return NULL;
    int *host_of = sk_many(a, int, n_ranks);
    for (int r = 0; r < n_ranks; r++) host_of[r] = r / m->ranks_per_host;
    return host_of;
}
