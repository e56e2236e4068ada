/* vary_row.c - the job and the machine of one row, and its step. */
#include "cli/vary.h"
#include "base/strings.h"
#include "layout/word.h"
#include "train/setup_simulate.h"

#include <string.h>

/* --- words of a layout --- */

static const char breaks[] = " \t\n;";

/* The text with something instead of the word and its value; NULL: it does not have the word. */
static const char *replaced(sk_arena *a, const char *text, const char *name, const char *instead)
{
    size_t n = strlen(name);
    for (const char *s = text; *s; s += strcspn(s, breaks)) {
        s += strspn(s, breaks);
        size_t all = strcspn(s, breaks);
        if (all < n || strncmp(s, name, n) || (s[n] != '=' && all != n)) continue;
        return sk_print(a, "%.*s%s%s", (int)(s - text), text, instead, s + all);
    }
    return NULL;
}

/* The text with that word of that value; NULL: the text has sentences, and none with that word. */
static const char *with(sk_arena *a, const char *text, const char *name, const char *value)
{
    const char *word = !strcmp(value, "no")    ? ""
                       : !strcmp(value, "yes") ? name
                                               : sk_print(a, "%s=%s", name, value);
    const char *changed = replaced(a, text, name, word);
    if (changed) return changed;
    if (strstr(text, "mesh ")) return NULL;
    return sk_print(a, "%s%s%s", text, *text ? " " : "", word);
}

static sk_status put_word(sk_arena *a, const char **text, const char *name, const char *value)
{
    const char *changed = with(a, *text, name, value);
    if (!changed)
        return sk_fail(SK_ECONF, "layout: the sentences have no '%s=N' to vary; add it", name);
    *text = changed;
    return SK_OK;
}

static sk_status count_ranks(const char *text, int *out)
{
    sk_layout l;
    SK_TRY(sk_layout_read(text, 0, &l));
    *out = sk_mesh_ranks(&l.mesh);
    return SK_OK;
}

/* dp is what the other axes leave of so many ranks. */
static sk_status fill_ranks(sk_arena *a, const char **text, int64_t ranks)
{
    int others = 1;
    SK_TRY(put_word(a, text, "dp", "1"));
    SK_TRY(count_ranks(*text, &others));
    if (ranks % others)
        return sk_fail(SK_ECONF, "layout: %lld ranks are no multiple of the %d that \"%.200s\" has",
                       (long long)ranks, others, *text);
    return put_word(a, text, "dp", sk_print(a, "%lld", (long long)(ranks / others)));
}

/* --- the job --- */

static const char *value_of(const sk_vary *v, const sk_vary_row *r, int i)
{
    return v->v[i].values[r->at[i]];
}

/* Is dp what the other axes leave of -n RANKS? */
static bool fills(sk_arena *a, const sk_vary *v, const char *text)
{
    bool axes = false;
    for (int i = 0; i < v->n; i++) {
        const sk_word *word = v->v[i].kind == SK_VARY_WORD ? sk_word_find(v->v[i].key) : NULL;
        if (word && !strcmp(word->name, "dp")) return false;
        axes |= v->v[i].kind == SK_VARY_RANKS || (word && word->kind == SK_WORD_AXIS);
    }
    return axes || !(replaced(a, text, "dp", "") || strstr(text, "mesh "));
}

/* The text of the layout, and how many ranks it takes. */
static sk_status layout_of(sk_arena *a, const sk_vary *v, const sk_vary_row *r, const char **text,
                           int *ranks)
{
    int64_t fill = v->job->ranks;
    bool touched = false, is_auto = !strcmp(v->job->layout, "auto");
    *text = v->job->layout;
    for (int i = 0; i < v->n; i++) {
        const char *key = v->v[i].key, *value = value_of(v, r, i);
        bool word = v->v[i].kind == SK_VARY_WORD, all = v->v[i].kind == SK_VARY_RANKS;
        bool micro = !strcmp(key, "train.micro_batch");
        touched |= word || all;
        if (all && (!sk_read_int(value, &fill) || fill < 1 || fill > 1 << 20))
            return sk_fail(SK_EUSAGE, "command line: --vary ranks=%.40s: 1 to 1048576 is needed",
                           value);
        if (word) SK_TRY(put_word(a, text, key, value));
        if (micro && replaced(a, *text, "micro", "")) *text = replaced(a, *text, "micro", "");
    }
    *ranks = fill ? (int)fill : 1;
    if (touched && is_auto)
        return sk_fail(SK_EUSAGE, "command line: layout=auto has no words to vary; give a layout");
    if (is_auto) return SK_OK;
    if (fill && fills(a, v, *text)) SK_TRY(fill_ranks(a, text, fill));
    return **text ? count_ranks(*text, ranks) : SK_OK;
}

/* With so many more ranks than the first row has. */
static sk_status grow_batch(sk_arena *a, const sk_vary *v, int ranks, int64_t *out)
{
    sk_vary_row first = {0};
    const char *text;
    int least = 1;
    SK_TRY(layout_of(a, v, &first, &text, &least));
    *out = v->job->batch * ranks / least;
    if (v->job->batch * ranks % least == 0) return SK_OK;
    return sk_fail(SK_ECONF,
                   "train.batch: %lld of the first row, on %d ranks, are no whole number on %d",
                   (long long)v->job->batch, least, ranks);
}

static sk_status put_numbers(const sk_vary *v, const sk_vary_row *r, sk_machine *m)
{
    sk_arena tmp = {0};
    sk_status st = SK_OK;
    for (int i = 0; i < v->n && !st; i++) {
        const char *value = value_of(v, r, i);
        size_t n = strlen(value);
        double by = 1;
        if (v->v[i].kind != SK_VARY_NUMBER) continue;
        bool factor =
            value[n - 1] == 'x' && sk_read_real(sk_print(&tmp, "%.*s", (int)n - 1, value), &by);
        st = factor ? sk_machine_scale(m, v->v[i].key, by) : sk_machine_set(m, v->v[i].key, value);
    }
    sk_arena_end(&tmp);
    return st;
}

/* What the command line says, and behind it what the row says. */
sk_status sk_vary_job(sk_arena *a, const sk_vary *v, const sk_vary_row *r, sk_job *job,
                      sk_machine *machine)
{
    sk_conf_rest rest = {.options = v->options};
    char **argv = sk_many(a, char *, v->argc + v->n + 3);
    const char *text = NULL;
    int argc = v->argc, ranks = 1;
    int64_t batch = v->job->batch;
    memcpy(argv, v->argv, (size_t)argc * sizeof *argv);
    SK_TRY(layout_of(a, v, r, &text, &ranks));
    if (v->weak) SK_TRY(grow_batch(a, v, ranks, &batch));
    for (int i = 0; i < v->n; i++)
        if (v->v[i].kind == SK_VARY_KEY)
            argv[argc++] = sk_print(a, "%s=%s", v->v[i].key, value_of(v, r, i));
    if (v->weak) argv[argc++] = sk_print(a, "train.batch=%lld", (long long)batch);
    if (strcmp(text, v->job->layout)) argv[argc++] = sk_print(a, "layout=%s", text);
    for (int i = 0; i < v->n; i++)
        if (v->v[i].kind == SK_VARY_RANKS) argv[argc++] = sk_print(a, "ranks=%d", ranks);
    SK_TRY(sk_argv_job(a, argc, argv, "", job, &rest));
    *machine = *v->machine;
    if (v->job->machine) job->machine = machine;
    return put_numbers(v, r, machine);
}

/* --- its step --- */

static void fill(const sk_setup *s, const sk_machine *m, const sk_simulated_step *step,
                 sk_vary_step *out)
{
    const sk_simulation *sim = &step->sim;
    double peak = sk_machine_peak(m, s->n_ranks, s->threads);
    *out = (sk_vary_step){.ranks = s->n_ranks,
                          .seconds = sim->seconds,
                          .busy = sim->busy,
                          .exposed = sim->exposed,
                          .bubble = sim->bubble};
    memcpy(out->exposed_by, sim->exposed_by, sizeof out->exposed_by);
    for (int i = 0; i < SK_N_EXPOSED; i++)
        out->exposed_name[i] = sk_exposed_name(&s->layout.mesh, i);
    out->tokens =
        (double)s->job->batch * (sk_graph_is_sequences(&s->graph) ? (double)s->job->seq : 1);
    if (peak > 0 && sim->seconds > 0) out->mfu = s->flops / sim->seconds / peak;
    out->bytes = step->bytes;
    out->fits = !m->memory || out->bytes <= m->memory;
    out->dollars = 1e6 * m->upkeep.price * s->n_ranks * sim->seconds / 3600 / out->tokens;
}

sk_status sk_vary_step_of(sk_arena *a, const sk_job *job, const sk_machine *m, sk_vary_step *out)
{
    sk_setup *s = sk_new(a, sk_setup);
    sk_simulated_step step;
    SK_TRY(sk_setup_layout(a, job, s));
    SK_TRY(sk_argv_job_stands(s));
    SK_TRY(sk_setup_second_programs(s)); /* refuses what a run would */
    SK_TRY(sk_setup_simulate(a, s, m, &step));
    fill(s, m, &step, out);
    sk_simulate_in in = {.machine = m,
                         .programs = step.programs,
                         .shape_of = step.shape_of,
                         .by_class = s->n_ranks > SK_SIMULATE_EACH};
    if (m->topology.jitter.draws) SK_TRY(sk_jitter_steps(a, &in, s->job->seed, &out->jitter));
    return SK_OK;
}
