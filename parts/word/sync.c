/* sync.c - how often, and how, ranks along an axis of the batch agree on weights (doc/sync.md). */
#include "coll/codec.h"
#include "layout/word.h"
#include "program/sync.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 1000000, MOST_TIMED = 32 }; /* SK_QUORUM_RANKS */

static void value_named(const char *name, sk_out *o)
{
    char meant[SK_SYNC_MEANT];
    if (sk_sync_meant(name, meant)) sk_out_add(o, "sync, as in \"dp=4 sync=%s\"", meant);
}

static sk_status unknown(const char *text, const char *name)
{
    const char *names[64];
    char meant[SK_SYNC_MEANT];
    int n = 0;
    if (sk_sync_meant(name, meant))
        return sk_fail(SK_ECONF,
                       "layout: no way to synchronise is called '%s' (did you mean '%s'?)", text,
                       meant);
    while (n < 64 && sk_sync_parts[n]) names[n] = sk_sync_parts[n]->name, n++;
    const char *near = sk_nearest(text, names, n);
    return sk_fail(SK_ECONF, "layout: no way to synchronise is called '%s'%s%s%s", text,
                   near ? " (did you mean '" : "; see skein list sync", near ? near : "",
                   near ? "'?)" : "");
}

static sk_status twice(const sk_sync *by, const char *what)
{
    return sk_fail(SK_ECONF, "layout: sync=%s: '%s' is said twice", by->name, what);
}

/* "lr=0.7": one of the numbers of the part. */
static sk_status read_knob(const sk_sync *by, const char *text, size_t n, double *knob,
                           unsigned *set)
{
    const char *names[SK_MAX_SYNC_KNOB], *at = memchr(text, '=', n);
    char said[64] = "";
    int k = 0, count = 0;
    if (n < sizeof said) memcpy(said, text, n);
    while (by->knobs[count].name) names[count] = by->knobs[count].name, count++;
    while (at && k < count &&
           (strlen(names[k]) != (size_t)(at - text) || memcmp(names[k], text, (size_t)(at - text))))
        k++;
    if (!at || k == count) {
        char own[128] = "none";
        for (size_t used = 0, i = 0; i < (size_t)count; used = strlen(own), i++)
            snprintf(own + used, sizeof own - used, "%s%s", i ? ", " : "", names[i]);
        return sk_fail(SK_ECONF, "layout: sync=%s has no number '%s'; its numbers are: %s%s",
                       by->name, said, own,
                       by->outer ? "; codec=CODEC and feedback go with it" : "");
    }
    const sk_knob *of = &by->knobs[k];
    char *end = NULL;
    double x = strtod(said + (at - text) + 1, &end);
    bool right = end != said + (at - text) + 1 && !*end && x >= of->least && x <= of->most &&
                 (!of->whole || x == (double)(int64_t)x);
    const char *below = of->most == SK_BELOW_ONE ? "below " : "";
    if (!right)
        return sk_fail(SK_ECONF, "layout: sync=%s: '%s'; %s is a %snumber from %g to %s%g (%s)",
                       by->name, said, of->name, of->whole ? "whole " : "", of->least, below,
                       of->most, of->doc);
    if (of->most == SK_BELOW_ONE && (float)x >= 1)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s: '%s' is 1 in f32, in which replicas compute; at most "
                       "0.99999997 is needed",
                       by->name, said);
    if (*set >> k & 1) return twice(by, of->name);
    *set |= 1u << k;
    knob[k] = x;
    return SK_OK;
}

/* The whole number of a way; what: of what it is the number, and another thing it may be. */
static sk_status read_number(const sk_sync *by, const char *text, int least, int most,
                             const char *what, int *out)
{
    int64_t n = 0;
    if (!sk_read_int(text, &n) || n < least || n > most)
        return sk_fail(SK_ECONF, "layout: sync=%s needs %s from %d to %d, found \"%s\"", by->name,
                       what, least, most, text);
    *out = (int)n;
    return SK_OK;
}

/* "8@100" of a way that begins at once. */
static sk_status not_later(const sk_sync *by, const char *text)
{
    const sk_sync *const *p = sk_sync_parts;
    while (*p && !(*p)->after) p++;
    char later[SK_SYNC_NAME + 32] = "";
    if (*p) snprintf(later, sizeof later, ", or take sync=%s:%s", (*p)->name, text);
    return sk_fail(SK_ECONF, "layout: sync=%s:%s: %s begins with the first step; leave out %s%s",
                   by->name, text, by->name, strchr(text, '@'), later);
}

/* "8", "8@2000", "8@decay" */
static sk_status read_steps(const sk_sync *by, char *text, int *every, int64_t *from)
{
    char *at = strchr(text, '@');
    int steps = 0;
    bool decay = at && !strcmp(at + 1, "decay");
    if (at && !by->after) return not_later(by, text);
    if (at && !decay)
        SK_TRY(read_number(by, at + 1, 1, INT_MAX,
                           "after '@' decay (until the learning rate falls), or a whole number of "
                           "steps",
                           &steps));
    if (at) *at = 0;
    *from = decay ? SK_SYNC_AT_DECAY : steps;
    return read_number(by, text, 1, MOST_STEPS, "a whole number of steps (1: in every step)",
                       every);
}

/* "codec=q4", "codec=topk:0.1": up to the next word, a number behind a colon is the codec's. */
static sk_status read_codec(const char *text, size_t *n, sk_axis_sync *to)
{
    char name[64] = "";
    if (text[*n] == ':' && (strchr("0123456789.", text[*n + 1]) && text[*n + 1]))
        *n += 1 + strcspn(text + *n + 1, ":");
    snprintf(name, sizeof name, "%.*s", (int)*n, text);
    return sk_word_codec(name, to->codec);
}

/* What is not a number of the part: true if it was read. */
static sk_status read_coding(const sk_sync *by, const char *at, size_t *n, sk_axis_sync *to,
                             bool *done)
{
    size_t key = strlen("codec=");
    *done = true;
    if (*n >= key && !memcmp(at, "codec=", key)) {
        if (*to->codec) return twice(by, "codec");
        *n -= key;
        sk_status st = read_codec(at + key, n, to);
        *n += key;
        return st;
    }
    *done = *n == strlen("feedback") && !memcmp(at, "feedback", *n);
    if (*done && to->feedback) return twice(by, "feedback");
    to->feedback |= *done;
    return SK_OK;
}

static int stale_of(int steps) { return steps ? 1 + steps : 0; }

/* "backup:1", "ssp:3", "ssp:inf".  None to drop, and no step ahead, are the plain program. */
static sk_status read_timed(const sk_sync *by, const char *text, sk_axis_sync *to)
{
    bool stale = by->kind == SK_SYNC_STALE;
    int n = by->usual;
    if (stale && !strcmp(text, ":inf")) {
        to->stale = SK_ANY_STALENESS;
        return SK_OK;
    }
    if (strchr(text + (*text == ':'), ':') || strchr(text, '='))
        return sk_fail(SK_ECONF, "layout: sync=%s%s; it has one number, as %s:%d%s", by->name, text,
                       by->name, by->usual, stale ? ", or ssp:inf" : "");
    if (*text)
        SK_TRY(read_number(by, text + 1, 0, MOST_STEPS,
                           stale ? "inf, or a whole number of steps" : "a whole number of ranks",
                           &n));
    if (stale) to->stale = stale_of(n);
    else to->backup = n;
    if (!n) snprintf(to->plain, sizeof to->plain, "%s:0", by->name);
    return SK_OK;
}

/* "local:8", "diloco:50:lr=0.7".  Weights that are averaged in every step are those of gradients
 * that are summed in every step: the plain program. */
static sk_status read(const char *text, sk_axis_sync *to)
{
    char name[SK_SYNC_NAME] = "", number[32] = "";
    size_t n = strcspn(text, ":");
    if (n < sizeof name) memcpy(name, text, n);
    const sk_sync *by = sk_sync_find(name);
    *to = (sk_axis_sync){0};
    if (!strcmp(text, "none")) return SK_OK;
    if (!by) return unknown(text, name);
    if (by->kind != SK_SYNC_STEPS) return read_timed(by, text + n, to);
    int every = by->usual;
    unsigned set = 0;
    for (int k = 0; by->knobs[k].name; k++) to->knob[k] = by->knobs[k].usual;
    for (const char *at = text + n; *at; at += n) {
        bool coding = false;
        n = strcspn(++at, ":");
        SK_TRY(read_coding(by, at, &n, to, &coding));
        if (coding) continue;
        if (memchr(at, '=', n) || at != text + strlen(by->name) + 1) {
            SK_TRY(read_knob(by, at, n, to->knob, &set));
            continue;
        }
        if (n < sizeof number) memcpy(number, at, n);
        SK_TRY(read_steps(by, number, &every, &to->from));
    }
    if (by->after && !to->from)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s needs the steps that are synchronous at first, as in "
                       "sync=%s:8@2000, or sync=%s:8@decay: until the learning rate falls",
                       by->name, by->name, by->name);
    if (!every)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s needs a number of steps between synchronisations, as in "
                       "sync=%s:8",
                       by->name, by->name);
    to->every = every;
    if (every > 1 || by->outer || by->pairs) snprintf(to->name, sizeof to->name, "%s", by->name);
    else snprintf(to->plain, sizeof to->plain, "%.*s", (int)sizeof to->plain - 1, text);
    return SK_OK;
}

static bool is_said(const sk_axis_sync *s) { return *s->name || s->backup || s->stale; }

extern const sk_word sk_word_sync;

/* Over dp, which is made if need be. */
static sk_status set(sk_reading *r, const char *value)
{
    sk_layout *l = r->l;
    int axis = sk_mesh_axis(&l->mesh, "dp");
    if (r->repeated || (axis >= 0 && is_said(&l->sync[axis]))) return sk_word_twice(&sk_word_sync);
    if (axis < 0) {
        SK_TRY(sk_axis_add(&l->mesh, "dp", 1));
        axis = l->mesh.n - 1;
        SK_TRY(sk_axis_split(l, axis, "b"));
    }
    return read(value, &l->sync[axis]);
}

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    int axis = -1;
    SK_TRY(sk_axis_find(r->l, s->v[0], &axis));
    if (is_said(&r->l->sync[axis])) return sk_word_twice(&sk_word_sync);
    return read(s->v[1], &r->l->sync[axis]);
}

static bool on(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (is_said(&l->sync[a])) return true;
    return false;
}

static void clear(sk_layout *l) { memset(l->sync, 0, sizeof l->sync); }

/* "diloco:50", with numbers that are not the usual ones. */
static void print_one(const sk_axis_sync *s, sk_out *o)
{
    const sk_sync *by = sk_sync_find(s->name);
    if (s->backup) sk_out_add(o, "backup:%d", s->backup);
    else if (s->stale == SK_ANY_STALENESS) sk_out_add(o, "ssp:inf");
    else if (s->stale) sk_out_add(o, "ssp:%d", s->stale - 1);
    if (!by) return;
    sk_out_add(o, "%s:%d", s->name, s->every);
    if (s->from > 0) sk_out_add(o, "@%lld", (long long)s->from);
    if (s->from == SK_SYNC_AT_DECAY) sk_out_add(o, "@decay");
    for (int k = 0; by->knobs[k].name; k++)
        if (s->knob[k] != by->knobs[k].usual)
            sk_out_add(o, ":%s=%s", by->knobs[k].name, sk_real_print(o->arena, s->knob[k]));
    if (*s->codec) sk_out_add(o, ":codec=%s", s->codec);
    if (s->feedback) sk_out_add(o, ":feedback");
}

static void print(const sk_layout *l, sk_out *o)
{
    for (int a = 0; a < l->mesh.n; a++) {
        if (!is_said(&l->sync[a])) continue;
        sk_out_add(o, "%ssynchronize %s by ", o->n ? "\n" : "", l->mesh.name[a]);
        print_one(&l->sync[a], o);
    }
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    for (int a = 0; a < l->mesh.n; a++) {
        if (!is_said(&l->sync[a])) continue;
        sk_out_add(o, "%s%s sync ", o->n ? " · " : "", l->mesh.name[a]);
        print_one(&l->sync[a], o);
    }
}

static sk_status codec_fits(const sk_axis_sync *s)
{
    const sk_sync *by = sk_sync_find(s->name);
    sk_codec codec;
    if (s->feedback && !*s->codec)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s:%d:feedback keeps what a codec lost, and there is none; "
                       "say one, as %s:%d:codec=q4:feedback",
                       s->name, s->every, s->name, s->every);
    if (!*s->codec) return SK_OK;
    if (!by->outer)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s:%d sends weights, which codec=%s would round for good; "
                       "diloco:%d:lr=1:momentum=0:codec=%s sends changes and takes their mean",
                       s->name, s->every, s->codec, s->every, s->codec);
    SK_TRY(sk_codec_read(s->codec, &codec));
    if (codec.low_rank)
        return sk_fail(
            SK_ECONF,
            "layout: sync=%s:%d:codec=%s would sum factors of changes, and it sums those "
            "of gradients alone; take a codec of rows, as q4 or topk:0.01:feedback",
            s->name, s->every, s->codec);
    if (codec.needs_feedback && !s->feedback)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s:%d:codec=%s loses most of every change; add feedback, as "
                       "codec=%s:feedback, which sends later what was not sent",
                       s->name, s->every, s->codec, s->codec);
    if (codec.no_feedback && s->feedback)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s:%d:codec=%s:feedback: what the codec loses at random is "
                       "more than most changes, and kept for the next one it grows; leave out "
                       "feedback, or take a codec that is nearer, as q4",
                       s->name, s->every, s->codec);
    return SK_OK;
}

static sk_status in_any_order(const sk_layout *l, const char *way)
{
    if (!l->canonical) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: in canonical order all runs have the same bits, and with sync=%s time "
                   "decides about them; take order=fast (skein train --replay repeats a run to the "
                   "bit), or sync=%s:0",
                   way, way);
}

/* What does not go with gradients, or updates, that come when they come. */
static sk_status timed_fits(const sk_layout *l)
{
    int a = sk_timed_axis(l);
    if (a < 0) return SK_OK;
    const char *way = l->sync[a].backup ? "backup" : "ssp", *name = l->mesh.name[a];
    for (int b = 0; b < l->mesh.n; b++)
        if (b != a && l->mesh.size[b] > 1)
            return sk_fail(SK_ECONF,
                           "layout: sync=%s lets each rank along '%s' come by itself, and the "
                           "%d along '%s' would wait for each other; take '%s' alone",
                           way, name, l->mesh.size[b], l->mesh.name[b], name);
    if (strcmp(l->split[a], "b") != 0)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s is about parts of the batch, and '%s' splits \"%s\"; an "
                       "axis that splits the batch \"b\" alone is needed",
                       way, name, l->split[a]);
    if (l->mesh.size[a] > MOST_TIMED)
        return sk_fail(SK_ECONF, "layout: sync=%s is for %d ranks at most, '%s' has %d", way,
                       MOST_TIMED, name, l->mesh.size[a]);
    if (l->sync[a].backup >= l->mesh.size[a])
        return sk_fail(SK_ECONF,
                       "layout: sync=backup:%d drops the gradients of all %d ranks along '%s'; at "
                       "most %d can be dropped",
                       l->sync[a].backup, l->mesh.size[a], name, l->mesh.size[a] - 1);
    if (l->shard)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s needs the weights and the whole state on every rank, and "
                       "zero=%d shards them; leave out one of them",
                       way, (int)l->shard);
    SK_TRY(in_any_order(l, way));
    if (*l->grads_as || l->adasum[a])
        return sk_fail(SK_ECONF,
                       "layout: sync=%s reads gradients where they lie, and %s is about how they "
                       "are sent; leave out one of them",
                       way, *l->grads_as ? "grads=CODEC" : "reduce=adasum");
    return SK_OK;
}

/* Replicas along two axes.  An anchor is one for all replicas, so that ranks along the other axis
 * must have the same weights when it moves: they have synchronised in the same step, before. */
static sk_status pair_fits(const sk_layout *l, int a, int b)
{
    const sk_axis_sync *x = &l->sync[a], *y = &l->sync[b];
    const sk_sync *outer = sk_sync_find(x->name), *other = sk_sync_find(y->name);
    if (!outer->outer && !outer->pairs) return SK_OK;
    const char *on = l->mesh.name[a], *beside = l->mesh.name[b];
    if (outer->pairs)
        return !other->outer && !other->pairs
                   ? SK_OK
                   : sk_fail(SK_ECONF,
                             "layout: replicas along '%s' have partners (%s), and those along '%s' "
                             "%s:%d; local:H goes with it",
                             on, x->name, beside, y->name, y->every);
    if (other->outer)
        return sk_fail(SK_ECONF,
                       "layout: %s:%d over '%s' and %s:%d over '%s' would each keep weights of the "
                       "last synchronisation; over one of them take local:H",
                       x->name, x->every, on, y->name, y->every, beside);
    if (outer->fragments)
        return sk_fail(SK_ECONF,
                       "layout: %s:%d over '%s' sends changes when a step begins, before replicas "
                       "along '%s' (%s:%d) have synchronised; diloco:%d goes with it",
                       x->name, x->every, on, beside, y->name, y->every, x->every);
    if (other->pairs || x->every % y->every)
        return sk_fail(SK_ECONF,
                       "layout: %s:%d over '%s' needs replicas along '%s' that have the same "
                       "weights every %d steps, and %s:%d does not see to it; take local:H there, "
                       "with an H that divides %d",
                       x->name, x->every, on, beside, x->every, y->name, y->every, x->every);
    return SK_OK;
}

static sk_status pairs_fit(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        for (int b = 0; b < l->mesh.n; b++)
            if (a != b && sk_layout_local(l, a) && sk_layout_local(l, b))
                SK_TRY(pair_fits(l, a, b));
    return SK_OK;
}

static sk_status check(const sk_layout *l)
{
    SK_TRY(timed_fits(l));
    for (int a = 0; a < l->mesh.n; a++) {
        const char *name = l->mesh.name[a];
        if (!*l->sync[a].name) continue;
        SK_TRY(codec_fits(&l->sync[a]));
        if (strcmp(l->split[a], "b") != 0)
            return sk_fail(SK_ECONF,
                           "layout: sync=%s:%d makes replicas of the ranks along '%s', and that "
                           "axis splits \"%s\"; an axis that splits the batch \"b\" alone is "
                           "needed",
                           l->sync[a].name, l->sync[a].every, name, l->split[a]);
        const sk_sync *by = sk_sync_find(l->sync[a].name);
        int parts = by->fragments ? by->fragments(l->sync[a].knob) : 1;
        if (parts > l->sync[a].every)
            return sk_fail(SK_ECONF,
                           "layout: sync=%s:%d has %d fragments, and one a step is synchronised; "
                           "take %s:%d or fewer fragments",
                           by->name, l->sync[a].every, parts, by->name, parts);
        for (int b = 0; b < a; b++)
            if (sk_layout_local(l, a) && sk_layout_local(l, b) &&
                l->sync[a].from != l->sync[b].from)
                return sk_fail(
                    SK_ECONF,
                    "layout: replicas along '%s' and '%s' begin at different steps, %lld "
                    "and %lld; one step is needed",
                    l->mesh.name[b], name, (long long)l->sync[b].from, (long long)l->sync[a].from);
        if (sk_layout_shards(l, a) && l->shard)
            return sk_fail(SK_ECONF,
                           "layout: sync=%s:%d gives ranks along '%s' weights of their own, and "
                           "zero=%d shards them over '%s'; take two axes, as in \"mesh hosts=2 "
                           "dp=2; split b over hosts; split b over dp; shard state over dp; "
                           "synchronize hosts by %s:%d\"",
                           l->sync[a].name, l->sync[a].every, name, (int)l->shard, name,
                           l->sync[a].name, l->sync[a].every);
    }
    return pairs_fit(l);
}

static sk_status coding_fits(const sk_word_ask *ask)
{
    for (int a = 0; a < ask->layout->mesh.n; a++) {
        const sk_axis_sync *s = &ask->layout->sync[a];
        if (!*s->name || !*s->codec) continue;
        if (ask->layout->canonical)
            return sk_fail(SK_ECONF,
                           "layout: in canonical order all layouts give the same bits, and "
                           "codec=%s rounds what replicas send by the shards that ranks have; "
                           "order=fast is needed",
                           s->codec);
        if (s->feedback && ask->dtype == SK_F16)
            return sk_fail(SK_ECONF,
                           "layout: sync=%s:%d:feedback keeps what was lost in the scale of the "
                           "loss, which moves with train.dtype=f16; take bf16, or a codec without "
                           "feedback",
                           s->name, s->every);
    }
    return SK_OK;
}

static sk_status timed_with(const sk_word_ask *ask)
{
    const char *way = sk_layout_backup(ask->layout) >= 0 ? "backup" : "ssp";
    if (!sk_layout_timed(ask->layout)) return SK_OK;
    SK_TRY(in_any_order(ask->layout, way));
    if (ask->gpu)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s runs on CPUs, where ranks read each other's memory; take "
                       "device=cpu, or leave it out",
                       way);
    if (ask->dtype == SK_F16)
        return sk_fail(SK_ECONF,
                       "layout: with train.dtype=f16 all ranks move one scale of the loss "
                       "together, and sync=%s lets each go alone; take bf16",
                       way);
    if (ask->late)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s updates after its gradients, and with optim.late the "
                       "update runs beside the next step; take optim.late=0",
                       way);
    return SK_OK;
}

static sk_status fits(const sk_word_ask *ask)
{
    SK_TRY(timed_with(ask));
    if (!sk_layout_any_local(ask->layout)) return SK_OK;
    SK_TRY(coding_fits(ask));
    if (ask->async)
        return sk_fail(SK_ECONF,
                       "layout: sync lets each replica clip and scale its own gradient at the end "
                       "of a step, and schedule %s updates within a step; take another, as 1f1b",
                       ask->layout->schedule);
    if (ask->late)
        return sk_fail(SK_ECONF, "layout: sync averages weights after their update, and with "
                                 "optim.late it runs beside the next step; take optim.late=0");
    return SK_OK;
}

/* The first axis whose ways are the plain program; -1: none. */
static int plain_axis(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (*l->sync[a].plain) return a;
    return -1;
}

static bool plain(const sk_layout *l) { return plain_axis(l) >= 0; }

static void idle(const sk_layout *l, sk_out *o)
{
    int axis = plain_axis(l);
    if (axis >= 0 && l->mesh.size[axis] > 1)
        sk_out_add(o,
                   "sync=%s has nothing to do: it is the plain program, which sums gradients in "
                   "every step",
                   l->sync[axis].plain);
    else if (!sk_layout_any_local(l) && !sk_layout_timed(l))
        sk_out_add(o, "sync has nothing to do: there is one replica, dp=N makes more");
    for (int a = 0; a < l->mesh.n; a++) {
        sk_codec c;
        if (*l->sync[a].codec && !sk_codec_read(l->sync[a].codec, &c) && sk_codec_sends_all(&c))
            sk_out_add(o,
                       "%scodec=%s chooses elements, and sends all of them: none sends fewer bytes",
                       o->n ? "; " : "", l->sync[a].codec);
    }
}

/* Gradients that were reduced over another axis of the batch travel in as many parts, weights
 * whole: it takes more steps than parts. */
static bool claims(const sk_word_ask *ask)
{
    const sk_layout *l = ask->layout;
    for (int a = 0; a < l->mesh.n; a++) {
        int parts = 1;
        for (int b = 0; b < l->mesh.n; b++)
            if (strchr(l->split[b], 'b') && !*l->sync[b].name) parts *= l->mesh.size[b];
        if (*l->sync[a].name && l->sync[a].every <= parts) return false;
    }
    return ask->optim && sk_layout_any_local(l);
}

static bool may_draw(const sk_layout *l, int a)
{
    return !strcmp(l->split[a], "b") && l->mesh.size[a] > 1 && !sk_layout_shards(l, a) &&
           !*l->sync[a].name;
}

/* Beside replicas of another axis mostly what goes with all of theirs. */
static const char *draw_way(sk_dice *d, bool beside)
{
    static const char *const ways[] = {"local:2",
                                       "local:3",
                                       "diloco:2",
                                       "diloco:3:momentum=0.5",
                                       "elastic:2",
                                       "elastic:4",
                                       "elastic:3:beta=0.5",
                                       "stream:2:fragments=2",
                                       "stream:4:mix=0.2",
                                       "stream:3:fragments=1",
                                       "gossip",
                                       "gossip:2",
                                       "postlocal:2@2",
                                       "postlocal:3@1"};
    int last = beside ? 1 : (int)(sizeof ways / sizeof *ways) - 1;
    return ways[sk_dice_pick(d, 0, last)];
}

static void add(char phrase[SK_WORD_TEXT], const char *text)
{
    size_t at = strlen(phrase);
    snprintf(phrase + at, SK_WORD_TEXT - at, "%s", text);
}

/* Any codec, also those that the way refuses: a phrase that is no layout is not taken. */
static void draw_codec(sk_dice *d, char phrase[SK_WORD_TEXT])
{
    char text[64];
    int n = 0;
    while (sk_codec_parts[n]) n++;
    const sk_codec *c = sk_codec_parts[sk_dice_pick(d, 0, n - 1)];
    snprintf(text, sizeof text, ":codec=%s", c->name);
    add(phrase, text);
    snprintf(text, sizeof text, ":%g", sk_dice_one_in(d, 2) ? c->value_usual : c->value_most / 2);
    if (c->value_name) add(phrase, text);
    if (c->needs_feedback || (!c->no_feedback && sk_dice_one_in(d, 2))) add(phrase, ":feedback");
}

/* Where no other axis has ranks: backup workers.  Tests let all of them come. */
static bool draw_alone(sk_dice *d, const sk_layout *l, int axis, char phrase[SK_WORD_TEXT])
{
    bool alone = !l->canonical && !l->shard;
    for (int a = 0; a < l->mesh.n; a++) alone &= a == axis || l->mesh.size[a] == 1;
    if (!alone || !sk_dice_one_in(d, 2)) return false;
    snprintf(phrase, SK_WORD_TEXT, "synchronize %s by backup:1", l->mesh.name[axis]);
    return true;
}

/* One axis that splits the batch alone and does not shard, or all of them, each by a way of its
 * own. */
static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    bool all = sk_dice_one_in(d, 2);
    int axis = -1, n = 0;
    for (int a = 0; a < l->mesh.n; a++)
        if (may_draw(l, a) && (axis < 0 || sk_dice_one_in(d, 2))) axis = a;
    if (axis < 0 || !sk_dice_one_in(d, 3)) return false;
    if (draw_alone(d, l, axis, phrase)) return true;
    bool brief = !all && !strcmp(l->mesh.name[axis], "dp") && sk_dice_one_in(d, 2);
    *phrase = 0;
    for (int a = 0; a < l->mesh.n; a++) {
        if (all ? !may_draw(l, a) : a != axis) continue;
        if (brief) add(phrase, "sync=");
        else add(phrase, *phrase ? "; synchronize " : "synchronize ");
        if (!brief) add(phrase, l->mesh.name[a]), add(phrase, " by ");
        add(phrase, draw_way(d, n++ > 0));
        if (sk_dice_one_in(d, 2)) draw_codec(d, phrase);
    }
    return true;
}

const sk_word sk_word_sync = {
    .name = "sync",
    .doc = "ranks along dp are replicas that update alone and synchronise every so many steps: "
           "skein list sync",
    .value = "SYNC",
    .sentence = {"synchronize AXIS by SYNC", "synchronise AXIS by SYNC"},
    .example = "dp=2 sync=local:4",
    .alias = {{"synchronize synchronise synchronization synchronisation",
               "sync=SYNC, as in \"dp=4 sync=local:8\""}},
    .value_named = value_named,
    .kind = SK_WORD_OTHER,
    .again = true,
    .place = 165,
    .set = set,
    .say = say,
    .on = on,
    .clear = clear,
    .print = print,
    .print_brief = print_brief,
    .check = check,
    .fits = fits,
    .idle = idle,
    .plain = plain,
    .excludes = {{"offload", 0, "replicas synchronise what lies in the memory of the device"},
                 {"replica", 0,
                  "ranks of a host would average a copy of the weights that others still read"}},
    .lowers = SK_LOWERS_WIRE,
    .claims = claims,
    .draw = draw,
    .tries = "local:8 diloco:50",
    .lossy = true,
};
