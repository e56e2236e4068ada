/* backward_outputs.c - train.backward as the graph and its readers see it. */
#include "train/backward_outputs.h"
#include "base/strings.h"
#include "graph/extra.h"

#include <string.h>

#define BIT(kind) (1u << SK_EXTRA_##kind)

static const struct {
    const char *name;
    unsigned extras;
} outputs[] = {
    {"norms", BIT(NORMS) | BIT(TOTALS)},
    {"second_moment", BIT(MOMENT)},
    {"variance", BIT(MOMENT) | BIT(TOTALS)},
    {"diag_ggn", BIT(GGN) | BIT(TOTALS)},
    {"diag_ggn_mc", BIT(GGN_MC) | BIT(TOTALS)},
    {"kron", BIT(KRON_A) | BIT(KRON_G)},
    {"gradients", BIT(SAMPLES)},
};
enum { N_OUTPUTS = sizeof outputs / sizeof *outputs };

/* The next name of "norms, variance"; NULL: none. */
static const char *next_name(const char **text, size_t *n)
{
    const char *p = *text + strspn(*text, ", ");
    *n = strcspn(p, ", ");
    *text = p + *n;
    return *n ? p : NULL;
}

static sk_status unknown(const char *name, size_t n)
{
    char word[64];
    const char *names[N_OUTPUTS];
    size_t most = n < sizeof word - 1 ? n : sizeof word - 1;
    memcpy(word, name, most);
    word[most] = 0;
    for (int i = 0; i < N_OUTPUTS; i++) names[i] = outputs[i].name;
    const char *near = sk_nearest(word, names, N_OUTPUTS);
    return sk_fail(SK_ECONF,
                   "train.backward: \"%s\" is none of norms, second_moment, variance, diag_ggn, "
                   "diag_ggn_mc, kron, gradients%s%s%s",
                   word, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

/* "norms,,kron", "," and " " have a place without a name, "norms kron" has one with two. */
static bool is_list(const char *text)
{
    for (bool more = true; more; text++) {
        text += strspn(text, " ");
        size_t n = strcspn(text, ", ");
        if (!n) return false;
        text += n;
        text += strspn(text, " ");
        if (*text && *text != ',') return false;
        more = *text == ',';
    }
    return true;
}

sk_status sk_backward_ask(const sk_job *job, sk_graph *g)
{
    const char *text = job->backward, *name;
    unsigned seen = 0;
    size_t n;
    if (*text && !is_list(text))
        return sk_fail(SK_ECONF,
                       "train.backward is \"%.80s\", which is no list; names with commas between "
                       "them are needed, as in \"norms, variance\"",
                       text);
    while ((name = next_name(&text, &n))) {
        int i = 0;
        while (i < N_OUTPUTS && (strlen(outputs[i].name) != n || memcmp(outputs[i].name, name, n)))
            i++;
        if (i == N_OUTPUTS) return unknown(name, n);
        if (seen & 1u << i)
            return sk_fail(SK_ECONF, "train.backward has %s twice; leave one of them out",
                           outputs[i].name);
        seen |= 1u << i;
        g->extras |= outputs[i].extras;
    }
    if (job->backward_every && !*job->backward)
        return sk_fail(SK_ECONF,
                       "train.backward_every is %lld, and train.backward is empty; name "
                       "what to write, as in train.backward=variance",
                       (long long)job->backward_every);
    return SK_OK;
}

sk_status sk_backward_used(const sk_job *job)
{
    for (int i = 0; i < N_OUTPUTS && !job->backward_every; i++) {
        if (outputs[i].extras & BIT(TOTALS) || !sk_backward_wants(job, outputs[i].name)) continue;
        return sk_fail(SK_ECONF,
                       "train.backward: %s has no number in metrics.jsonl, and with "
                       "train.backward_every=0 no file has its tensors; write them every so many "
                       "steps, as train.backward_every=100 does, or leave out %s",
                       outputs[i].name, outputs[i].name);
    }
    return SK_OK;
}

sk_status sk_backward_fits(const sk_job *job, const sk_layout *l)
{
    const char *asked = sk_backward_wants(job, "variance") ? "variance"
                        : sk_backward_wants(job, "norms")  ? "norms"
                                                           : NULL;
    if (!asked || (!*l->grads_as && sk_layout_adasum(l) < 0)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "train.backward: the variance of %s goes by the sum of the gradients of all "
                   "samples, and with %s%s no rank has it; leave out %s, or one of them",
                   asked, *l->grads_as ? "grads=" : "reduce=adasum", l->grads_as, asked);
}

bool sk_backward_wants(const sk_job *job, const char *name)
{
    const char *text = job->backward, *at;
    size_t n;
    while ((at = next_name(&text, &n)))
        if (strlen(name) == n && !memcmp(name, at, n)) return true;
    return false;
}

/* Does the user see this extra?  An optimizer may want factors for itself. */
static bool is_asked(const sk_job *job, const sk_tensor *t)
{
    bool factor = t->extra == SK_EXTRA_KRON_A || t->extra == SK_EXTRA_KRON_G;
    bool moment = t->extra == SK_EXTRA_MOMENT;
    return (!factor || sk_backward_wants(job, "kron")) &&
           (!moment || sk_backward_wants(job, "second_moment"));
}

/* One or two outputs for each tensor of the graph. */
static int list_tensor(sk_arena *a, const sk_job *job, const sk_tensor *t, sk_backward_output *v)
{
    int n = 0;
    if (t->role == SK_PARAM && t->bias_update == 0) {
        char *name = sk_print(a, "%s.grad", t->name);
        v[n++] = (sk_backward_output){name, name, NULL, t, -1};
    }
    if (t->role != SK_EXTRA) return n;
    if (t->extra == SK_EXTRA_MOMENT && sk_backward_wants(job, "variance"))
        v[n++] = (sk_backward_output){sk_print(a, "%s.variance", t->of->name), t->name,
                                      sk_print(a, "%s.grad", t->of->name), t, t->extra};
    if (is_asked(job, t)) v[n++] = (sk_backward_output){t->name, t->name, NULL, t, t->extra};
    return n;
}

int sk_backward_list(sk_arena *a, const sk_job *job, const sk_graph *g, sk_backward_output **out)
{
    sk_backward_output *v = sk_many(a, sk_backward_output, 2 * g->tensors.n + 1);
    int n = 0;
    *out = v;
    if (!job->backward[strspn(job->backward, ", ")]) return 0;
    for (int i = 0; i < g->tensors.n; i++) n += list_tensor(a, job, g->tensors.v[i], v + n);
    return n;
}

bool sk_backward_is_name(const char *name)
{
    const char *end = strrchr(name, '.') ? strrchr(name, '.') + 1 : name;
    for (int k = 0; k < SK_N_EXTRAS; k++)
        if (k != SK_EXTRA_TOTALS && !strcmp(end, sk_extra_name((sk_extra_kind)k))) return true;
    return !strcmp(end, "variance") || !strcmp(end, "grad");
}

void sk_backward_variance(float *square, const float *grad, int64_t n, int64_t samples)
{
    for (int64_t i = 0; i < n; i++)
        square[i] =
            (float)((double)samples * (double)square[i] - (double)grad[i] * (double)grad[i]);
}

double sk_backward_unit(int kind, double weight, double loss_scale)
{
    double w = weight > 0 ? weight : 1, s = loss_scale > 0 ? loss_scale : 1;
    switch (kind) {
    case SK_EXTRA_NORMS:
    case SK_EXTRA_MOMENT:
        return 1 / (w * s) / (w * s);
    case SK_EXTRA_KRON_A:
        return 1 / w;
    case SK_EXTRA_KRON_G:
    case SK_EXTRA_GGN:
    case SK_EXTRA_GGN_MC:
        return 1 / w / (s * s);
    default: /* gradients, of a batch or of samples */
        return 1 / (w * s);
    }
}
