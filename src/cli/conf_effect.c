/* conf_effect.c - keys that are said and would do nothing beside others: refused.
 *
 * What a file says may lose its effect by words of the command line (another optimizer, base or
 * schedule); then it is left out, also of config.yaml, so that this can be resumed. */
#include "cli/setting.h"

#include <string.h>

/* Does the command line say this key, and a file the setting? */
static bool is_replaced(const sk_settings *all, const sk_setting *s, const char *key)
{
    const sk_setting *other = sk_setting_find(all, key);
    return s->file && other && !other->file;
}

/* optim.min_lr where the rate never falls. */
static sk_status check_min_lr(sk_arena *a, const sk_settings *all, sk_job *job)
{
    const sk_lr *part = sk_lr_named(job->schedule);
    const sk_setting *s = sk_setting_find(all, "optim.min_lr");
    if (!part || !part->level || !s || job->min_lr <= 0) return SK_OK;
    job->min_lr = 0;
    if (is_replaced(all, s, "optim.schedule") || is_replaced(all, s, "optim.name")) return SK_OK;
    return sk_fail(sk_setting_code(s),
                   "%s: optim.min_lr is %s, and optim.schedule=%s stays at optim.lr; leave it out, "
                   "or take a schedule that falls, such as cosine",
                   sk_setting_where(a, s, true), s->value, part->name);
}

/* "base=sgd" of "optim.base=sgd" */
static const char *key_of(sk_arena *a, const sk_knob *k)
{
    return sk_print(a, "optim.%.*s", (int)strcspn(k->only, "="), k->only);
}

static bool is_default(const sk_knob *k, const double *x)
{
    for (int i = 0; i < sk_knob_list(k); i++)
        if (x[i] != k[i].usual) return false;
    return true;
}

sk_status sk_conf_unused(sk_arena *a, const sk_knob *k, const sk_setting *s)
{
    return sk_fail(sk_setting_code(s),
                   "%s: %s is \"%.80s\", which is used with %.*s%s only; set that too, or leave it "
                   "out",
                   sk_setting_where(a, s, true), s->key, s->value,
                   strncmp(s->key, "optim.groups", 12) ? 6 : 0, "optim.", k->only);
}

/* Numbers of the optimizer that are used only beside a word of another. */
static sk_status check_knobs(sk_arena *a, const sk_settings *all, sk_job *job)
{
    const sk_optim *o = sk_optim_find(job->optim_name);
    for (const sk_knob *k = o ? o->knobs : NULL; k && k->name; k += sk_knob_list(k)) {
        double *x = job->knob + (k - o->knobs);
        const sk_setting *s = sk_setting_find(all, sk_print(a, "optim.%s", sk_knob_key(k)));
        if (!s || sk_knob_used(o->knobs, k, job->knob)) continue;
        bool spared = s->file && is_default(k, x);
        if (!spared && !is_replaced(all, s, "optim.name") && !is_replaced(all, s, key_of(a, k)))
            return sk_trail(sk_conf_unused(a, k, s), SK_HERE);
        for (int i = 0; i < sk_knob_list(k); i++) x[i] = k[i].usual;
    }
    return SK_OK;
}

/* Two numbers, or two neighbours of a list, that are the wrong way round.  A number of a list that
 * was left out is 0. */
static sk_status check_order(sk_arena *a, const sk_settings *all, const sk_knob *knobs,
                             const double *x, const char *where)
{
    for (const sk_knob *k = knobs; k->name; k++) {
        int i = 0, own = (int)(k - knobs);
        while (k->over && strcmp(knobs[i].name, k->over) != 0) i++;
        if (!k->over || x[own] > x[i] || (k->fewer ? x[own] <= 0 : x[own] == x[i])) continue;
        const char *key = sk_print(a, "%s%s", where, sk_knob_key(k));
        const char *other = sk_print(a, "%s%s", where, sk_knob_key(&knobs[i]));
        const sk_setting *s = sk_setting_find(all, key);
        if (!s) s = sk_setting_find(all, other);
        return sk_fail(s ? sk_setting_code(s) : SK_ECONF,
                       k->fewer ? "%s has %.17g behind %.17g; its numbers must rise%s"
                                : "%s is %.17g, less than the %.17g of %s; it must be as large",
                       key, x[own], x[i], k->fewer ? "" : other);
    }
    return SK_OK;
}

static sk_status check_orders(sk_arena *a, const sk_settings *all, const sk_job *job)
{
    const sk_optim *o = sk_optim_find(job->optim_name);
    const sk_lr *lr = sk_lr_named(job->schedule);
    if (o) SK_TRY(check_order(a, all, o->knobs, job->knob, "optim."));
    if (lr) SK_TRY(check_order(a, all, lr->knobs, job->lr_knob, "optim."));
    for (int i = 0; i < job->n_groups; i++) {
        const sk_param_group *g = &job->group[i];
        const char *where = sk_print(a, "optim.groups: %s: ", g->match);
        SK_TRY(check_order(a, all, g->optim->knobs, g->knob, where));
    }
    return SK_OK;
}

sk_status sk_conf_effects(sk_arena *a, const sk_settings *all, sk_job *job)
{
    SK_TRY(check_min_lr(a, all, job));
    SK_TRY(check_knobs(a, all, job));
    return check_orders(a, all, job);
}
