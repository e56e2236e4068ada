/* sync.c - how often, and how, ranks along an axis of the batch agree on weights (doc/sync.md). */
#include "layout/word.h"
#include "program/sync.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 1000000 };

static sk_status unknown(const char *text)
{
    const char *names[64];
    int n = 0;
    while (n < 64 && sk_sync_parts[n]) names[n] = sk_sync_parts[n]->name, n++;
    const char *near = sk_nearest(text, names, n);
    return sk_fail(SK_ECONF, "layout: no way to synchronise is called '%s'%s%s%s", text,
                   near ? " (did you mean '" : "; see skein list sync", near ? near : "",
                   near ? "'?)" : "");
}

/* "local:8"; a synchronisation in every step of weights that are averaged is that of gradients. */
static sk_status read(const char *text, sk_axis_sync *to)
{
    char name[SK_SYNC_NAME] = "";
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (n < sizeof name) memcpy(name, text, n);
    const sk_sync *by = sk_sync_find(name);
    if (!by) return unknown(text);
    if (!colon && !by->usual)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s needs a number of steps between synchronisations, as in "
                       "sync=%s:8",
                       by->name, by->name);
    int every = by->usual;
    if (colon) SK_TRY(sk_word_int("sync", colon + 1, 1, MOST_STEPS, &every));
    *to = (sk_axis_sync){.every = every};
    if (every > 1) snprintf(to->name, sizeof to->name, "%s", by->name);
    return SK_OK;
}

/* Over dp, which is made if need be. */
static sk_status set(sk_reading *r, const char *value)
{
    sk_layout *l = r->l;
    int axis = sk_mesh_axis(&l->mesh, "dp");
    if (axis < 0) {
        SK_TRY(sk_axis_add(&l->mesh, "dp", 1));
        axis = l->mesh.n - 1;
        SK_TRY(sk_axis_split(l, axis, "b"));
    }
    return read(value, &l->sync[axis]);
}

extern const sk_word sk_word_sync;

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    int axis = -1;
    SK_TRY(sk_axis_find(r->l, s->v[0], &axis));
    if (*r->l->sync[axis].name) return sk_word_twice(&sk_word_sync);
    return read(s->v[1], &r->l->sync[axis]);
}

static bool on(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (*l->sync[a].name) return true;
    return false;
}

static void clear(sk_layout *l) { memset(l->sync, 0, sizeof l->sync); }

static void print(const sk_layout *l, sk_out *o)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (*l->sync[a].name)
            sk_out_add(o, "%ssynchronize %s by %s:%d", o->n ? "\n" : "", l->mesh.name[a],
                       l->sync[a].name, l->sync[a].every);
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (*l->sync[a].name)
            sk_out_add(o, "%s%s sync %s:%d", o->n ? " · " : "", l->mesh.name[a], l->sync[a].name,
                       l->sync[a].every);
}

static sk_status check(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++) {
        const char *name = l->mesh.name[a];
        if (!*l->sync[a].name) continue;
        if (strcmp(l->split[a], "b") != 0)
            return sk_fail(SK_ECONF,
                           "layout: sync=%s:%d makes replicas of the ranks along '%s', and that "
                           "axis splits \"%s\"; an axis that splits the batch \"b\" alone is "
                           "needed",
                           l->sync[a].name, l->sync[a].every, name, l->split[a]);
        if (a == l->shard_axis && l->shard)
            return sk_fail(SK_ECONF,
                           "layout: sync=%s:%d gives ranks along '%s' weights of their own, and "
                           "zero=%d shards them over '%s'; take two axes, as in \"mesh hosts=2 "
                           "dp=2; split b over hosts; split b over dp; shard state over dp; "
                           "synchronize hosts by %s:%d\"",
                           l->sync[a].name, l->sync[a].every, name, (int)l->shard, name,
                           l->sync[a].name, l->sync[a].every);
    }
    return SK_OK;
}

static sk_status fits(const sk_word_ask *ask)
{
    if (!sk_layout_any_local(ask->layout)) return SK_OK;
    if (ask->async)
        return sk_fail(SK_ECONF,
                       "layout: sync lets each replica clip and scale its own gradient at the end "
                       "of a step, and schedule %s updates within a step; take another, as 1f1b",
                       ask->layout->schedule);
    if (ask->late)
        return sk_fail(SK_ECONF, "layout: sync averages weights behind their update, and with "
                                 "optim.late it runs beside the next step; take optim.late=0");
    return SK_OK;
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (!sk_layout_any_local(l))
        sk_out_add(o, "sync has nothing to do: there is one replica, dp=N makes more");
}

static bool claims(const sk_word_ask *ask)
{
    return ask->optim && sk_layout_any_local(ask->layout);
}

const sk_word sk_word_sync = {
    .name = "sync",
    .doc = "ranks along dp are replicas that update alone and synchronise every so many steps: "
           "skein list sync",
    .value = "SYNC",
    .sentence = {"synchronize AXIS by SYNC"},
    .example = "dp=2 sync=local:4",
    .alias = {{"local_sgd localsgd", "sync=local:H, as in \"dp=4 sync=local:8\""}},
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
    .excludes = {{"offload", 0, "replicas synchronise what lies in the memory of the device"}},
    .lowers = SK_LOWERS_WIRE,
    .claims = claims,
};
