/* group_checks.c - groups of parameters (optim.groups) of a model: mistakes, and what has no effect
 * or goes another way than its words say. */
#include "graph/extra.h"
#include "program/param_groups.h"
#include "base/strings.h"
#include "train/setup.h"

#include <string.h>

/* Is any parameter in this group?  0: in none. */
static bool graph_has_any(const sk_graph *g, const sk_job *job, int group, bool asked)
{
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        if (t->role == SK_PARAM && (asked ? sk_param_group_asked : sk_param_group_of)(
                                       g, t, job->group, job->n_groups) == group)
            return true;
    }
    return false;
}

static bool has_any(const sk_setup *s, int group, bool asked)
{
    return graph_has_any(&s->graph, s->job, group, asked);
}

/* Does a product of the last layer read an embedding? */
static bool is_tied(const sk_setup *s)
{
    for (int i = 0; i < s->graph.nodes.n; i++) {
        const sk_node *n = s->graph.nodes.v[i];
        for (int k = 0; k < n->n_in && n->phase == SK_FORWARD; k++)
            if (n->layer == s->graph.n_layers - 1 && n->in[k]->role == SK_PARAM &&
                sk_param_class_of(&s->graph, n->in[k]) == SK_PARAM_EMBEDDING)
                return true;
    }
    return false;
}

/* What a name that matches nothing may have meant. */
static const char *near_class(const sk_setup *s, const char *match)
{
    const char *names[SK_PARAM_N_CLASSES];
    sk_out all = {.arena = s->arena};
    for (int c = 0; c < SK_PARAM_N_CLASSES; c++) {
        names[c] = sk_param_class_name((sk_param_class)c);
        if (!strcmp(match, names[c])) return "";
        sk_out_add(&all, "%s%s", c ? ", " : "", names[c]);
    }
    const char *near = sk_nearest(match, names, SK_PARAM_N_CLASSES);
    return sk_print(s->arena, "%s%s%s; a class (%s) or a pattern of names is needed",
                    near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", all.s);
}

static const char *why_empty(const sk_setup *s, int group)
{
    const sk_param_group *g = &s->job->group[group - 1];
    if (!strcmp(g->match, sk_param_class_name(SK_PARAM_HEAD)) && is_tied(s))
        return "the model has tied weights, so its output projection is the embedding; take the "
               "class embedding, or model.tie_word_embeddings=false";
    if (has_any(s, group, true))
        return sk_print(s->arena,
                        "%s needs Kronecker factors, which a weight has that one product alone "
                        "reads, with at most %s rows a side; take another optimizer for it",
                        g->optim->name, sk_commas(s->arena, SK_FACTOR_MOST));
    for (int i = 0; i < s->graph.tensors.n; i++) {
        const sk_tensor *t = s->graph.tensors.v[i];
        if (t->role == SK_PARAM && sk_param_group_asked(&s->graph, t, g, 1))
            return "all that it matches are in groups before it";
    }
    return sk_print(s->arena, "none matches%s", near_class(s, g->match));
}

/* A group that no parameter is in is a mistake: of a name, or of the order of groups.  Of two that
 * were said as one, one may be empty, if no number is said of it alone. */
sk_status sk_setup_check_groups(const sk_setup *s)
{
    const sk_job *job = s->job;
    for (int i = 0; i < job->n_groups_said; i++) {
        const sk_param_group *g = &job->group[i];
        bool first = i + 1 < job->n_groups_said && g[1].half;
        if (has_any(s, i + 1, false)) continue;
        if (*g->alone && (first || g->half))
            return sk_fail(SK_ECONF,
                           "optim.groups: %s of the group '%s' is a number of %s, which updates "
                           "none of its parameters; leave it out",
                           g->alone, g->match, g->optim->name);
        if ((first && has_any(s, i + 2, false)) || (g->half && has_any(s, i, false))) continue;
        return sk_fail(SK_ECONF, "optim.groups: no parameter is in the group '%s': %s", g->match,
                       why_empty(s, i + 1));
    }
    return SK_OK;
}

double sk_setup_shown_rate(const sk_graph *g, const sk_job *job)
{
    for (int i = 0; i < job->n_groups; i++)
        if (graph_has_any(g, job, i + 1, false)) return job->group[i].rate;
    return 1;
}

/* Where optim.min_lr is said, the end of all rates is their part of optim.lr. */
bool sk_setup_uses_lr(const sk_setup *s)
{
    const sk_job *job = s->job;
    if (job->min_lr > 0 || has_any(s, 0, false)) return true;
    for (int i = 0; i < job->n_groups; i++)
        if (!job->group[i].says_lr && has_any(s, i + 1, false)) return true;
    return false;
}

bool sk_setup_has_momentum(const sk_setup *s)
{
    const sk_job *job = s->job;
    for (int i = 0; i <= job->n_groups; i++) {
        const sk_optim *o = i ? job->group[i - 1].optim : s->optim;
        const double *v = i ? job->group[i - 1].knob : job->knob;
        for (int k = 0; o->knobs[k].name; k++)
            if (o->knobs[k].role == SK_KNOB_MOMENTUM && v[k] > 0 && has_any(s, i, false))
                return true;
    }
    return false;
}

/* ---- warnings */

static void say_lr(sk_out *o, const sk_setup *s)
{
    const sk_job *job = s->job;
    if (!job->lr_said || sk_setup_uses_lr(s)) return;
    sk_out_add(o,
               "%soptim.lr is %g and has no effect: every group of optim.groups has a rate of its "
               "own; leave it out",
               o->n ? "; " : "", job->lr);
}

/* optim.name, and numbers of it, where all parameters are in groups of other optimizers.  A group
 * without an optimizer, of the same one, or of the one that it names for the rest takes numbers
 * from it; so does the schedule, if the optimizer brings one. */
static void say_own(sk_out *o, const sk_setup *s)
{
    const sk_job *job = s->job;
    const char *said = job->own_said;
    if (!*said || s->optim->schedule || has_any(s, 0, false)) return;
    for (int i = 0; i < job->n_groups; i++) {
        const sk_optim *g = job->group[i].optim;
        bool rest = s->optim->rest && !strcmp(g->name, s->optim->rest);
        if ((g == s->optim || rest) && has_any(s, i + 1, false)) return;
    }
    sk_out_add(o,
               "%s%s %s no effect: every parameter is in a group of optim.groups with another "
               "optimizer than %s; leave %s out",
               o->n ? "; " : "", said, strchr(said, ',') ? "have" : "has", s->optim->name,
               strchr(said, ',') ? "them" : "it");
}

/* Parameters that were to have K-FAC and cannot. */
static void say_factors(sk_out *o, const sk_setup *s)
{
    const sk_job *job = s->job;
    const sk_tensor *first = NULL;
    int n = 0, from = 0, to = 0;
    for (int i = 0; i < s->graph.tensors.n; i++) {
        const sk_tensor *t = s->graph.tensors.v[i];
        if (t->role != SK_PARAM) continue;
        int a = sk_param_group_asked(&s->graph, t, job->group, job->n_groups);
        int b = sk_param_group_of(&s->graph, t, job->group, job->n_groups);
        if (a == b) continue;
        if (!n++) first = t, from = a, to = b;
    }
    if (!n) return;
    sk_out_add(o, "%s%s is for weights that one product alone reads, with at most %s rows a side: ",
               o->n ? "; " : "", job->group[from - 1].optim->name,
               sk_commas(o->arena, SK_FACTOR_MOST));
    sk_out_add(o, "%s takes '%s'", (to ? job->group[to - 1].optim : s->optim)->name, first->name);
    if (n > 1) sk_out_add(o, " and %d other%s", n - 1, sk_plural(n - 1));
}

/* Matrices with a side that is too long: K-FAC of the other alone. */
static void say_sides(sk_out *o, const sk_setup *s)
{
    const sk_job *job = s->job;
    for (int i = 0; i < s->graph.tensors.n; i++) {
        const sk_tensor *t = s->graph.tensors.v[i];
        int group =
            t->role == SK_PARAM ? sk_param_group_of(&s->graph, t, job->group, job->n_groups) : 0;
        if (!group || !job->group[group - 1].optim->factors || sk_param_factors(&s->graph, t) != 1)
            continue;
        sk_out_add(o,
                   "%sa side of '%s' has more than %s rows, and so no Kronecker factor: %s goes "
                   "by the other side alone",
                   o->n ? "; " : "", t->name, sk_commas(o->arena, SK_FACTOR_MOST),
                   job->group[group - 1].optim->name);
        return;
    }
}

/* Of the matrix, or of each of several, that a parameter is. */
static int64_t longest_side(const sk_graph *g, const sk_tensor *t)
{
    char roles[SK_MAX_DIM + 1];
    int64_t rows = 1, cols = 1;
    sk_shape size = sk_tensor_shape(g, t);
    if (!sk_param_matrix(g, t, roles)) return 0;
    for (int d = 0; d < size.n; d++)
        if (roles[d] == '1') rows *= size.d[d];
        else if (roles[d] == '2') cols *= size.d[d];
    return rows > cols ? rows : cols;
}

/* The knob above which a side of a matrix has no preconditioner; -1: there is none. */
static int side_knob(const sk_optim *o)
{
    int i = 0;
    while (o->knobs[i].name && !o->knobs[i].longest_side) i++;
    return o->matrix && o->knobs[i].name ? i : -1;
}

/* Matrices with a side above that knob. */
static void say_long(sk_out *o, const sk_setup *s)
{
    const sk_job *job = s->job;
    const sk_tensor *first = NULL;
    int n = 0, of = 0;
    for (int i = 0; i < s->graph.tensors.n; i++) {
        const sk_tensor *t = s->graph.tensors.v[i];
        int group =
            t->role == SK_PARAM ? sk_param_group_of(&s->graph, t, job->group, job->n_groups) : 0;
        const sk_param_group *g = group ? &job->group[group - 1] : NULL;
        int most = g ? side_knob(g->optim) : -1;
        if (most < 0 || (double)longest_side(&s->graph, t) <= g->knob[most]) continue;
        if (!n++) first = t, of = group;
    }
    if (!n) return;
    const sk_param_group *g = &job->group[of - 1];
    int knob = side_knob(g->optim);
    sk_out_add(o, "%sa side of '%s' is %lld long, above %s=%g", o->n ? "; " : "", first->name,
               (long long)longest_side(&s->graph, first), sk_knob_key(&g->optim->knobs[knob]),
               g->knob[knob]);
    if (n > 1) sk_out_add(o, " (so in %d other%s)", n - 1, sk_plural(n - 1));
    sk_out_add(o, ": %s has no preconditioner for it", g->optim->name);
}

/* Numbers of a file for the optimizer or schedule that the command line replaced. */
static void say_left_out(sk_out *o, const sk_setup *s)
{
    const char *left = s->job->left_out;
    if (*left) sk_out_add(o, "%s%s", o->n ? "\n" : "", left);
}

/* optim.work that no matrix has. */
static void say_work(sk_out *o, const sk_setup *s)
{
    sk_matrix_work asked = sk_matrix_work_find(s->job->matrix_work);
    const sk_program *p = s->programs ? sk_setup_program_of(s, 0) : NULL;
    if (!p || asked == SK_MATRIX_AUTO || sk_program_matrix_work_is(p, asked)) return;
    const char *done = p->matrices ? sk_program_matrix_work(p, o->arena) : "";
    sk_out_add(o, "%soptim.work is %s, and ", o->n ? "; " : "", s->job->matrix_work);
    if (!*done) sk_out_add(o, "no optimizer works on whole matrices; leave it out");
    else
        sk_out_add(o, "no matrix can be worked on so: %.*s; optim.work=auto takes the fastest",
                   (int)strcspn(done, "\n"), done);
}

void sk_setup_group_warnings(sk_out *o, const sk_setup *s)
{
    say_lr(o, s);
    say_own(o, s);
    say_factors(o, s);
    say_sides(o, s);
    say_long(o, s);
    say_work(o, s);
    say_left_out(o, s);
}
