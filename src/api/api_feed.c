/* api_feed.c - the batch of a run: inputs as the caller feeds them, shards as ranks load them. */
#include "api/running.h"
#include "base/strings.h"

#include <string.h>

enum { LINE = 64 };

static int64_t lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* --- the list --- */

void sk_inputs_list(skein_run *r)
{
    const sk_graph *g = &r->program->setup.graph;
    r->inputs = sk_many(&r->arena, sk_run_input, g->tensors.n + 1);
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        if (t->role != SK_INPUT || !strcmp(t->name, "loss_scale")) continue;
        sk_run_input *in = &r->inputs[r->n_inputs++];
        sk_shape s = sk_tensor_shape(g, t);
        *in = (sk_run_input){.name = t->name, .type = t->type, .n = s.n, .count = 1};
        for (int d = 0; d < s.n; d++) in->count *= in->full[d] = s.d[d];
    }
}

int64_t sk_inputs_bytes(const skein_run *r)
{
    int64_t bytes = lines(r->n_inputs);
    if (r->flags & SKEIN_DATA) return bytes;
    for (int i = 0; i < r->n_inputs; i++)
        bytes += lines(r->inputs[i].count * (int64_t)sk_dtype_size(r->inputs[i].type));
    return bytes;
}

void sk_inputs_place(skein_run *r, char *at)
{
    bool *fed = (bool *)(void *)at;
    at += lines(r->n_inputs);
    for (int i = 0; i < r->n_inputs; i++) {
        sk_run_input *in = &r->inputs[i];
        in->fed = &fed[i];
        in->data = at;
        if (!(r->flags & SKEIN_DATA)) at += lines(in->count * (int64_t)sk_dtype_size(in->type));
    }
}

static sk_run_input *find(const skein_run *r, const char *name)
{
    for (int i = 0; i < r->n_inputs; i++)
        if (!strcmp(r->inputs[i].name, name)) return &r->inputs[i];
    return NULL;
}

/* --- the caller --- */

/* Does a source of data declare an input of this name, type and kind? */
static bool declared_as(const sk_run_input *in, sk_input_kind kind)
{
    for (const sk_source *const *s = sk_source_parts; *s; s++)
        for (const sk_feed_input *f = (*s)->inputs; f->name; f++)
            if (f->kind == kind && f->type == in->type && !strcmp(f->name, in->name)) return true;
    return false;
}

/* Positions, and weights of one, need not be fed. */
static bool has_default(const sk_run_input *in)
{
    return declared_as(in, SK_INPUT_PLACES) || declared_as(in, SK_INPUT_ONES);
}

/* Positions begin at 0. */
static sk_status check_places(const sk_run_input *in, const int32_t *at)
{
    for (int64_t i = 0; i < in->count; i++)
        if (at[i] < 0)
            return sk_fail(SK_EDATA,
                           "input '%s': element %lld is %d; positions from 0 on are "
                           "possible",
                           in->name, (long long)i, at[i]);
    return SK_OK;
}

/* Ids choose rows of tables and classes of logits. */
static sk_status check_ids(const skein_run *r, const sk_run_input *in, const int32_t *ids)
{
    int64_t most = r->program->setup.graph.size['v'];
    if (in->type == SK_I32 && declared_as(in, SK_INPUT_PLACES)) return check_places(in, ids);
    if (in->type != SK_I32 || !most) return SK_OK;
    for (int64_t i = 0; i < in->count; i++)
        if (ids[i] < 0 || ids[i] >= most)
            return sk_fail(SK_EDATA,
                           "input '%s': element %lld is %d; ids from 0 to %lld are possible (the "
                           "size of letter v)",
                           in->name, (long long)i, ids[i], (long long)most - 1);
    return SK_OK;
}

int skein_run_feed(skein_run *r, const char *input, const void *data, int64_t n)
{
    SK_ENTER;
    SK_NEED(r);
    SK_NEED(input);
    SK_NEED(data);
    sk_run_input *in = find(r, input);
    if (!in)
        return (int)sk_fail(SK_EUSAGE, "skein_run_feed: the model has no input '%.80s'", input);
    if (r->flags & SKEIN_DATA)
        return (int)sk_fail(SK_EUSAGE,
                            "skein_run_feed: the run was opened with SKEIN_DATA, so inputs "
                            "come from data.train");
    if (n != in->count)
        return (int)sk_fail(
            SK_EUSAGE, "skein_run_feed: input '%s' gets %lld elements; the global batch has %lld",
            input, (long long)n, (long long)in->count);
    SK_TELL(check_ids(r, in, data));
    memcpy(in->data, data, (size_t)n * sk_dtype_size(in->type));
    *in->fed = true;
    return SK_OK;
}

sk_status sk_inputs_check(const skein_run *r)
{
    for (int i = 0; i < r->n_inputs && !(r->flags & SKEIN_DATA); i++)
        if (!*r->inputs[i].fed && !has_default(&r->inputs[i]))
            return sk_fail(SK_EUSAGE,
                           "input '%s' was not fed for this step; skein_run_feed() does, before "
                           "every step",
                           r->inputs[i].name);
    return SK_OK;
}

void sk_inputs_used(skein_run *r)
{
    for (int i = 0; i < r->n_inputs; i++) *r->inputs[i].fed = false;
}

/* Does a source of data fill this tensor? */
static bool is_filled(const sk_tensor *t)
{
    for (const sk_source *const *s = sk_source_parts; *s; s++)
        for (const sk_feed_input *f = (*s)->inputs; f->name; f++)
            if (!strcmp(f->name, t->name) && !strcmp(f->letters, t->letters) && f->type == t->type)
                return true;
    return false;
}

/* "idx: pixels bx, targets b, ...; text: ..." */
static const char *declared(sk_arena *a)
{
    sk_out o = {.arena = a};
    for (const sk_source *const *s = sk_source_parts; *s; s++) {
        sk_out_add(&o, "%s%s:", o.n ? "; " : "", (*s)->name);
        for (const sk_feed_input *f = (*s)->inputs; f->name; f++)
            sk_out_add(&o, "%s %s \"%s\"", f == (*s)->inputs ? "" : ",", f->name, f->letters);
    }
    return o.s ? o.s : "";
}

sk_status sk_inputs_suit(const skein_run *r)
{
    for (int i = 0; i < r->n_inputs; i++) {
        const sk_tensor *t = sk_graph_find(&r->program->setup.graph, r->inputs[i].name);
        sk_arena tmp = {0};
        if (is_filled(t)) continue;
        sk_status st = sk_fail(SK_ECONF,
                               "SKEIN_DATA: no data fill the input '%s' \"%s\" of %s; feed it, or "
                               "have those of one source (%s)",
                               t->name, t->letters, sk_dtype_name(t->type), declared(&tmp));
        sk_arena_end(&tmp);
        return st;
    }
    return SK_OK;
}

/* --- ranks --- */

/* 0, 1, 2 ... along the last dim; ones. */
static void fill_default(const sk_run_input *in, const sk_extent *box, void *to)
{
    int64_t n = 1, last = box->n ? box->size[box->n - 1] : 1;
    for (int d = 0; d < box->n; d++) n *= box->size[d];
    for (int64_t i = 0; i < n; i++)
        if (in->type == SK_F32) ((float *)to)[i] = 1;
        else ((int32_t *)to)[i] = (int32_t)((box->n ? box->at[box->n - 1] : 0) + i % last);
}

sk_status sk_inputs_fill(void *run, const char *input, sk_dtype type, const sk_extent *box,
                         int64_t step, bool validation, void *to)
{
    const sk_run_input *in = find(run, input);
    (void)step;
    (void)validation;
    if (!in || type != in->type || box->n != in->n)
        return sk_fail(SK_EBUG, "input '%s' is asked for as %s with %d dims", input,
                       sk_dtype_name(type), box->n);
    if (!*in->fed) {
        fill_default(in, box, to);
        return SK_OK;
    }
    sk_box_copy(&(sk_box_move){.n = in->n,
                               .full = in->full,
                               .at = box->at,
                               .size = box->size,
                               .whole = in->data,
                               .whole_type = in->type,
                               .shard = to,
                               .shard_type = type});
    return SK_OK;
}
