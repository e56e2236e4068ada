/* api_job.c - jobs and layouts: what is read from words. */
#include "api/handles.h"
#include "base/strings.h"
#include "cli/conf.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 1024 }; /* of a job */

/* --- a job --- */

static sk_status whole_graph(const skein_graph *g)
{
    SK_TRY((sk_status)skein_graph_status(g));
    if (!g->lost)
        return sk_fail(
            SK_ECONF, "graph %s has no loss; skein_cross_entropy or skein_loss is needed", g->name);
    for (int i = 0; i < g->records.n; i++)
        if (g->records.v[i].of == SK_OF_PARAM) return SK_OK;
    return sk_fail(SK_ECONF, "graph %s has no parameters; skein_param makes them", g->name);
}

/* Ranks that nobody named are as many as the layout has. */
static bool ranks_said(int n, char **words)
{
    for (int i = 0; i < n; i++)
        if (!strncmp(words[i], "-n", 2) || !strncmp(words[i], "ranks=", 6)) return true;
    return false;
}

static sk_status load(skein_job *job, int n, char **words)
{
    static const sk_option none[] = {{0}};
    sk_conf_rest rest = {.options = none, .own_graph = job->graph != NULL};
    SK_TRY(sk_conf_load(&job->arena, n, words, &job->job, &rest));
    if (rest.help || rest.n_words)
        return sk_fail(SK_EUSAGE, "skein_job_open: \"%.80s\" is no key=value and no FILE.yaml",
                       rest.help ? "--help" : rest.words[0]);
    if (job->job.ranks == 1 && !ranks_said(n, words)) job->job.ranks = 0;
    if (!job->graph) return SK_OK;
    snprintf(job->job.model_name, sizeof job->job.model_name, "%s", job->graph->name);
    job->job.hyper.vocab_size = job->graph->sizes['v'];
    job->job.hyper.input_size = job->graph->sizes['x'];
    job->job.build = sk_graph_replay;
    job->job.build_ctx = job->graph;
    return SK_OK;
}

int skein_job_open(skein_graph *g, int n_words, const char *const words[], skein_job **out)
{
    SK_NEED(out);
    if (n_words < 0 || n_words > WORDS || (n_words && !words))
        return (int)sk_fail(SK_EUSAGE, "skein_job_open: %d words; 0 to %d are possible", n_words,
                            WORDS);
    for (int i = 0; i < n_words; i++)
        if (!words[i]) return (int)sk_fail(SK_EUSAGE, "skein_job_open: word %d is NULL", i);
    if (g) SK_TELL(whole_graph(g));
    sk_arena a = {0};
    skein_job *job = sk_new(&a, skein_job);
    char **copy = sk_many(&a, char *, n_words + 1);
    for (int i = 0; i < n_words; i++) copy[i] = sk_strdup(&a, words[i]);
    job->arena = a;
    job->graph = g;
    atomic_store(&job->refs, 1);
    if (g) sk_graph_hold(g);
    sk_status st = load(job, n_words, copy);
    if (st) {
        skein_job_close(job);
        return (int)sk_trail(st, SK_HERE);
    }
    if (g) g->used = true;
    *out = job;
    return SK_OK;
}

void sk_job_hold(skein_job *job) { atomic_fetch_add(&job->refs, 1); }

void skein_job_close(skein_job *job)
{
    if (!job || atomic_fetch_sub(&job->refs, 1) > 1) return;
    skein_graph_close(job->graph);
    sk_arena a = job->arena; /* the job itself lies in it */
    sk_arena_end(&a);
}

/* --- a layout --- */

int skein_layout_read(const char *text, int n_ranks, skein_layout **out)
{
    SK_NEED(text);
    SK_NEED(out);
    if (n_ranks < 0)
        return (int)sk_fail(SK_EUSAGE, "skein_layout_read: n_ranks is %d; 0 means any number",
                            n_ranks);
    if (strlen(text) >= SK_LAYOUT_TEXT)
        return (int)sk_fail(SK_ECONF, "layout: the text has %zu bytes, at most %d are possible",
                            strlen(text), SK_LAYOUT_TEXT - 1);
    sk_layout l;
    SK_TELL(sk_layout_read(text, 0, &l));
    int ranks = sk_mesh_ranks(&l.mesh);
    if (n_ranks && ranks != n_ranks)
        return (int)sk_fail(SK_ECONF,
                            "skein_layout_read: the layout has %d rank%s, n_ranks is %d; ask for "
                            "%d, or change the sizes of the axes",
                            ranks, sk_plural(ranks), n_ranks, ranks);
    sk_arena a = {0};
    skein_layout *made = sk_new(&a, skein_layout);
    made->layout = l;
    made->text = sk_layout_print(&a, &l);
    made->arena = a;
    *out = made;
    return SK_OK;
}

void skein_layout_close(skein_layout *l)
{
    if (!l) return;
    sk_arena a = l->arena; /* l itself lies in it */
    sk_arena_end(&a);
}

int skein_layout_ranks(const skein_layout *l) { return l ? sk_mesh_ranks(&l->layout.mesh) : 0; }
const char *skein_layout_text(const skein_layout *l) { return l ? l->text : ""; }

int skein_layout_axis(const skein_layout *l, int i, const char **name, int *size)
{
    SK_NEED(l);
    if (i < 0 || i >= l->layout.mesh.n)
        return (int)sk_fail(SK_EUSAGE, "skein_layout_axis: axis %d; the mesh has %d", i,
                            l->layout.mesh.n);
    if (name) *name = l->layout.mesh.name[i];
    if (size) *size = l->layout.mesh.size[i];
    return SK_OK;
}
