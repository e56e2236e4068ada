/* optim_text.c - the optimizer of a job in a line, as optim.groups would say it:
 *
 *     matrix: muon lr=0.02 (24,576 parameters), rest: adamw lr=0.001 (11,136) · cosine · warmup 10
 *
 * Numbers that are as the optimizer has them by default are left out, but for the rate. */
#include "base/strings.h"
#include "program/param_groups.h"
#include "train/lr_schedule.h"
#include "train/setup.h"

#include <string.h>

#define USUAL_CLIP 1 /* optim.clip by default: cli/conf_keys.c */

static void add_number(sk_out *o, const sk_knob *k, double x)
{
    const char *w = k->words;
    for (int i = (int)x; w && *w && i > 0; i--) w += strcspn(w, " ") + 1;
    if (w) sk_out_add(o, "%.*s", (int)strcspn(w, " "), w);
    else sk_out_add(o, "%.6g", x);
}

/* usual: the defaults of the list, which may depend on other numbers of the part. */
static void add_knob(sk_out *o, const sk_knob *k, const double *x, const double *usual)
{
    int n = sk_knob_list(k);
    bool other = false;
    for (int i = 0; i < n; i++) other |= x[i] != usual[i];
    if (!other) return;
    bool list = n > 1;
    while (n > 1 && k[n - 1].fewer && x[n - 1] == 0) n--; /* left out */
    sk_out_add(o, " %s=%s", sk_knob_key(k), list ? "[" : "");
    for (int i = 0; i < n; i++) {
        sk_out_add(o, "%s", i ? ", " : "");
        add_number(o, &k[i], x[i]);
    }
    sk_out_add(o, "%s", list ? "]" : "");
}

static void add_own(sk_out *o, const sk_optim *optim, const sk_knob *k, const double *knob)
{
    double usual[SK_MAX_KNOB];
    int first = (int)(k - optim->knobs);
    for (int i = 0; i < sk_knob_list(k); i++) usual[i] = sk_knob_usual(optim, first + i, knob);
    add_knob(o, k, knob + first, usual);
}

static void add_optim(sk_out *o, const sk_optim *optim, double lr, const double *knob)
{
    sk_out_add(o, "%s lr=%.6g", optim->name, lr);
    for (const sk_knob *k = optim->knobs; k->name; k += sk_knob_list(k))
        if (k->role != SK_KNOB_LR && sk_knob_used(optim->knobs, k, knob))
            add_own(o, optim, k, knob);
}

static int64_t count(const sk_setup *s, int group)
{
    int64_t sum = 0;
    for (int i = 0; i < s->graph.tensors.n; i++) {
        const sk_tensor *t = s->graph.tensors.v[i];
        if (t->role != SK_PARAM ||
            sk_param_group_of(&s->graph, t, s->job->group, s->job->n_groups) != group)
            continue;
        sk_shape shape = sk_tensor_shape(&s->graph, t);
        int64_t n = 1;
        for (int d = 0; d < shape.n; d++) n *= shape.d[d];
        sum += n;
    }
    return sum;
}

/* Group 0 is what is in no other. */
static void add_group(sk_out *o, const sk_setup *s, int group)
{
    const sk_job *job = s->job;
    const sk_param_group *g = group ? &job->group[group - 1] : NULL;
    int64_t n = count(s, group);
    if (!n) return;
    sk_out_add(o, "%s%s: ", o->n ? ", " : "", g ? g->match : "rest");
    add_optim(o, g ? g->optim : s->optim, g ? g->rate * job->lr : job->lr, g ? g->knob : job->knob);
    sk_out_add(o, " (%s%s)", sk_commas(o->arena, n), strchr(o->s, ')') ? "" : " parameters");
}

/* Numbers of the schedule, and keys of the update and the loss: those that are not the defaults. */
static void add_keys(sk_out *o, const sk_job *job)
{
    const sk_lr *lr = sk_lr_named(job->schedule);
    for (const sk_knob *k = lr ? lr->knobs : NULL; k && k->name; k += sk_knob_list(k)) {
        double usual[SK_MAX_LR_KNOB];
        for (int i = 0; i < sk_knob_list(k); i++) usual[i] = k[i].usual;
        add_knob(o, k, job->lr_knob + (k - lr->knobs), usual);
    }
    if (job->min_lr > 0) sk_out_add(o, " to %.6g", job->min_lr);
    if (job->warmup) sk_out_add(o, " · warmup %lld", (long long)job->warmup);
    if (job->clip == 0) sk_out_add(o, " · no clipping");
    else if (job->clip != USUAL_CLIP) sk_out_add(o, " · clip %.6g", job->clip);
    if (job->ema > 0) sk_out_add(o, " · ema %.6g", job->ema);
    if (job->layer_decay != 1) sk_out_add(o, " · layer decay %.6g", job->layer_decay);
    if (job->adascale) sk_out_add(o, " · AdaScale %lld", (long long)job->adascale);
    if (strcmp(job->batch_scaling, "none") != 0)
        sk_out_add(o, " · rate %s in the batch", job->batch_scaling);
    if (job->late) sk_out_add(o, " · late updates");
    if (job->label_smoothing > 0) sk_out_add(o, " · label smoothing %.6g", job->label_smoothing);
    if (job->z_loss > 0) sk_out_add(o, " · z-loss %.6g", job->z_loss);
}

char *sk_optim_text(sk_arena *a, const sk_setup *s)
{
    const sk_job *job = s->job;
    sk_out o = {.arena = a};
    if (!job->n_groups) add_optim(&o, s->optim, job->lr, job->knob);
    for (int g = 1; job->n_groups && g <= job->n_groups; g++) add_group(&o, s, g);
    if (job->n_groups) add_group(&o, s, 0);
    sk_out_add(&o, " · %s", job->schedule);
    add_keys(&o, job);
    if (job->state_dtype != SK_STATE_AUTO)
        sk_out_add(&o, " · state %s", sk_state_type_name(job->state_dtype));
    return o.s;
}
