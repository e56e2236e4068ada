/* api_output.c - outputs of the backward pass (train.backward) after a step of a run, by name.
 *
 * They are sums of the program, as gradients are, shards of which lie in the heaps of their owners;
 * the caller gets them whole, in the units of train/backward_outputs.h. */
#include "api/running.h"
#include "train/backward_outputs.h"

#include <string.h>

void sk_outputs_list(skein_run *r)
{
    const sk_setup *s = &r->program->setup;
    r->n_outputs = sk_backward_list(&r->arena, s->job, &s->graph, &r->outputs);
}

static const sk_backward_output *find(const skein_run *r, const char *name)
{
    for (int i = 0; i < r->n_outputs; i++)
        if (!strcmp(r->outputs[i].name, name)) return &r->outputs[i];
    return NULL;
}

static skein_shape shape_of(const skein_run *r, const sk_backward_output *o)
{
    sk_shape s = sk_tensor_shape(&r->program->setup.graph, o->like);
    skein_shape out = {.name = o->name, .n_dims = s.n, .elements = 1};
    for (int d = 0; d < s.n; d++) out.elements *= out.dims[d] = s.d[d];
    return out;
}

int skein_run_outputs(const skein_run *r) { return r ? r->n_outputs : 0; }

int skein_run_output(const skein_run *r, int i, skein_shape *out)
{
    SK_NEED(r);
    SK_NEED(out);
    if (i < 0 || i >= r->n_outputs)
        return (int)sk_fail(SK_EUSAGE, "skein_run_output: output %d; there are %d", i,
                            r->n_outputs);
    skein_shape s = shape_of(r, &r->outputs[i]);
    return (int)sk_struct_to_caller(__func__, out, &s, sizeof s);
}

/* --- reading --- */

static sk_status no_such(const skein_run *r, const char *name)
{
    const char *asked = r->program->setup.job->backward;
    if (!sk_backward_is_name(name))
        return sk_fail(SK_EUSAGE,
                       "skein_run_read_output: there is no output '%.80s'; skein_run_output() "
                       "lists those of the run",
                       name);
    return sk_fail(SK_EUSAGE,
                   "skein_run_read_output: '%.80s' is not among the outputs of this run: "
                   "train.backward is \"%.80s\", which must name it, and some parameters have no "
                   "such output; skein_run_output() lists those of the run",
                   name, asked);
}

static sk_status there(const skein_run *r, const char *name, int64_t n)
{
    const sk_backward_output *o = find(r, name);
    if (!o) return no_such(r, name);
    int64_t count = shape_of(r, o).elements;
    if (n != count)
        return sk_fail(SK_EUSAGE, "skein_run_read_output: '%s' has %lld elements, not %lld", name,
                       (long long)count, (long long)n);
    if (!r->done)
        return sk_fail(SK_EUSAGE,
                       "skein_run_read_output: '%s' is of the last step, and none was done; call "
                       "skein_run_step() first",
                       name);
    if (!r->step_finite)
        return sk_fail(SK_ENUM,
                       "skein_run_read_output: '%s' is of the last step, whose numbers were not "
                       "finite; do another step",
                       name);
    return SK_OK;
}

/* One rank's shards of a sum, if they count. */
static int64_t take_from(const skein_run *r, int rank, const char *sum, float *to)
{
    sk_arena tmp = {0};
    sk_tensor_shard *v;
    int *buffer, n;
    int64_t got = 0;
    sk_program_sum_shards(r->program->setup.programs[rank], rank, &tmp,
                          sk_heap_base(r->heaps, rank), &v, &buffer, &n);
    for (int i = 0; i < n; i++) {
        if (!v[i].mine || strcmp(v[i].name, sum)) continue;
        sk_box_copy(&(sk_box_move){.n = v[i].n,
                                   .full = v[i].full,
                                   .at = v[i].at,
                                   .size = v[i].size,
                                   .whole = to,
                                   .whole_type = SK_F32,
                                   .shard = v[i].data,
                                   .shard_type = v[i].type,
                                   .out = true});
        got += sk_shard_count(&v[i]);
    }
    sk_arena_end(&tmp);
    return got;
}

sk_status sk_output_pull(const skein_run *r, int rank, sk_run *run)
{
    const sk_backward_output *o = &r->outputs[r->control->output];
    const char *sum = r->control->of_grad ? o->grad : o->sum;
    sk_arena tmp = {0};
    sk_tensor_shard *v;
    int *buffer, n;
    sk_status st = SK_OK;
    sk_program_sum_shards(r->program->setup.programs[rank], rank, &tmp, NULL, &v, &buffer, &n);
    for (int i = 0; i < n && !st; i++)
        if (v[i].mine && !strcmp(v[i].name, sum)) st = sk_run_pull_buffer(run, buffer[i]);
    sk_arena_end(&tmp);
    return st;
}

/* The sum that an output is made of, or the gradient that it takes too. */
static sk_status read_sum(skein_run *r, const sk_backward_output *o, bool grad, float *to,
                          int64_t n)
{
    int64_t got = 0;
    const char *sum = grad ? o->grad : o->sum;
    double unit = sk_backward_unit(grad ? -1 : o->kind, r->step_tokens, r->step_scale);
    r->control->output = (int)(o - r->outputs);
    r->control->of_grad = grad;
    SK_TRY(sk_run_request(r, SK_REQUEST_PULL_SUM));
    for (int k = 0; k < r->ranks.n; k++) got += take_from(r, k, sum, to);
    if (got != n)
        return sk_fail(SK_EBUG, "'%s': ranks own %lld of %lld elements", sum, (long long)got,
                       (long long)n);
    for (int64_t i = 0; i < n; i++) to[i] = (float)((double)to[i] * unit);
    return SK_OK;
}

static sk_status make_variance(skein_run *r, const sk_backward_output *o, float *square, int64_t n)
{
    sk_arena tmp = {0};
    float *grad = sk_many(&tmp, float, n);
    sk_status st = read_sum(r, o, true, grad, n);
    if (!st) sk_backward_variance(square, grad, n, r->program->setup.job->batch);
    sk_arena_end(&tmp);
    return st;
}

int skein_run_read_output(skein_run *r, const char *name, float *to, int64_t n)
{
    SK_ENTER;
    SK_NEED(r);
    SK_NEED(name);
    SK_NEED(to);
    SK_TELL(there(r, name, n));
    const sk_backward_output *o = find(r, name);
    SK_TELL(read_sum(r, o, false, to, n));
    if (o->grad) SK_TELL(make_variance(r, o, to, n));
    return SK_OK;
}
