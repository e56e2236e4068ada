/* search_report.c - what was tried, what is best, and why. */
#include "cli/search_report.h"
#include "base/strings.h"
#include "cli/argv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

sk_status sk_search_limit(const char *text, sk_auto_in *in)
{
    char *end = NULL;
    double x = strtod(text, &end);
    bool seconds = !strcmp(end, "s"), minutes = !strcmp(end, "m"), layouts = !*end && x == floor(x);
    if (end == text || !(x > 0) || x > 1e6 || (!seconds && !minutes && !layouts))
        return sk_fail(SK_EUSAGE,
                       "command line: --search is \"%.40s\"; a time such as 30s or 2m, or a number "
                       "of layouts such as 500, is needed",
                       text);
    in->seconds = seconds ? x : minutes ? 60 * x : 0;
    in->most = layouts ? (int)x : 0;
    return SK_OK;
}

static sk_status rows(sk_arena *a, const sk_search_out *f, const char *format)
{
    static const char *const head[] = {"layout",    "step_s",   "busy_s",
                                       "exposed_s", "bubble_s", "mem_bytes"};
    sk_table t = {.arena = a, .head = head, .n_cols = 6};
    for (int i = 0; i < f->n_best; i++) {
        const sk_priced_layout *x = &f->best[i];
        const char *cells[] = {x->text,
                               sk_print(a, "%.6g", x->seconds),
                               sk_print(a, "%.6g", x->busy),
                               sk_print(a, "%.6g", x->exposed),
                               sk_print(a, "%.6g", x->bubble),
                               sk_print(a, "%lld", (long long)x->bytes)};
        sk_table_add(&t, cells);
    }
    return sk_table_print(&t, format, stdout);
}

static void part(sk_out *o, double seconds, double of, const char *what)
{
    if (fabs(seconds) < 0.005 * of) return;
    sk_out_add(o, "%s%.3g s %s %s", o->n ? ", " : "", fabs(seconds), seconds > 0 ? "less" : "more",
               what);
}

/* Where the time of the recipe went. */
static void reason(sk_arena *a, const sk_priced_layout *best, const sk_priced_layout *plain)
{
    sk_out o = {.arena = a};
    double of = plain->seconds;
    part(&o, plain->exposed - best->exposed, of, "exposed communication");
    part(&o, plain->bubble - best->bubble, of, "waiting for other ranks");
    part(&o, plain->busy - best->busy, of, "work");
    if (o.n) printf("reason    %.1f %% faster: %s\n", 100 * (of / best->seconds - 1), o.s);
}

static void line(sk_arena *a, const char *name, const sk_priced_layout *x)
{
    printf("%-9s %s: %.4g s, %s a rank\n", name, x->text, x->seconds, sk_bytes(a, x->bytes));
}

static sk_status none(sk_arena *a, const sk_auto_in *in, const sk_search_out *f)
{
    if (!f->least.bytes)
        return sk_fail(SK_ECONF, "--search: no layout of %d ranks fits in %s a rank", in->ranks,
                       sk_bytes(a, in->memory));
    return sk_fail(SK_ECONF,
                   "--search: none of %d layouts of %d ranks fits in %s a rank; the smallest, "
                   "\"%s\", needs %s; more ranks or a smaller train.batch would help",
                   f->n_priced, in->ranks, sk_bytes(a, in->memory), f->least.text,
                   sk_bytes(a, f->least.bytes));
}

sk_status sk_search_print(sk_arena *a, const sk_auto_in *in, const sk_search_out *f,
                          const char *format)
{
    if (!f->n_best) return none(a, in, f);
    if (format) return rows(a, f, format);
    const sk_priced_layout *best = &f->best[0], *plain = &f->start;
    printf("search    %d layouts in %.1f s on %s%s · %d more do not go together · %d do not fit\n",
           f->n_priced, f->seconds, in->machine->name,
           f->ended ? ", until nothing better was found" : "", f->n_refused, f->n_over);
    line(a, "best", best);
    for (int i = 1; i < f->n_best && i < 4; i++) line(a, i > 1 ? "" : "next", &f->best[i]);
    if (plain->seconds <= 0) printf("plain     no plain recipe fits\n");
    else if (!strcmp(plain->text, best->text)) printf("plain     the best is a plain recipe\n");
    else line(a, "plain", plain);
    if (plain->seconds > 0) reason(a, best, plain);
    return SK_OK;
}
