/* import.c - `skein import`: a Hugging Face directory as the first checkpoint of a run.
 *
 * The state of the optimizer starts at zero, as in a new run; `skein train
 * --resume run=DIR` goes on from there, on any layout. */
#include "base/shell_word.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "run/run.h"
#include "train/checkpoint.h"
#include "train/hf.h"
#include "train/model_export.h"
#include "train/rundir.h"
#include "train/setup.h"

#include <string.h>

static const char usage[] =
    "usage: skein import MODEL_DIR run=RUN [FILE.yaml] [key=value ...]\n\n"
    "Reads a Hugging Face directory and makes RUN with a checkpoint of step 0 and a config.yaml.\n"
    "    skein import gpt2-dir run=runs/tuned optim.lr=1e-4\n";

typedef struct import {
    sk_setup setup;
    sk_training t;
    sk_heaps *heaps;
    sk_run *run;
} import;

static sk_status read_model(sk_arena *a, import *m, sk_tensor_shard **boxes, int *n, int *n_model)
{
    const sk_job *job = m->setup.job;
    sk_run_opts o = {.fill = sk_setup_fill, .fill_ctx = &m->setup};
    sk_tensor_shard *averages;
    int n_shapes = 0, n_averages = 0;
    SK_TRY(sk_heaps_open(1, &m->setup.programs[0]->heap_bytes, false, 0, &m->heaps));
    SK_TRY(sk_run_open(a, m->setup.programs[0], m->heaps, &o, &m->run));
    SK_TRY(sk_run_init(m->run, job->seed));
    sk_run_shards(m->run, a, boxes, n);
    *n_model = sk_shards_sort(&m->setup.graph, *boxes, *n);
    const sk_hf_shape *shapes = sk_hf_shapes(a, &m->setup.graph, &n_shapes);
    SK_TRY(sk_hf_check(job->model_dir, job->model, &job->hyper, shapes, n_shapes, sk_all_chunks));
    SK_TRY(sk_hf_load(job->model_dir, job->model, &job->hyper, shapes, n_shapes, *boxes, *n_model));
    sk_run_average_shards(m->run, a, &averages, &n_averages);
    return sk_hf_load(job->model_dir, job->model, &job->hyper, shapes, n_shapes, averages,
                      n_averages);
}

static sk_status save(sk_arena *a, import *m, const sk_tensor_shard *boxes, int n, int n_model)
{
    const sk_job *job = m->setup.job;
    bool none = !strcmp(job->data_tokenizer, "none");
    char name[SK_CKPT_NAME];
    sk_ckpt_report report;
    sk_ckpt_share share = {
        .model = boxes, .n_model = n_model, .state = boxes + n_model, .n_state = n - n_model};
    sk_ckpt_state st = {
        .seed = job->seed,
        .program = sk_program_hash(m->setup.programs[0]),
        .hyper = job->hyper,
        .config = m->t.config,
        .layout = sk_layout_print(a, &m->setup.layout),
        .extra = sk_extra_print(a, &(sk_extra){.tokenizer = none ? "" : job->data_tokenizer})};
    SK_TRY(sk_ckpt_begin(m->t.ckpt_dir, 0, 0, name));
    sk_status status = sk_ckpt_write_rank(m->t.ckpt, name, 0, &share, &report);
    if (status) {
        sk_ckpt_abandon(m->t.ckpt_dir, name);
        return sk_trail(status, SK_HERE);
    }
    return sk_ckpt_commit(m->t.ckpt_dir, name, 1, &st);
}

static sk_status keep_tokens(sk_arena *a, const import *m)
{
    const sk_job *job = m->setup.job;
    sk_tokenizer *t = NULL;
    if (sk_graph_is_sequences(&m->setup.graph) && strcmp(job->data_tokenizer, "none"))
        SK_TRY(sk_tokenizer_open(a, job->data_tokenizer, &t));
    return sk_rundir_keep_tokenizer(a, job, &m->t, t);
}

static sk_status import_all(sk_arena *a, sk_job *job, import *m)
{
    sk_tensor_shard *boxes = NULL;
    int n = 0, n_model = 0;
    const char *note;
    SK_TRY(sk_setup_program(a, job, true, &m->setup));
    SK_TRY(read_model(a, m, &boxes, &n, &n_model));
    SK_TRY(sk_rundir_open(a, job, &m->t, &note));
    snprintf(job->run, sizeof job->run, "%s", m->t.dir);
    m->t.config = sk_conf_print(a, job);
    SK_TRY(keep_tokens(a, m));
    SK_TRY(sk_rundir_config(&m->t, m->t.config));
    SK_TRY(save(a, m, boxes, n, n_model));
    printf("saved %s/step-%010d\nnext  skein train --resume run=%s\n", m->t.ckpt, 0,
           sk_shell_word(a, m->t.dir));
    return SK_OK;
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    sk_job *job = sk_new(a, sk_job);
    import *m = sk_new(a, import);
    sk_conf_rest rest = {0};
    if (argc && argv[0][0] != '-' && !strchr(argv[0], '='))
        argv[0] = sk_print(a, strchr(argv[0], '/') ? "model=%s" : "model=./%s", argv[0]);
    SK_TRY(sk_argv_job(a, argc, argv, usage, job, &rest));
    if (rest.help) return SK_OK;
    if (!*job->model_dir)
        return sk_fail(SK_EUSAGE, "import: a Hugging Face directory with config.json is needed");
    job->ranks = 1;
    job->layout[0] = 0;
    job->late = 0; /* it goes with a layout */
    sk_status st = import_all(a, job, m);
    if (m->run) sk_run_close(m->run);
    sk_heaps_close(m->heaps);
    if (m->t.ckpt_dir) sk_ckpt_close(m->t.ckpt_dir);
    return st;
}

const sk_cmd sk_cmd_import = {
    .name = "import", .doc = "a Hugging Face directory as the start of a run", .run = run};
