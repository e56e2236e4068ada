/* conf_print.c - a job as YAML. */
#include "cli/conf_key.h"
#include "base/strings.h"
#include "cli/conf.h"
#include "cli/setting.h"

#include <string.h>

/* One character of good UTF-8 and its length. */
static unsigned decode(const char *s, int *n)
{
    const unsigned char *p = (const unsigned char *)s;
    *n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    unsigned c = *n == 1 ? *p : *p & (0xffu >> (*n + 1));
    for (int i = 1; i < *n; i++) c = c << 6 | (p[i] & 0x3f);
    return c;
}

/* Signs that YAML gives a meaning or refuses (controls, marks, odd spaces) are escaped. */
char *sk_conf_quote(sk_arena *a, const char *s)
{
    static const char easy[] = "abcdefghijklmnopqrstuvwxyz_/ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    static const char words[] = "null true false yes no on off True False Null";
    sk_out o = {.arena = a};
    if (*s && strspn(s, easy) == strlen(s) && !strchr("0123456789.-", *s) &&
        !sk_conf_among(words, s))
        return sk_strdup(a, s);
    sk_out_add(&o, "\"");
    for (int n = 0; *s; s += n) {
        unsigned c = decode(s, &n);
        if (c == '"' || c == '\\') sk_out_add(&o, "\\%c", (int)c);
        else if ((c >= 0x20 && c < 0x7f) || (c > 0xa0 && c < 0x2000) || (c > 0x3000 && c < 0xd800))
            sk_out_add(&o, "%.*s", n, s);
        else sk_out_add(&o, "\\U%08x", c);
    }
    sk_out_add(&o, "\"");
    return o.s;
}

/* A layout of several lines is a list. */
static void print_layout(sk_out *o, const char *text)
{
    if (!strchr(text, '\n')) {
        sk_out_add(o, " %s\n", sk_conf_quote(o->arena, text));
        return;
    }
    sk_out_add(o, "\n");
    for (const char *line = text; line;) {
        const char *end = strchr(line, '\n');
        int n = end ? (int)(end - line) : (int)strlen(line);
        sk_out_add(o, "  - %s\n", sk_conf_quote(o->arena, sk_print(o->arena, "%.*s", n, line)));
        line = end ? end + 1 : NULL;
    }
}

static void print_every(sk_out *o, const sk_every *e)
{
    if (e->seconds > 0) sk_out_add(o, " %ss\n", sk_real_print(o->arena, e->seconds));
    else sk_out_add(o, " %lld\n", (long long)e->steps);
}

static void print_key(sk_out *o, const sk_conf_key *k, const sk_job *job)
{
    const void *from = (const char *)job + k->at;
    const double *x = from;
    sk_arena *a = o->arena;
    switch (k->kind) {
    case SK_KEY_INT:
    case SK_KEY_BYTES:
        sk_out_add(o, " %lld\n", (long long)*(const int64_t *)from);
        break;
    case SK_KEY_REAL:
    case SK_KEY_SECONDS:
        sk_out_add(o, " %s\n", sk_real_print(a, *x));
        break;
    case SK_KEY_EVERY:
        print_every(o, from);
        break;
    case SK_KEY_TEXT:
        sk_out_add(o, " %s\n", sk_conf_quote(a, from));
        break;
    case SK_KEY_LAYOUT:
        print_layout(o, from);
        break;
    case SK_KEY_DTYPE:
        sk_out_add(o, " %s\n", sk_dtype_name(*(const sk_dtype *)from));
        break;
    case SK_KEY_STATE:
        sk_out_add(o, " %s\n", sk_state_type_name(*(const sk_dtype *)from));
        break;
    }
}

char *sk_conf_print(sk_arena *a, const sk_job *job)
{
    sk_out o = {.arena = a};
    size_t section = 0; /* length of the name of the open one */
    sk_conf_model_print(&o, job);
    for (int i = 0; i < sk_n_conf_keys; i++) {
        const char *name = sk_conf_table[i].name, *dot = strchr(name, '.');
        size_t n = dot ? (size_t)(dot - name) : 0;
        if (n && (n != section || !i || strncmp(name, sk_conf_table[i - 1].name, n + 1)))
            sk_out_add(&o, "%.*s:\n", (int)n, name);
        section = n;
        sk_conf_knobs_print(&o, sk_conf_table[i].after_knobs, job);
        if (*job->groups && !job->lr_said && !strcmp(name, "optim.lr"))
            continue; /* not said: optimizers of groups have their own */
        sk_out_add(&o, "%s%s:", n ? "  " : "", n ? dot + 1 : name);
        print_key(&o, &sk_conf_table[i], job);
    }
    return o.s;
}
