/* routes.c - links of fat trees, rails, tori and dragonflies. */
#include "plan/routes.h"

static void pass(sk_path *p, int link, double part)
{
    *(struct sk_path_link *)sk_push(p->arena, p) = (struct sk_path_link){link, part};
}

static int ceil_div(int n, int by) { return n / by + (n % by != 0); }

/* --- fat trees and rails: the uplinks of unit u are first + 2u, downwards first + 2u + 1 --- */

static int hosts_of(const sk_routes *r, const sk_level *l)
{
    return l->hosts && l->hosts < r->hosts ? l->hosts : r->hosts;
}

static int rail_of(const sk_routes *r, const sk_level *l, int rank)
{
    if (!l->rails) return 0;
    return (int)((int64_t)(rank % r->per_host) * l->rails / r->per_host);
}

static int unit_of(const sk_routes *r, const sk_level *l, int rank)
{
    int rails = l->rails ? l->rails : 1;
    return rank / r->per_host / hosts_of(r, l) * rails + rail_of(r, l, rank);
}

static void open_tree(sk_routes *r)
{
    for (int i = 0; i < r->t->n_levels; i++) {
        const sk_level *l = &r->t->level[i];
        r->first[i] = r->n_links;
        r->n_links += 2 * ceil_div(r->hosts, hosts_of(r, l)) * (l->rails ? l->rails : 1);
    }
}

static double uplinks(const sk_routes *r, const sk_level *l)
{
    double ranks = (double)hosts_of(r, l) * r->per_host / (l->rails ? l->rails : 1);
    return l->rate > 0 ? l->rate : ranks * r->rate / l->over;
}

static void climb(const sk_routes *r, int from, int to, sk_path *p)
{
    for (int i = 0; i < r->t->n_levels; i++) {
        const sk_level *l = &r->t->level[i];
        int a = unit_of(r, l, from), b = unit_of(r, l, to);
        if (a == b) continue;
        p->alpha += l->alpha;
        pass(p, r->first[i] + 2 * a, 1);
        pass(p, r->first[i] + 2 * b + 1, 1);
    }
}

int sk_routes_rail(const sk_routes *r, int rank)
{
    return r->t->n_levels ? rail_of(r, &r->t->level[0], rank) : 0;
}

/* --- tori: of each node and dimension two links, the first to the next node --- */

static int nodes(const sk_torus *t)
{
    int n = 1;
    for (int d = 0; d < t->n; d++) n *= t->size[d];
    return n;
}

static void go_round(const sk_routes *r, int from, int to, sk_path *p)
{
    const sk_torus *t = &r->t->torus;
    for (int d = t->n - 1, stride = 1; d >= 0; stride *= t->size[d--]) {
        int k = t->size[d], a = from / stride % k, b = to / stride % k, ahead = (b - a + k) % k;
        int back = ahead > k / 2, links = back ? k - ahead : ahead;
        for (int i = 0; i < links; i++) {
            pass(p, 2 * (from * t->n + d) + back, 1);
            int next = (a + (back ? k - 1 : 1)) % k;
            from += (next - a) * stride;
            a = next;
        }
        p->alpha += links * t->alpha;
    }
}

/* --- dragonflies: links from router to router of a group, then those from group to group --- */

static sk_status open_dragonfly(sk_routes *r)
{
    const int64_t most = 1 << 24;
    const sk_dragonfly *d = &r->t->dragonfly;
    r->groups = ceil_div(r->hosts, d->hosts * d->routers);
    int64_t inside = (int64_t)r->groups * d->routers * d->routers;
    int64_t all = inside + (int64_t)r->groups * r->groups;
    if (all > most)
        return sk_fail(SK_ECONF,
                       "dragonfly: %d hosts on routers of %d in groups of %d have %lld links; at "
                       "most %lld are counted",
                       r->hosts, d->hosts, d->routers, (long long)all, (long long)most);
    r->globals = (int)inside;
    r->n_links = (int)all;
    return SK_OK;
}

/* From a router to another one of its group. */
static void hop(const sk_routes *r, int group, int from, int to, double part, sk_path *p)
{
    const sk_dragonfly *d = &r->t->dragonfly;
    if (from == to) return;
    p->alpha += part * d->alpha;
    pass(p, (group * d->routers + from) * d->routers + to, part);
}

/* From router *at of a group to another group; *at is where it comes to. */
static void jump(const sk_routes *r, int group, int to, int *at, double part, sk_path *p)
{
    const sk_dragonfly *d = &r->t->dragonfly;
    if (group == to) return;
    hop(r, group, *at, to % d->routers, part, p);
    p->alpha += part * d->alpha;
    pass(p, r->globals + group * r->groups + to, part);
    *at = group % d->routers;
}

static void fly(const sk_routes *r, int from, int to, sk_path *p)
{
    enum { MOST_WAYS = 32 };
    const sk_dragonfly *d = &r->t->dragonfly;
    int a = from / d->hosts, b = to / d->hosts, x = a / d->routers, y = b / d->routers;
    int others = r->groups - 1, ways = !r->around || x == y ? 1 : others;
    if (ways > MOST_WAYS) ways = MOST_WAYS;
    for (int i = 0; i < ways; i++) {
        int by = ways > 1 ? (x + 1 + (int)((int64_t)i * others / ways)) % r->groups : y;
        int at = a % d->routers;
        jump(r, x, by, &at, 1.0 / ways, p);
        jump(r, by, y, &at, 1.0 / ways, p);
        hop(r, y, at, b % d->routers, 1.0 / ways, p);
    }
}

/* --- all --- */

sk_status sk_routes_open(const sk_machine *m, int n_ranks, sk_routes *out)
{
    const sk_topology *t = &m->topology;
    *out = (sk_routes){.t = t, .per_host = m->ranks_per_host};
    out->hosts = ceil_div(n_ranks, m->ranks_per_host);
    out->rate = m->costs.between.beta > 0 ? 1 / m->costs.between.beta : 0;
    if (t->torus.n && nodes(&t->torus) < out->hosts)
        return sk_fail(SK_ECONF,
                       "machine %s: its torus has %d hosts, and %d ranks, %d on each host, need %d",
                       m->name, nodes(&t->torus), n_ranks, m->ranks_per_host, out->hosts);
    if (t->n_levels && t->level[0].rails > m->ranks_per_host)
        return sk_fail(SK_ECONF,
                       "machine %s: %d rails for the %d ranks of a host; at most one for each rank "
                       "is needed",
                       m->name, t->level[0].rails, m->ranks_per_host);
    if (out->hosts < 2) return SK_OK;
    if (t->torus.n) out->n_links = 2 * nodes(&t->torus) * t->torus.n;
    else if (t->dragonfly.hosts) SK_TRY(open_dragonfly(out));
    else open_tree(out);
    return SK_OK;
}

double sk_routes_capacity(const sk_routes *r, int link)
{
    const sk_topology *t = r->t;
    int i = t->n_levels - 1;
    if (t->torus.n) return t->torus.rate;
    if (t->dragonfly.hosts) return link < r->globals ? t->dragonfly.rate : t->dragonfly.global;
    while (link < r->first[i]) i--;
    return uplinks(r, &t->level[i]);
}

void sk_routes_find(const sk_routes *r, int from, int to, sk_path *path)
{
    int a = from / r->per_host, b = to / r->per_host;
    path->n = 0;
    path->alpha = 0;
    if (a == b || !r->n_links) return;
    if (r->t->torus.n) go_round(r, a, b, path);
    else if (r->t->dragonfly.hosts) fly(r, a, b, path);
    else climb(r, from, to, path);
}
