/* machine.c - the file that describes a machine. */
#include "plan/machine.h"
#include "plan/machine_tables.h"
#include "base/file_io.h"
#include "base/strings.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- reading --- */

/* RATE is kept as its inverse; SPEED is not, and 0 says that it is not known.  COUNT is WHOLE in 64
 * bits; so is BYTES, where a fraction is dropped (79.6G need not be whole). */
typedef enum form {
    REAL,
    RATE,
    SPEED,
    WHOLE,
    COUNT,
    BYTES,
    TEXT,
    YES_NO,
    COLLS,
    VERSION,
    SCORES,
    ENGINE,
    PRODUCT, /* a line for each row of a table; so all from here on */
    ATTENTION,
    BETWEEN,
    ATTENTION_AT,
    OP,
    TOPOLOGY
} form;

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
    {"crowd", SPEED, AT(crowd), 0.1, 100},
    {"overhead", REAL, AT(overhead), 0, 1e3},
    {"call", REAL, AT(call), 0, 1e3},
    {"flops_f32", SPEED, AT(kernels.flops_f32), 1, 1e21},
    {"flops_fp8", SPEED, AT(kernels.flops_fp8), 1, 1e21},
    {"sms", WHOLE, AT(kernels.sms), 0, 1e6},
    {"ramp", REAL, AT(kernels.ramp), 0, 1e6},
    {"product", PRODUCT, 0, 0, 0},
    {"attention", ATTENTION, 0, 0, 0},
    {"sustained", SPEED, AT(kernels.sustained), 0.01, 1},
    {"older", SPEED, AT(kernels.older), 0.01, 1},
    {"between", BETWEEN, 0, 0, 0},
    {"attention_ramp", REAL, AT(kernels.attention_ramp), 0, 1e6},
    {"attention_at", ATTENTION_AT, 0, 0, 0},
    {"op", OP, 0, 0, 0},
    {"step", REAL, AT(step), 0, 1e3},
    {"issue", REAL, AT(issue), 0, 1},
    {"engine", ENGINE, 0, 0, 0},
    {"overlap", YES_NO, AT(overlap), 0, 0},
    {"scores", SCORES, 0, 0, 0},
    {"stream", REAL, AT(engine.stream), 0, 1e3},
    {"loss", REAL, AT(engine.loss), 0, 1e3},
    {"host_launch", REAL, AT(engine.host_launch), 0, 1},
    {"flash", SPEED, AT(engine.flash), 1e-3, 1e3},
    {"gathers", SPEED, AT(engine.gathers), 1e-3, 1e3},
    {"contention", REAL, AT(engine.contention), 0, 1},
    {"host_waits", YES_NO, AT(engine.host_waits), 0, 0},
    {"accumulate", REAL, AT(engine.accumulate), 0, 1e3},
    {"older_attention", YES_NO, AT(engine.older), 0, 0},
    {"gather_each", YES_NO, AT(engine.gather_each), 0, 0},
    {"gather_least", REAL, AT(engine.gather_least), 0, 1e18},
    {"gather_reuse", REAL, AT(engine.gather_reuse), 0, 1e18},
    {"gather_passes", REAL, AT(engine.gather_passes), 0, 1e3},
    {"sum_passes", REAL, AT(engine.sum_passes), 0, 1e3},
    {"part_copy", REAL, AT(engine.part_copy), 0, 1},
    {"wide_sums", YES_NO, AT(engine.wide_sums), 0, 0},
    {"whole_recompute", YES_NO, AT(engine.whole_recompute), 0, 0},
    {"late_sums", YES_NO, AT(engine.late_sums), 0, 0},
    {"collectives", COLLS, 0, 0, 0},
    {"mtbf", SPEED, AT(upkeep.mtbf), 1e-6, 1e30},
    {"host_mtbf", SPEED, AT(upkeep.host_mtbf), 1e-6, 1e30},
    {"preemptible_mtbf", SPEED, AT(upkeep.preemptible_mtbf), 1e-6, 1e30},
    {"price", SPEED, AT(upkeep.price), 1e-9, 1e9},
    {"preemptible_price", SPEED, AT(upkeep.preemptible_price), 1e-9, 1e9},
    {"watts", SPEED, AT(upkeep.watts), 1e-3, 1e6},
    {"idle_watts", SPEED, AT(upkeep.idle_watts), 1e-3, 1e6},
    {"slow", TOPOLOGY, 0, 0, 0},
    {"unlike", TOPOLOGY, 0, 0, 0},
    {"jitter", TOPOLOGY, 0, 0, 0},
    {"rails", TOPOLOGY, 0, 0, 0}, /* before the levels above them */
    {"level", TOPOLOGY, 0, 0, 0},
    {"torus", TOPOLOGY, 0, 0, 0},
    {"dragonfly", TOPOLOGY, 0, 0, 0},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

typedef struct keys_seen {
    bool any, key[N_KEYS];
} keys_seen;

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

static bool set_engine(sk_machine *m, const char *name)
{
    for (const sk_engine *e = sk_engines; *e->name; e++) {
        if (strcmp(e->name, name)) continue;
        m->engine = *e;
        if (e->no_overlap) m->overlap = false;
        return true;
    }
    return false;
}

static bool set(sk_machine *m, const key *k, const char *value)
{
    void *to = (char *)m + k->at;
    double x = 0;
    switch (k->form) {
    case VERSION:
        return !strcmp(value, "1") || !strcmp(value, "2");
    case TEXT:
        snprintf(to, (size_t)k->most, "%s", value);
        return *value != 0;
    case YES_NO:
        return read_flag(value, "yes", "no", to) || read_flag(value, "true", "false", to);
    case SCORES:
        return read_flag(value, "memory", "flash", &m->engine.scores_in_memory);
    case ENGINE:
        return set_engine(m, value);
    case PRODUCT:
        return sk_machine_add_product(m, value);
    case ATTENTION:
        return sk_machine_add_width(m, value);
    case BETWEEN:
        return sk_machine_add_between(m, value);
    case ATTENTION_AT:
        return sk_machine_add_attention_at(m, value);
    case OP:
        return sk_machine_add_op(m, value);
    case TOPOLOGY:
        return sk_topology_set(&m->topology, k->name, value);
    case COLLS:
        m->chosen = !strcmp(value, "chosen");
        m->nccl = !strcmp(value, "nccl");
        return read_flag(value, "ring", m->chosen ? "chosen" : m->nccl ? "nccl" : "best", &m->ring);
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
    if (k->form == VERSION) return "1 or 2, those that this skein knows,";
    if (k->form == TEXT) return "a name";
    if (k->form == YES_NO) return "yes or no";
    if (k->form == COLLS) return "best, ring, nccl or chosen";
    if (k->form == SCORES) return "flash or memory";
    if (k->form == ENGINE) return "a profile (skein, megatron-2021, nemo, fsdp ...)";
    if (k->form == BETWEEN) return "'HOSTS BYTES RATE', at most 32 times,";
    if (k->form == TOPOLOGY) return sk_topology_needed(k->name);
    if (k->form == PRODUCT) return "'TYPE M N K FLOPS' and perhaps BATCH, at most 192 times,";
    if (k->form == ATTENTION_AT) return "'TYPE WIDTH KEYS FORWARD BACKWARD', at most 48 times,";
    if (k->form == OP) return "'NAME TYPE BYTES SECONDS', at most 384 times,";
    if (k->form == ATTENTION)
        return "'WIDTH FORWARD BACKWARD', by ascending width, at most 8 times,";
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

static const sk_machine *find(const char *name, size_t n)
{
    for (const sk_machine *m = sk_machines; *m->name; m++)
        if (!strncmp(m->name, name, n) && !m->name[n]) return m;
    return NULL;
}

/* "h100-8", or "h100-8:nemo" with an engine's profile. */
static bool built_in(const char *what, sk_machine *out)
{
    const char *colon = strchr(what, ':');
    const sk_machine *m = find(what, colon ? (size_t)(colon - what) : strlen(what));
    if (!m) return false;
    *out = *m;
    return !colon || set_engine(out, colon + 1);
}

static sk_status apply(const line *l, sk_machine *m, keys_seen *seen)
{
    char text[80];
    int i = 0;
    if (!strcmp(l->key, "like")) {
        sk_machine base = {0};
        bool known = built_in(l->value, &base);
        if (seen->any || !known)
            return sk_fail(SK_ECONF, "%s:%d: 'like: %s' %s", l->path, l->number, l->value,
                           known ? "must be the first line" : "names no built-in machine");
        seen->any = true;
        *m = base;
        return SK_OK;
    }
    while (i < N_KEYS && strcmp(keys[i].name, l->key)) i++;
    if (i == N_KEYS) return unknown(l);
    bool first = !seen->key[i], rows = keys[i].form >= PRODUCT;
    if (first && keys[i].form == PRODUCT) m->kernels.n_products = 0; /* not those of `like` */
    if (first && keys[i].form == ATTENTION) m->kernels.n_widths = 0;
    if (first && keys[i].form == BETWEEN) m->n_between = 0;
    if (first && keys[i].form == ATTENTION_AT) m->kernels.n_attention_at = 0;
    if (first && keys[i].form == OP) m->kernels.n_ops = 0;
    if (!first && !rows)
        return sk_fail(SK_ECONF, "%s:%d: '%s' is there a second time", l->path, l->number, l->key);
    seen->any = seen->key[i] = true;
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
    SK_TRY(sk_topology_check(&m->topology, path));
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
    keys_seen seen = {0};
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
    if (built_in(what, out)) return SK_OK;
    if (sk_is_file(what)) return read_file(a, what, out);
    sk_out o = {.arena = a}, e = {.arena = a};
    for (const sk_machine *m = sk_machines; *m->name; m++)
        sk_out_add(&o, "%s%s", o.n ? ", " : "", m->name);
    for (const sk_engine *n = sk_engines; *n->name; n++)
        sk_out_add(&e, "%s:%s", e.n ? ", " : "", n->name);
    return sk_fail(SK_EUSAGE,
                   "machine '%.200s' is neither a file nor one of: %s (and, for skein simulate, "
                   "here); of other engines with %s behind it",
                   what, o.s, e.s);
}

/* --- one number --- */

static bool is_number(const key *k) { return k->form >= REAL && k->form <= BYTES; }

static const key *find_key(const char *name)
{
    for (int i = 0; i < N_KEYS; i++)
        if (!strcmp(keys[i].name, name)) return &keys[i];
    return NULL;
}

const char *sk_machine_number_name(int i)
{
    for (int k = 0; k < N_KEYS; k++)
        if (is_number(&keys[k]) && !i--) return keys[k].name;
    return NULL;
}

bool sk_machine_number(const sk_machine *m, const char *name, double *out, bool *whole)
{
    const key *k = find_key(name);
    if (!k || !is_number(k)) return false;
    const void *at = (const char *)m + k->at;
    *whole = k->form == WHOLE || k->form == COUNT;
    if (k->form == WHOLE) *out = *(const int *)at;
    else if (k->form == COUNT || k->form == BYTES) *out = (double)*(const int64_t *)at;
    else *out = *(const double *)at;
    if (k->form == RATE) *out = *out > 0 ? 1 / *out : 0;
    return true;
}

sk_status sk_machine_set(sk_machine *m, const char *name, const char *value)
{
    char text[80];
    const key *k = find_key(name);
    sk_assert(k && is_number(k));
    if (set(m, k, value)) return SK_OK;
    return sk_fail(SK_ECONF, "machine %s: %s is '%.80s'; %s is needed", m->name, name, value,
                   needed(k, text, sizeof text));
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
        sk_out_add(o, "%s: 2\n", k->name);
        return;
    case TEXT:
        if (*from) sk_out_add(o, "%s: %s\n", k->name, from);
        return;
    case YES_NO:
        sk_out_add(o, "%s: %s\n", k->name, *(const bool *)from ? "yes" : "no");
        return;
    case SCORES:
        sk_out_add(o, "%s: %s\n", k->name, m->engine.scores_in_memory ? "memory" : "flash");
        return;
    case ENGINE:
        if (*m->engine.name) sk_out_add(o, "%s: %s\n", k->name, m->engine.name);
        return;
    case PRODUCT:
        sk_machine_write_products(o, m);
        return;
    case ATTENTION:
        sk_machine_write_widths(o, m);
        return;
    case BETWEEN:
        sk_machine_write_between(o, m);
        return;
    case ATTENTION_AT:
        sk_machine_write_attention_at(o, m);
        return;
    case OP:
        sk_machine_write_ops(o, m);
        return;
    case TOPOLOGY:
        sk_topology_write(o, &m->topology, k->name);
        return;
    case COLLS:
        sk_out_add(o, "%s: %s\n", k->name,
                   m->chosen ? "chosen"
                   : m->ring ? "ring"
                   : m->nccl ? "nccl"
                             : "best");
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

static sk_status make_folder(sk_arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return SK_OK;
    return sk_dir_make(sk_print(a, "%.*s", (int)(slash - path), path));
}

sk_status sk_machine_can_write(sk_arena *a, const char *path)
{
    const char *beside = sk_print(a, "%s.tmp-%ld", path, (long)getpid());
    if (sk_is_dir(path))
        return sk_fail(SK_EUSAGE,
                       "command line: %s is a directory; a file to write the machine to is needed, "
                       "as %s/machine.txt",
                       path, path);
    SK_TRY(make_folder(a, path));
    SK_TRY(sk_file_write_new(beside, "", 0));
    unlink(beside);
    return SK_OK;
}

sk_status sk_machine_write(sk_arena *a, const char *path, const sk_machine *m)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "# a machine, as src/plan/machine.h describes; %s\n", m->doc ? m->doc : "");
    for (int i = 0; i < N_KEYS; i++) write_key(&o, m, &keys[i]);
    SK_TRY(make_folder(a, path));
    return sk_file_replace(path, o.s, o.n);
}

const char *sk_machine_path_on(sk_arena *a, bool gpu)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    const char *name = gpu ? "machine-cuda.txt" : "machine.txt";
    if (config && *config == '/') return sk_print(a, "%s/skein/%s", config, name);
    if (home && *home) return sk_print(a, "%s/.config/skein/%s", home, name);
    return NULL;
}

const char *sk_machine_path(sk_arena *a) { return sk_machine_path_on(a, false); }

sk_status sk_machine_default_on(sk_arena *a, const char *what, bool gpu, sk_machine *out,
                                const char **warning)
{
    char here[sizeof out->costs.host];
    *warning = NULL;
    if (what && *what) return sk_machine_read(a, what, out);
    const char *path = sk_machine_path_on(a, gpu);
    if (gpu && !(path && sk_is_file(path))) path = sk_machine_path(a);
    if (!path || !sk_is_file(path)) return sk_machine_read(a, "cpu", out);
    SK_TRY(read_file(a, path, out));
    sk_host_mark(here, sizeof here);
    if (!*out->costs.host || !strcmp(here, out->costs.host)) return SK_OK;
    *warning = sk_print(a,
                        "%s was measured on another host (%s; this is %s), so presets are used; "
                        "skein calibrate measures this one",
                        path, out->costs.host, here);
    return sk_machine_read(a, "cpu", out);
}

sk_status sk_machine_default(sk_arena *a, const char *what, sk_machine *out, const char **warning)
{
    return sk_machine_default_on(a, what, false, out, warning);
}
