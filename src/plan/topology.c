/* topology.c - lines of a machine's file about what is not alike everywhere. */
#include "plan/topology.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- slow, unlike --- */

static const char *const may_differ[] = {
    "flops",     "memory_rate", "overhead",  "copy_rate", "file_rate",
    "host_rate", "sustained",   "flops_f32", "flops_fp8", "host_launch",
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

/* --- all keys --- */

bool sk_topology_set(sk_topology *t, const char *key, const char *value)
{
    char one[48];
    if (!strcmp(key, "slow")) return add_all_slow(t, value, false, one, sizeof one);
    return add_unlike(t, value);
}

const char *sk_topology_needed(const char *key)
{
    if (!strcmp(key, "slow")) return "'RANK@FACTOR, hostN@FACTOR ...', at most 32 in all,";
    return "'HOST NUMBER VALUE' as '3 flops 5e14' (flops, memory_rate, overhead ...), at "
           "most 32 in all,";
}

void sk_topology_write(sk_out *o, const sk_topology *t, const char *key)
{
    write_unlike(o, t, !strcmp(key, "slow"));
}
