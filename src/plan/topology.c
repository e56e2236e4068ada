/* topology.c - lines of a machine's file about what is not alike everywhere. */
#include "plan/topology.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- slow, unlike --- */

static const char *const may_differ[] = {
    "flops",       "memory_rate",  "overhead",     "copy_rate",     "file_rate",
    "host_rate",   "sustained",    "flops_f32",    "flops_fp8",     "host_launch",
    "rate_inside", "alpha_inside", "rate_between", "alpha_between",
};
enum { MAY_DIFFER = sizeof may_differ / sizeof *may_differ };

/* "3", or "3-5": how many characters; 0: it is neither. */
static int read_range(const char *s, sk_unlike *u)
{
    int n = 0, more = 0;
    if (!strchr("0123456789", *s) || sscanf(s, "%9d%n", &u->first, &n) != 1) return 0;
    u->last = u->first;
    if (s[n] != '-') return n;
    if (!s[n + 1] || !strchr("0123456789", s[n + 1])) return 0;
    if (sscanf(s + n + 1, "%9d%n", &u->last, &more) != 1 || u->last < u->first) return 0;
    return n + 1 + more;
}

static bool add(sk_topology *t, const sk_unlike *u)
{
    if (t->n_unlike == SK_MOST_UNLIKE) return false;
    t->unlike[t->n_unlike++] = *u;
    return true;
}

/* "3 flops 5e14" */
static bool add_unlike(sk_topology *t, const char *s)
{
    sk_unlike u = {0};
    char name[16], value[32], more;
    int n = read_range(s, &u);
    if (!n || sscanf(s + n, " %15s %31s %c", name, value, &more) != 2) return false;
    for (int i = 0; i < MAY_DIFFER; i++)
        if (!strcmp(name, may_differ[i])) memcpy(u.number, name, sizeof name);
    return *u.number && sk_read_real(value, &u.value) && u.value > 0 && u.value <= 1e21 &&
           add(t, &u);
}

/* "3@1.2", "host2-3@1.1" */
static bool add_slow(sk_topology *t, const char *s, bool said)
{
    const double most = 1e6;
    sk_unlike u = {.ranks = strncmp(s, "host", 4) != 0, .said = said};
    const char *range = u.ranks ? s : s + 4;
    int n = read_range(range, &u);
    if (!n || range[n] != '@' || !sk_read_real(range + n + 1, &u.value)) return false;
    return u.value >= 1 / most && u.value <= most && add(t, &u);
}

/* The entry at *s, which goes on behind it; false: there is none. */
static bool next_slow(const char **s, char *one, size_t n)
{
    size_t at = strspn(*s, ", "), length = strcspn(*s + at, ", ");
    if (!length) return false;
    snprintf(one, n, "%.*s", (int)length, *s + at);
    *s += at + length;
    return true;
}

static bool add_all_slow(sk_topology *t, const char *s, bool said, char *one, size_t n)
{
    int before = t->n_unlike;
    while (next_slow(&s, one, n))
        if (!add_slow(t, one, said)) return false;
    return t->n_unlike > before;
}

sk_status sk_topology_slow(sk_topology *t, const char *text)
{
    char one[48] = "";
    if (add_all_slow(t, text, true, one, sizeof one)) return SK_OK;
    return sk_fail(SK_EUSAGE,
                   "command line: --slow '%s': RANK@FACTOR, FIRST-LAST@FACTOR or hostN@FACTOR is "
                   "needed, as 3@1.2, at most %d in all",
                   *one ? one : text, SK_MOST_UNLIKE);
}

static void write_range(sk_out *o, const sk_unlike *u)
{
    sk_out_add(o, "%d", u->first);
    if (u->last != u->first) sk_out_add(o, "-%d", u->last);
}

static void write_unlike(sk_out *o, const sk_topology *t, bool slow)
{
    for (int i = 0; i < t->n_unlike; i++) {
        const sk_unlike *u = &t->unlike[i];
        if (slow != !*u->number) continue;
        sk_out_add(o, slow ? u->ranks ? "slow: " : "slow: host" : "unlike: ");
        write_range(o, u);
        if (slow) sk_out_add(o, "@%.9g\n", u->value);
        else sk_out_add(o, " %s %.9g\n", u->number, u->value);
    }
}

/* --- jitter --- */

enum { USUAL_DRAWS = 200, MOST_DRAWS = 100000 };

/* "0.02", "0.02,0.001@1.5" */
static bool set_jitter(sk_jitter *j, const char *s)
{
    char part[3][32] = {"", "0", "1"}, more;
    sk_jitter new = {.draws = USUAL_DRAWS};
    int n = sscanf(s, "%31[^, ] , %31[^@ ]@%31s %c", part[0], part[1], part[2], &more);
    if (n != 1 && n != 3) return false;
    if (!sk_read_plain(part[0], &new.sigma) || !sk_read_plain(part[1], &new.tail) ||
        !sk_read_plain(part[2], &new.factor))
        return false;
    *j = new;
    return new.sigma >= 0 && new.sigma <= 2 && new.tail >= 0 && new.tail <= 1 && new.factor >= 1 &&
           new.factor <= 1e6 && new.sigma + new.tail > 0;
}

sk_status sk_topology_jitter(sk_topology *t, const char *text, const char *draws)
{
    int64_t n = USUAL_DRAWS;
    if (text && !set_jitter(&t->jitter, text))
        return sk_fail(SK_EUSAGE, "command line: --jitter %.60s: %s is needed", text,
                       sk_topology_needed("jitter"));
    if (!draws) return SK_OK;
    if (!t->jitter.draws)
        return sk_fail(SK_EUSAGE,
                       "command line: --draws %.40s is about the steps of --jitter SIGMA", draws);
    if (!sk_read_int(draws, &n) || n < 1 || n > MOST_DRAWS)
        return sk_fail(SK_EUSAGE, "command line: --draws %.40s; a number from 1 to %d is needed",
                       draws, MOST_DRAWS);
    t->jitter.draws = (int)n;
    return SK_OK;
}

static void write_jitter(sk_out *o, const sk_jitter *j)
{
    if (!j->draws) return;
    sk_out_add(o, "jitter: %.9g", j->sigma);
    if (j->tail > 0) sk_out_add(o, ",%.9g@%.9g", j->tail, j->factor);
    sk_out_add(o, "\n");
}

/* --- networks --- */

typedef struct pair {
    const char *name;
    double *to;
    double least, most;
} pair;

/* " rate 45e9 alpha 1e-6": pairs in any order, each once. */
static bool read_pairs(const char *s, const pair *p, int n)
{
    char name[16], value[32];
    unsigned seen = 0;
    for (int length = 0; s[strspn(s, " ")]; s += length) {
        int i = 0;
        if (sscanf(s, " %15s %31s%n", name, value, &length) != 2) return false;
        while (i < n && strcmp(p[i].name, name)) i++;
        if (i == n || seen >> i & 1 || !sk_read_real(value, p[i].to)) return false;
        if (!(*p[i].to >= p[i].least && *p[i].to <= p[i].most)) return false;
        seen |= 1U << i;
    }
    return true;
}

static const double MOST_RATE = 1e18, MOST_ALPHA = 1e3, MOST_OVER = 1e6, MOST_HOSTS = 1 << 20,
                    MOST_RAILS = 1024, MOST_ROUTERS = 4096;

static bool add_level(sk_topology *t, const char *s, bool rails)
{
    double hosts = 0;
    sk_level l = {.over = 1};
    const pair p[] = {{"over", &l.over, 1e-3, MOST_OVER},
                      {"rate", &l.rate, 1, MOST_RATE},
                      {"alpha", &l.alpha, 0, MOST_ALPHA},
                      {"hosts", &hosts, 0, MOST_HOSTS}};
    int n = 0, *first = rails ? &l.rails : &l.hosts;
    if (t->n_levels == SK_MOST_LEVELS || sscanf(s, "%7d%n", first, &n) != 1) return false;
    if (*first < 1 || *first > (rails ? MOST_RAILS : MOST_HOSTS) ||
        !read_pairs(s + n, p, rails ? 4 : 3) || hosts != floor(hosts))
        return false;
    if (rails) l.hosts = (int)hosts;
    t->level[t->n_levels++] = l;
    return true;
}

/* "16x16x4": how many characters; 0: it is not that. */
static int read_sizes(const char *s, int *size, int most, int *n)
{
    const char *from = s;
    int length;
    for (*n = 0; *n < most; s++) {
        if (sscanf(s, "%6d%n", &size[*n], &length) != 1 || size[*n] < 1) return 0;
        s += length;
        if (++*n && *s != 'x') return (int)(s - from);
    }
    return 0;
}

static bool set_torus(sk_torus *t, const char *s)
{
    double nodes = 1;
    sk_torus new = {0};
    const pair p[] = {{"rate", &new.rate, 1, MOST_RATE}, {"alpha", &new.alpha, 0, MOST_ALPHA}};
    int n = read_sizes(s, new.size, SK_MOST_DIMS, &new.n);
    if (t->n || !n || !read_pairs(s + n, p, 2) || new.rate <= 0) return false;
    for (int i = 0; i < new.n; i++) nodes *= new.size[i];
    *t = new;
    return nodes <= MOST_HOSTS;
}

static bool set_dragonfly(sk_dragonfly *d, const char *s)
{
    int size[2], dims = 0, n = read_sizes(s, size, 2 + 1, &dims);
    sk_dragonfly new = {0};
    const pair p[] = {{"rate", &new.rate, 1, MOST_RATE},
                      {"global", &new.global, 1, MOST_RATE},
                      {"alpha", &new.alpha, 0, MOST_ALPHA}};
    if (d->hosts || !n || dims != 2 || !read_pairs(s + n, p, 3)) return false;
    if (size[0] > MOST_ROUTERS || size[1] > MOST_ROUTERS) return false;
    new.hosts = size[0], new.routers = size[1];
    *d = new;
    return new.rate > 0 && new.global > 0;
}

sk_status sk_topology_check(const sk_topology *t, const char *path)
{
    if ((t->n_levels > 0) + (t->torus.n > 0) + (t->dragonfly.hosts > 0) > 1)
        return sk_fail(SK_ECONF,
                       "%s: more than one network (level and rails, torus, dragonfly); one of them "
                       "is needed",
                       path);
    for (int i = 1; i < t->n_levels; i++) {
        int below = t->level[i - 1].hosts, here = t->level[i].hosts;
        if (!t->level[i].rails && below && here > below && here % below == 0) continue;
        return sk_fail(SK_ECONF,
                       "%s: a level of %d hosts above one of %d; from below upwards is needed, "
                       "rails first, each a multiple of the one before",
                       path, here, below);
    }
    return SK_OK;
}

static void write_level(sk_out *o, const sk_level *l)
{
    if (l->rails) sk_out_add(o, "rails: %d hosts %d", l->rails, l->hosts);
    else sk_out_add(o, "level: %d", l->hosts);
    sk_out_add(o, " over %.9g alpha %.9g", l->over, l->alpha);
    if (l->rate > 0) sk_out_add(o, " rate %.9g", l->rate);
    sk_out_add(o, "\n");
}

static void write_torus(sk_out *o, const sk_torus *t)
{
    for (int i = 0; i < t->n; i++) sk_out_add(o, "%s%d", i ? "x" : "torus: ", t->size[i]);
    if (t->n) sk_out_add(o, " rate %.9g alpha %.9g\n", t->rate, t->alpha);
}

static void write_dragonfly(sk_out *o, const sk_dragonfly *d)
{
    if (d->hosts)
        sk_out_add(o, "dragonfly: %dx%d rate %.9g global %.9g alpha %.9g\n", d->hosts, d->routers,
                   d->rate, d->global, d->alpha);
}

/* --- all keys --- */

static const struct {
    const char *key, *needed;
} lines[] = {
    {"slow", "'RANK@FACTOR, hostN@FACTOR ...', at most 32 in all,"},
    {"unlike", "'HOST NUMBER VALUE' as '3 flops 5e14' (flops, memory_rate, rate_between ...), at "
               "most 32 in all,"},
    {"jitter", "'SIGMA' (to 2), or 'SIGMA,PROBABILITY@FACTOR',"},
    {"level", "'HOSTS over FACTOR alpha SECONDS', or 'HOSTS rate BYTES', at most 4 times,"},
    {"rails", "'RAILS hosts N over FACTOR alpha SECONDS', at most 4 levels,"},
    {"torus", "'16x16x16 rate BYTES alpha SECONDS', once,"},
    {"dragonfly", "'HOSTSxROUTERS rate BYTES global BYTES alpha SECONDS', once,"},
};

bool sk_topology_set(sk_topology *t, const char *key, const char *value)
{
    char one[48];
    if (!strcmp(key, "slow")) return add_all_slow(t, value, false, one, sizeof one);
    if (!strcmp(key, "unlike")) return add_unlike(t, value);
    if (!strcmp(key, "jitter")) return set_jitter(&t->jitter, value);
    if (!strcmp(key, "torus")) return set_torus(&t->torus, value);
    if (!strcmp(key, "dragonfly")) return set_dragonfly(&t->dragonfly, value);
    return add_level(t, value, !strcmp(key, "rails"));
}

const char *sk_topology_needed(const char *key)
{
    int i = 0;
    while (strcmp(lines[i].key, key)) i++;
    return lines[i].needed;
}

void sk_topology_write(sk_out *o, const sk_topology *t, const char *key)
{
    bool rails = !strcmp(key, "rails");
    if (!strcmp(key, "torus")) write_torus(o, &t->torus);
    else if (!strcmp(key, "jitter")) write_jitter(o, &t->jitter);
    else if (!strcmp(key, "dragonfly")) write_dragonfly(o, &t->dragonfly);
    else if (rails || !strcmp(key, "level")) {
        for (int i = 0; i < t->n_levels; i++)
            if (rails == (t->level[i].rails > 0)) write_level(o, &t->level[i]);
    } else write_unlike(o, t, !strcmp(key, "slow"));
}
