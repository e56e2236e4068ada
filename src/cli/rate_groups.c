/* rate_groups.c - optim.groups with other rates: as it was written, but for these. */
#include "cli/rate_groups.h"
#include "base/strings.h"

#include <string.h>

/* The first of these characters outside of brackets, or the end. */
static const char *until(const char *s, const char *end, const char *any)
{
    int depth = 0;
    for (; s < end; s++) {
        depth += (*s == '[') - (*s == ']');
        if (depth <= 0 && strchr(any, *s)) break;
    }
    return s;
}

static bool is_blank(const char *s, const char *end)
{
    while (s < end && strchr(" \t\n", *s)) s++;
    return s == end;
}

/* The word lr=..., or NULL: the group says no rate. */
static const char *rate_word(const char *s, const char *end)
{
    for (s = until(s, end, ":"); s < end; s = until(s + 1, end, " \t\n"))
        if (end - s > 3 && !strncmp(s + 1, "lr=", 3)) return s + 1;
    return NULL;
}

/* One group.  Without a rate of its own it follows optim.lr, once that is said. */
static bool put_group(sk_out *o, const sk_param_group *g, const char *s, const char *end, double lr)
{
    while (s < end && strchr(" \t\n", *s)) s++;
    while (end > s && strchr(" \t\n", end[-1])) end--;
    const char *word = rate_word(s, end), *behind = word ? until(word, end, " \t\n") : end;
    bool follows = !word && g->rate == 1;
    sk_out_add(o, "%s%.*s", o->n ? ", " : "", (int)((word ? word : end) - s), s);
    if (!follows) sk_out_add(o, "%slr=%.3g", word ? "" : " ", g->rate * lr);
    sk_out_add(o, "%.*s", (int)(end - behind), behind);
    return !follows;
}

char *sk_rate_groups(sk_arena *a, const sk_job *job, double lr)
{
    sk_out o = {.arena = a};
    const char *s = job->groups, *all = s + strlen(s);
    bool changed = false;
    for (int i = 0; s < all && i < job->n_groups_said;) {
        const char *end = until(s, all, ",;\n");
        if (!is_blank(s, end)) changed |= put_group(&o, &job->group[i++], s, end, lr);
        while (i < job->n_groups_said && job->group[i].half) i++;
        s = end + (end < all);
    }
    return changed ? o.s : NULL;
}
