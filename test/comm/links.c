/* links.c - links that differ: the topology file, what lists cost on such links, and which is
 * chosen.
 *
 * Prices are held against closed forms where links are alike, and against the slowest link where
 * one is poor.  That lists over given links sum right is in matrix.c. */
#include "coll/execute.h"
#include "coll/link_price.h"
#include "base/file_io.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int checks, bad;
static sk_arena arena;
static const sk_costs free_links = {.inside = {.beta = 1}, .between = {.beta = 1}}; /* bytes only */

static void check(bool ok, const char *what, double found, double wanted)
{
    checks++;
    if (ok) return;
    bad++;
    printf("%s: found %.17g, wanted %.17g\n", what, found, wanted);
}

static void equal(double found, double wanted, const char *what)
{
    check(fabs(found - wanted) <= 1e-9 * fabs(wanted), what, found, wanted);
}

static const sk_links *reading(const char *text, int n, sk_status wanted, const char *word)
{
    char path[] = "/tmp/skein-links-XXXXXX";
    const sk_links *l = NULL;
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) return NULL;
    close(fd);
    sk_status st = sk_links_read(&arena, "comm.links", path, n, &l);
    check(st == wanted, text, (double)st, (double)wanted);
    if (st && !strstr(sk_error_line(), word)) check(false, sk_error_line(), 0, 1);
    unlink(path);
    return l;
}

static void files(void)
{
    const sk_links *l = reading("# two\n0 1 5e9 # both\n\n1 > 2 2\n", 3, SK_OK, "");
    if (!l) {
        check(false, "no links", 0, 1);
        return;
    }
    const double want[9] = {0, 5e9, 0, 5e9, 0, 2, 0, 0, 0};
    for (int i = 0; i < 9; i++) check(l->rate[i] == want[i], "a rate", l->rate[i], want[i]);
    l = reading("rest 3\n0 > 1 7", 2, SK_OK, "");
    if (l) check(l->rate[1] == 7 && l->rate[2] == 3 && l->rate[0] == 0, "rest", l->rate[2], 3);
    static const char *const wrong[] = {
        "0 1\n",      "0 1 x\n",   "0 1 -1\n",    "0 1 0\n",          "0 1 inf\n",      "0 1 nan\n",
        "0 3 1\n",    "-1 0 1\n",  "1 1 5\n",     "0 > 1\n",          "0 < 1 5\n",      "rest\n",
        "rest 1 2\n", "0 1 2 3\n", "0 > 1 2 3\n", "rest 1\nrest 2\n", "0 1 2 3 4 5 6\n"};
    for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++)
        reading(wrong[i], 3, SK_EDATA, "line");
    reading("0 1 5\n1 > 0 6\n", 3, SK_EDATA, "was said before");
    reading("", SK_LINKS_MAX + 1, SK_ECONF, "leave it out");
}

static int find(const char *name)
{
    int at = sk_coll_find(name);
    check(at >= 0, name, at, 0);
    return at;
}

static double price(const char *name, const sk_coll_ask *a, int64_t bytes)
{
    return sk_call_price(&free_links, find(name), a, a->n, bytes);
}

/* n hosts whose links all have the rate r, but the one between `poor` and the next member. */
static sk_coll_ask ask_for(sk_coll_kind kind, int n, double r, int poor, double poor_rate)
{
    sk_links *l = sk_new(&arena, sk_links);
    int *ranks = sk_many(&arena, int, n), *host_of = sk_many(&arena, int, n), next = (poor + 1) % n;
    sk_coll_ask a;
    *l = (sk_links){n, sk_many(&arena, double, n *n)};
    for (int i = 0; i < n * n; i++) l->rate[i] = i / n != i % n ? r : 0;
    for (int i = 0; i < n; i++) ranks[i] = host_of[i] = n - 1 - i; /* members are not in order */
    int from = ranks[poor], to = ranks[next];
    l->rate[from * n + to] = l->rate[to * n + from] = poor_rate;
    sk_coll_ask_for(kind, ranks, n, 0, 0, host_of, l, &a);
    equal(sk_coll_rate(&a, poor, next), poor_rate, "the poor link");
    return a;
}

static void prices(void)
{
    for (int n = 2; n <= 9; n++) {
        sk_coll_ask a = ask_for(SK_ALLREDUCE, n, 5, 0, 5);
        equal(price("ring", &a, 1000 * n), 2.0 * (n - 1) * 1000 / 5, "ring, links alike");
        a = ask_for(SK_ALLREDUCE, n, 5, 1, 2);
        equal(price("ring", &a, 1000 * n), 2.0 * (n - 1) * 1000 / 2, "ring, one link poor");
        a = ask_for(SK_ALLREDUCE, n, 5, 1, 0);
        equal(price("ring", &a, 1000 * n), 2.0 * (n - 1) * 1000, "ring, no link: the cluster's");
        a = ask_for(SK_ALLGATHER, n, 5, 1, 2);
        equal(price("direct", &a, 1000 * n), 1000.0 / 2, "direct: all links at a time");
    }
}

/* Streams are priced by the union of what they have in them, not as dense vectors: with independent
 * rows, k of which are not zero, that of m members has 1 - (1 - k)^m. */
static double sent(const sk_coll_ask *a, int m) { return 2 * (1 - pow(1 - a->fill, m)); }

static void streams(void)
{
    for (int n = 2; n <= 9; n++) {
        sk_coll_ask a = ask_for(SK_ALLREDUCE, n, 5, 0, 5), full = a;
        double bytes = 1000.0 * n, corners = n < 4 ? 2 : n < 8 ? 4 : 8;
        int last = n == corners ? 1 : 2; /* contributions of the largest vector, round by round */
        a.fill = 0.01;
        a.wide = 2;
        equal(price("sparse", &a, 1000 * n), (sent(&a, 1) + sent(&a, n)) * 1000 / 5,
              "streams to owners, and the sum from there");
        equal(price("sparse", &full, 1000 * n), 2.0 * 1000 / 5, "not known to be sparse");
        double want = n == corners ? 0 : sent(&a, 1) + sent(&a, n);
        for (int m = last, k = 1; k < corners; k *= 2, m *= 2) want += sent(&a, m < n ? m : n);
        if (2 * (n - corners) >= corners || n == corners)
            equal(price("sparse_doubling", &a, 1000 * n), want * bytes / 5, "streams by doubling");
        a.fill = 1;
        a.wide = 1;
        equal(price("sparse", &a, 1000 * n), price("sparse", &full, 1000 * n), "full streams");
    }
    sk_coll_ask a = ask_for(SK_ALLREDUCE, 4, 5, 0, 5);
    a.fill = 0.01;
    a.wide = 2;
    int at = sk_choose(&free_links, &a, 4, SK_SUM, 1 << 20, NULL);
    check(at >= 0 && sk_coll_parts[at]->packs, "few rows go in streams", at, 0);
}

/* The cheapest; in the order of the tree unless any may be. */
static void choices(void)
{
    for (int n = 3; n <= 8; n++) {
        sk_coll_ask a = ask_for(SK_ALLREDUCE, n, 100, 1, 0);
        double least = INFINITY, seconds, tree;
        for (int i = 0; sk_coll_parts[i]; i++) {
            const sk_coll *c = sk_coll_parts[i];
            if (!c->price || c->native || c->packs || c->adasum || !sk_coll_can(c, &a)) continue;
            least = fmin(least, sk_call_price(&free_links, i, &a, n, 1 << 20));
        }
        int at = sk_choose(&free_links, &a, n, SK_SUM, 1 << 20, &tree);
        check(at >= 0 && sk_coll_order(sk_coll_parts[at], &a) == SK_ORDER_TREE, "order of the tree",
              at, 0);
        a.any_order = true;
        at = sk_choose(&free_links, &a, n, SK_SUM, 1 << 20, &seconds);
        check(seconds == least && seconds <= tree, "the cheapest", seconds, least);
        check(at == find("blink"), "packed trees where a link is missing", at, find("blink"));
    }
}

int main(void)
{
    files();
    prices();
    streams();
    choices();
    sk_arena_end(&arena);
    printf("links: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
