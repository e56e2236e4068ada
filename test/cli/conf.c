/* The configuration: files and words to jobs, jobs to text and back, and a report for every way to
 * get it wrong.  Two small models of its own stand in for the shelf. */
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/conf.h"
#include "cli/setting.h"
#include "train/hf_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int checks, bad;
static char dir[64] = "/tmp/skein-conf-XXXXXX";
static sk_arena arena;

/* ---- two models: one with names of its own and positions, one with rotary positions */

#define SAME(x) \
    {           \
#x, #x  \
    }
static const sk_hf_key tiny_keys[] = {{"n_embd", "hidden_size"},
                                      {"n_layer", "num_hidden_layers"},
                                      {"n_head", "num_attention_heads"},
                                      {"layer_norm_epsilon", "norm_eps"},
                                      SAME(num_key_value_heads),
                                      SAME(intermediate_size),
                                      SAME(vocab_size),
                                      SAME(max_position_embeddings),
                                      SAME(resid_pdrop),
                                      SAME(embd_pdrop),
                                      SAME(attn_pdrop),
                                      SAME(initializer_range),
                                      SAME(hidden_act),
                                      SAME(tie_word_embeddings),
                                      {0}};
static const sk_hf_key *const tiny_tables[] = {tiny_keys, NULL};
static const sk_hf_key turn_keys[] = {SAME(hidden_size),
                                      SAME(num_hidden_layers),
                                      SAME(num_attention_heads),
                                      SAME(vocab_size),
                                      SAME(norm_eps),
                                      SAME(max_position_embeddings),
                                      SAME(rope_theta),
                                      {"rope_scaling.rope_type", "rope_type"},
                                      {"rope_scaling.factor", "rope_factor"},
                                      SAME(num_key_value_heads),
                                      SAME(intermediate_size),
                                      SAME(head_dim),
                                      {"n_gears", "num_gears"}, /* otherwise in config.json */
                                      {0}};
static const sk_hf_key *const turn_tables[] = {turn_keys, NULL};
static bool no_tensors(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    (void)a, (void)h, (void)i, (void)out;
    return false;
}

#define TINY(width, places)                                                                     \
    {                                                                                           \
        .arch = "tiny", .hidden_size = width, .num_hidden_layers = 2, .num_attention_heads = 4, \
        .num_key_value_heads = 4, .intermediate_size = 4 * (width), .vocab_size = 256,          \
        .max_position_embeddings = places, .norm_eps = 1e-5, .tie_word_embeddings = true        \
    }
static const sk_preset tiny_presets[] = {
    {"nano", TINY(64, 512)}, {"nano-short", TINY(32, 100)}, {0}};
static const sk_model tiny = {.name = "tiny",
                              .doc = "",
                              .presets = tiny_presets,
                              .usual = {.vocab_size = 256,
                                        .max_position_embeddings = 128,
                                        .norm_eps = 1e-5,
                                        .initializer_range = 0.02},
                              .hf = no_tensors,
                              .hf_class = "Tiny",
                              .hf_default = {.vocab_size = 256,
                                             .max_position_embeddings = 128,
                                             .norm_eps = 1e-5,
                                             .initializer_range = 0.02},
                              .hf_keys = tiny_tables};
enum { GEARS, SLIP, OILED }; /* fields that this model alone has */
static const sk_field turn_own[] = {SK_OWN_INT(GEARS, "num_gears", 3, 1, 9, "wheels that mesh"),
                                    SK_OWN_REAL(SLIP, "slip", 0.5, -1, 1, "lost in a turn"),
                                    SK_OWN_BOOL(OILED, "oiled", true, "runs smoothly"),
                                    {0}};
static const sk_model turn = {
    .name = "turn",
    .doc = "",
    .own = turn_own,
    .usual = {.vocab_size = 256,
              .rope_theta = 10000,
              .max_position_embeddings = 64,
              .norm_eps = 1e-6},
    .hf = no_tensors,
    .hf_default = {.vocab_size = 256, .rope_theta = 10000, .max_position_embeddings = 64},
    .hf_keys = turn_tables};
const sk_model *const sk_model_parts[] = {&tiny, &turn, NULL};

/* ---- tools */

static void check_at(int line, bool ok, const char *what)
{
    checks++;
    if (ok) return;
    bad++;
    printf("test/cli/conf.c:%d: %s\n  last report: %s\n", line, what, sk_error());
}
#define check(x)   check_at(__LINE__, (x), #x)
#define same(x, y) check_at(__LINE__, !strcmp((x), (y)), #x " is " #y)

static const sk_option options[] = {{"rank", "the rank to show", true},
                                    {"o", "csv, json or md", true},
                                    {"verbose", "say more", false},
                                    {0}};
static sk_job job;
static sk_conf_rest rest;

/* A number of the job's optimizer. */
static double knob(const char *name)
{
    const sk_optim *o = sk_optim_find(job.optim_name);
    int k = o ? sk_optim_knob(o, name) : -1;
    return k < 0 ? -1 : job.knob[k];
}

/* Load from one text of words; '~' stands for a space inside a word. */
static sk_status load(const char *line)
{
    char *argv[32], *save = NULL, *text = sk_strdup(&arena, line);
    int argc = 0;
    for (char *w = strtok_r(text, " ", &save); w && argc < 32; w = strtok_r(NULL, " ", &save)) {
        for (char *p = w; *p; p++)
            if (*p == '~') *p = ' ';
        argv[argc++] = w;
    }
    rest = (sk_conf_rest){.options = options};
    return sk_conf_load(&arena, argc, argv, &job, &rest);
}

static const char *put(const char *name, const char *text)
{
    const char *path = sk_print(&arena, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text, 1, strlen(text), f) != strlen(text) || fclose(f)) abort();
    return path;
}

static sk_status file(const char *text) { return load(put("t.yaml", text)); }

static void refused_at(int line, sk_status got, sk_status code, const char *words)
{
    bool ok = got == code && strstr(sk_error_line(), words);
    check_at(line, ok, sk_print(&arena, "exit %d and \"%s\" (exit %d)", code, words, got));
}
#define refused(got, code, words) refused_at(__LINE__, (got), (code), (words))

static void back_at(int line, const char *words);
#define back(words) back_at(__LINE__, (words))

/* ---- tests */

static void defaults(void)
{
    check(!load(""));
    check(job.model == &tiny && job.hyper.hidden_size == 64 && !strcmp(job.model_name, "nano"));
    same(job.data_train, "kjv");
    same(job.data_val, "");
    same(job.data_tokenizer, "byte");
    same(job.data_order, "shuffle");
    check(job.steps == 200 && job.batch == 12 && job.seq == 256 && job.micro_batch == 0);
    check(job.dtype == SK_F32 && job.seed == 1 && job.threads == 0 && job.time_limit == 0);
    same(job.optim_name, "adamw");
    check(job.lr == 1e-3 && knob("beta1") == 0.9 && knob("beta2") == 0.95 && knob("eps") == 1e-8);
    check(knob("decay") == 0.1 && job.clip == 1 && job.warmup == 10);
    same(job.schedule, "cosine");
    same(job.layout, "");
    same(job.order, "fast");
    check(job.ranks == 1 && job.ckpt_every.steps == 0 && job.ckpt_every.seconds == 600 &&
          job.log_every == -1);
    check(!load("model=nano-short") && job.seq == 100);
    check(!load("-n 4") && job.ranks == 4 && !strcmp(job.layout, "dp=4") && job.layout_unsaid);
    check(!load("-n 4 layout=dp=4") && !job.layout_unsaid);
    check(!load("-n4 layout=tp=4") && job.ranks == 4 && !strcmp(job.layout, "tp=4"));
}

/* Each optimizer has its own numbers, unless a file or the command line says others. */
static void optimizers(void)
{
    const char *path = put("lamb.yaml", "optim: {name: lamb, eps: 1e-5}\n");
    check(!load("optim.name=lamb") && job.lr == 2e-3 && knob("eps") == 1e-6);
    check(knob("beta1") == 0.9 && knob("beta2") == 0.999 && knob("decay") == 0.01);
    check(!load("optim.betas=0.8,0.9 optim.name=lamb optim.lr=5") && job.lr == 5);
    check(knob("beta1") == 0.8 && knob("beta2") == 0.9 && knob("decay") == 0.01);
    check(!load("optim.name=sgd") && job.lr == 0.1 && knob("momentum") == 0.9);
    check(knob("decay") == 0);
    check(!load("optim.name=sgd-pb --no-optim.predict") && knob("predict") == 0);
    check(knob("compensate") == 1 && job.lr == 0.1);
    check(!load(path) && job.lr == 2e-3 && knob("eps") == 1e-5 && knob("beta2") == 0.999);
    check(!load(sk_print(&arena, "%s optim.name=adamw", path)));
    check(job.lr == 1e-3 && knob("eps") == 1e-5 && knob("beta2") == 0.95); /* eps is the file's */
    check(!load("optim.name=nobody") && job.lr == 1e-3); /* told with the program */
    path = put("all.yaml", "optim: {name: adamw, momentum: 0.5, compensate: no, predict: 1}\n");
    check(!load(sk_print(&arena, "%s optim.name=sgd", path)));
    check(knob("momentum") == 0.5 && knob("decay") == 0); /* what was said for others */
    check(strstr(job.left_out, "optim.compensate of ") &&
          strstr(job.left_out, "optim.predict of "));
    check(!strstr(job.left_out, "momentum"));
    path = put("betas.yaml", "optim: {betas: [0.8, 0.9]}\n");
    check(!load(sk_print(&arena, "%s optim.name=muon", path)));
    check(strstr(job.left_out, "optim.betas of ") && strstr(job.left_out, "muon has no such key") &&
          strstr(job.left_out, "optim.groups=\"rest: adamw betas=[0.8, 0.9]\""));
    refused(load("optim.name=muon optim.betas=0.8,0.9"), SK_EUSAGE,
            "optim.groups=\"rest: adamw betas=[0.8,0.9]\" gives it to adamw");
    check(!load(sk_print(&arena, "%s optim.name=lamb", path)) && !*job.left_out);
    path = put("all.yaml", "optim: {name: adamw, momentum: 0.5, compensate: no, predict: 1}\n");
    refused(load(path), SK_ECONF,
            "all.yaml:1:22: optim.momentum is for other optimizers: adamw has no such key; it has "
            "optim.lr, optim.betas");
    refused(file("optim: {momentum: 0.5}"), SK_ECONF, "adamw has no such key");
    check(!file("optim: {momentum: 0.5, name: sgd}") && knob("momentum") == 0.5);
    refused(file("optim: {momentum: 2}"), SK_ECONF, "momentum is \"2\"; a number from 0 to 1");
    refused(load("optim.name=sgd optim.betas=0.9,0.9"), SK_EUSAGE,
            "sgd has no such key; it has optim.lr, optim.momentum, optim.weight_decay");
    refused(load("optim.name=sgd-pb optim.predict=0.5"), SK_EUSAGE, "a whole number from 0 to 1");
    check(!load("optim.name=sgd-pb --optim.predict optim.compensate=off --no-optim.weight_decay"));
    check(knob("predict") == 1 && knob("compensate") == 0 && knob("decay") == 0);
}

static double group_knob(int i, const char *name)
{
    int k = i < job.n_groups ? sk_optim_knob(job.group[i].optim, name) : -1;
    return k < 0 ? -1 : job.group[i].knob[k];
}

/* What is no matrix has the optimizer that the one for matrices names: rate and decay are one, all
 * numbers where the two declare the same. */
static void rest_of_matrices(void)
{
    check(!load("optim.name=adafactor optim.eps2=0.25 optim.weight_decay=0.5"));
    check(job.n_groups == 2 && !strcmp(job.group[1].optim->name, "adafactor-vector"));
    check(group_knob(0, "eps2") == 0.25 && group_knob(1, "eps2") == 0.25);
    check(group_knob(1, "decay") == 0.5 && group_knob(1, "clip_rms") == 1);
    check(job.group[0].matrices && !job.group[1].matrices); /* every matrix, also tables */
    check(!load("optim.name=shampoo optim.betas=0.5,0.6 optim.weight_decay=0.5"));
    check(group_knob(0, "beta1") == 0.5 && group_knob(1, "beta1") == 0.9);
    check(group_knob(1, "decay") == 0.5 && group_knob(1, "eps") == 1e-8);
}

static double group_rate(int i) { return i < job.n_groups ? job.group[i].rate * job.lr : -1; }

/* Rate and decay of a group that says none: those of the job's keys, else its optimizer's. */
static void numbers_of_groups(void)
{
    static const char *const both[] = {
        "{name: muon%s}",
        "{groups: \"matrix: muon, rest: adamw\"%s}",
        "{name: muon, groups: \"matrix: muon, rest: adamw\"%s}",
    };
    for (int i = 0; i < 6; i++) {
        const char *text =
            sk_print(&arena, both[i / 2], i % 2 ? ", lr: 0.5, weight_decay: 0.25" : "");
        check(!file(sk_print(&arena, "optim: %s", text)) && job.n_groups == 2);
        check(group_rate(0) == (i % 2 ? 0.5 : 1e-3) && group_rate(1) == group_rate(0));
        check(group_knob(0, "decay") == (i % 2 ? 0.25 : 0.1) &&
              group_knob(1, "decay") == group_knob(0, "decay"));
    }
    check(!file("optim: {name: soap, groups: \"vector: adamw\"}")); /* as without the group */
    check(group_rate(0) == 3e-3 && group_knob(0, "decay") == 0.01);
    check(!file("optim: {groups: \"vector: lion, wte: sgd lr=0.5\"}"));
    check(group_rate(0) == 1e-4 && group_rate(1) == 0.5 && group_knob(0, "decay") == 0);
    const char *kept = sk_conf_print(&arena, &job); /* what is not said stays so */
    check(!file(kept) && group_rate(0) == 1e-4 && job.lr == 1e-3 && group_knob(0, "decay") == 0);
    check(!file("optim: {lr: 0.5, groups: \"vector: lion, wte: sgd lr=0.25\"}"));
    check(group_rate(0) == 0.5 && group_rate(1) == 0.25);
    kept = sk_conf_print(&arena, &job);
    check(!file(kept) && group_rate(0) == 0.5 && group_rate(1) == 0.25);
}

static bool group_is(int i, const char *match, const char *optim, bool matrices)
{
    const sk_param_group *g = &job.group[i];
    return i < job.n_groups && !strcmp(g->match, match) && !strcmp(g->optim->name, optim) &&
           g->matrices == matrices;
}

/* Without an optimizer a group leaves parameters the one that they have. */
static void groups_without_optimizer(void)
{
    check(
        !file("optim: {name: muon, groups: \"vector: lr=0.5, h.0.*: lr=0.25 betas=[0.5, 0.6]\"}"));
    check(job.n_groups_said == 3 && group_is(0, "vector", "adamw", false) && group_rate(0) == 0.5);
    check(group_is(1, "h.0.*", "muon", true) && group_is(2, "h.0.*", "adamw", false));
    check(group_rate(1) == 0.25 && group_rate(2) == 0.25 && group_knob(2, "beta1") == 0.5);
    check(group_is(3, "matrix", "muon", false) && group_is(4, "rest", "adamw", false));
    check(!file("optim: {name: muon, groups: \"matrix: lr=0.5\"}") && job.n_groups == 2);
    check(!file("optim: {name: kfac, groups: \"matrix: lr=0.5\"}")); /* some may have no factors */
    check(group_is(0, "matrix", "kfac", true) && group_is(1, "matrix", "adamw", false));
    check(!file("optim: {name: sgd, groups: \"vector: lr=0.5, rest: momentum=0.5\"}"));
    check(job.n_groups == 2 && group_is(0, "vector", "sgd", false) &&
          group_is(1, "rest", "sgd", false));
    refused(file("optim: {name: muon, groups: \"h.0.*: radius=1\"}"), SK_ECONF,
            "says radius of muon and adamw, which have lr, momentum");
}

/* A knob that names an optimizer brings its defaults. */
static void defaults_of_base(void)
{
    check(!load("optim.name=sam") && job.lr == 1e-3 && knob("decay") == 0.1);
    check(!load("optim.name=sam optim.base=sgd") && job.lr == 0.1 && knob("decay") == 0);
    check(!load("optim.name=sam optim.base=sgd optim.lr=0.5 optim.weight_decay=0.25"));
    check(job.lr == 0.5 && knob("decay") == 0.25);
    back("optim.name=sam optim.base=sgd");
    check(!file("optim: {groups: \"vector: sam base=sgd, rest: sam\"}"));
    check(group_rate(0) == 0.1 && group_knob(0, "decay") == 0);
    check(group_rate(1) == 1e-3 && group_knob(1, "decay") == 0.1);
    check(!file("optim: {name: sam, groups: \"vector: base=sgd\"}") && group_rate(0) == 0.1);
}

static double rate_knob(const char *name)
{
    const sk_lr *r = sk_lr_named(job.schedule);
    for (int k = 0; r && r->knobs[k].name; k++)
        if (!strcmp(r->knobs[k].name, name)) return job.lr_knob[k];
    return -1;
}

/* Schedules of the learning rate have numbers too: a list that may be short, and words. */
static void schedules(void)
{
    check(!load("optim.schedule=wsd") && rate_knob("schedule_decay") == 0.2);
    check(rate_knob("schedule_shape") == 2);
    check(!load("optim.schedule=wsd optim.schedule_shape=linear optim.schedule_decay=0.1"));
    check(rate_knob("schedule_shape") == 0 && rate_knob("schedule_decay") == 0.1);
    check(!load("optim.schedule=step optim.schedule_milestones=30,60"));
    check(rate_knob("milestone0") == 30 && rate_knob("milestone1") == 60);
    check(rate_knob("milestone2") == 0 && rate_knob("milestone5") == 0 && job.warmup == 10);
    check(!file("optim: {schedule: step, schedule_milestones: [5, 6, 7]}"));
    check(rate_knob("milestone2") == 7 && rate_knob("milestone3") == 0);
    check(!load("optim.schedule=onecycle") && job.warmup == 0 && rate_knob("low") == 0.85);
    check(!file("optim: {schedule: onecycle, warmup: 7}") && job.warmup == 0);
    check(!load("optim.schedule=onecycle optim.warmup=0"));
    refused(file("optim: {schedule_power: 3, schedule: linear}"), SK_ECONF,
            "schedule_power is for other schedules: linear has no such key");
    const char *path = put("all.yaml", "optim: {schedule_power: 3, schedule: polynomial}\n");
    check(!load(path) && !load(sk_print(&arena, "%s optim.schedule=linear", path)));
    back("optim.schedule=wsd optim.schedule_shape=cosine");
    back("optim.schedule=step optim.schedule_milestones=30,60 optim.schedule_factor=0.3");
    back("optim.schedule=restarts optim.schedule_mult=3");
    refused(load("optim.schedule_power=3"), SK_EUSAGE,
            "optim.schedule_power is for other schedules: cosine has no such key; it has none");
    refused(load("optim.schedule=wsd optim.schedule_power=3"), SK_EUSAGE,
            "wsd has no such key; it has optim.schedule_decay, optim.schedule_shape");
    refused(file("optim: {schedule_power: 300}"), SK_ECONF, "a number from 0 to 100");
    refused(load("optim.schedule=wsd optim.schedule_shape=sqrt"), SK_EUSAGE,
            "\"sqrt\"; one of: linear cosine minus_sqrt exponential is needed");
    refused(load("optim.schedule=wsd optim.schedule_shape="), SK_EUSAGE, "one of: linear");
    refused(load("optim.schedule=step optim.schedule_milestones="), SK_EUSAGE, "up to 6 numbers");
    refused(load("optim.schedule=step optim.schedule_milestones=1,2,3,4,5,6,7"), SK_EUSAGE,
            "up to 6 numbers from 0 to");
    refused(load("optim.schedule=step optim.schedule_milestones=3,-1"), SK_EUSAGE, "up to 6");
    refused(load("optim.schedule=step optim.schedule_milestones=1,1"), SK_EUSAGE,
            "has 1 behind 1; its numbers must rise");
    refused(load("optim.schedule=onecycle optim.warmup=5"), SK_EUSAGE,
            "optim.warmup is 5, but the schedule onecycle rises by itself");
    refused(load("optim.schedule=onecycle optim.schedule_momentum=0.9"), SK_EUSAGE, "two numbers");
    refused(load("optim.pct_start=0.2"), SK_EUSAGE, "optim.schedule_start");
    refused(load("optim.schedul_power=3"), SK_EUSAGE, "did you mean \"optim.schedule_power\"?");
}

/* Keys that would do nothing beside others. */
static void without_effect(void)
{
    refused(load("optim.name=sam optim.momentum=0.5"), SK_EUSAGE,
            "optim.momentum is \"0.5\", which is used with optim.base=sgd only; set that too, or "
            "leave it out");
    refused(load("optim.name=sam optim.base=sgd optim.betas=0.5,0.6"), SK_EUSAGE,
            "used with optim.base=adamw only");
    refused(load("optim.name=sam optim.base=sgd optim.eps=1e-4"), SK_EUSAGE, "optim.base=adamw");
    check(!load("optim.name=sam optim.base=sgd optim.momentum=0.5") && knob("momentum") == 0.5);
    back("optim.name=sam optim.base=sgd optim.momentum=0.5");
    back("optim.name=sam optim.betas=0.5,0.6");
    const char *path = put("all.yaml", "optim: {name: sam, base: sgd, momentum: 0.5}\n");
    check(!load(path) && knob("momentum") == 0.5);
    check(!load(sk_print(&arena, "%s optim.base=adamw", path)) && knob("momentum") == 0.9);
    check(!file("optim: {name: sam, momentum: 0.9}")); /* the default: nothing is lost */
    refused(file("optim: {name: sam, momentum: 0.8}"), SK_ECONF, "t.yaml:1:30: optim.momentum");
    refused(load("optim.schedule=constant optim.min_lr=1e-5"), SK_EUSAGE,
            "optim.min_lr is 1e-5, and optim.schedule=constant stays at optim.lr; leave it out, or "
            "take a schedule that falls, such as cosine");
    refused(load("optim.name=schedulefree optim.min_lr=1e-5"), SK_EUSAGE, "optim.min_lr is 1e-5");
    refused(file("optim: {schedule: constant, min_lr: 1e-5}"), SK_ECONF, "optim.min_lr is 1e-5");
    check(!load("optim.schedule=constant optim.min_lr=0") && job.min_lr == 0);
    path = put("all.yaml", "optim: {min_lr: 1e-5}\n");
    check(!load(path) && job.min_lr == 1e-5);
    check(!load(sk_print(&arena, "%s optim.schedule=constant", path)) && job.min_lr == 0);
    check(!load(sk_print(&arena, "%s optim.name=schedulefree", path)) && job.min_lr == 0);
}

/* What is said of groups is read once, and whole. */
static void bad_groups(void)
{
    static const struct {
        const char *text, *words;
    } wrong_ones[] = {
        {"matrix: adamw betas=[0.9, 0.99, rest: adamw", "has a [ without a ]; a list is"},
        {"matrix: adamw betas=[0.9, 0.99]], rest: adamw", "has a ] without a ["},
        {"matrix: adamw betas=0.9,0.99, rest: lion", "needed (decay rates of the two moments); "
                                                     "write betas=[0.9,0.99]"},
        {"matrix: adamw betas=0.9, 0.99 eps=1e-7", "write betas=[0.9,0.99]"},
        {"matrix: adamw lr=0.1 lr=0.2", "says lr twice; once is needed"},
        {"matrix: adamw betas=[0.9,0.99] betas=[0.8,0.9]", "says betas twice"},
        {",", "has no group; GROUP: OPTIMIZER KEY=VALUE ... is needed"},
        {"matrix: sam momentum=0.5",
         "optim.groups: matrix: momentum is \"0.5\", which is used with "
         "base=sgd only"},
    };
    for (size_t i = 0; i < sizeof wrong_ones / sizeof *wrong_ones; i++)
        refused(file(sk_print(&arena, "optim: {groups: \"%s\"}", wrong_ones[i].text)), SK_ECONF,
                wrong_ones[i].words);
    check(!file("optim: {groups: \"matrix: adamw betas=[0.9, 0.99] lr=0.1,\\nrest: sam base=sgd "
                "momentum=0.5\"}"));
    check(job.n_groups == 2 && job.group[0].knob[2] == 0.99);
}

/* Every knob of every part is a key with help and a range that its default is in; optimizers that
 * share a key agree on it. */
static void each_knob(const char *key, const char *part, const sk_knob *knobs)
{
    for (const sk_knob *k = knobs; k->name; k++) {
        const char *name = sk_print(&arena, "optim.%s", sk_knob_key(k));
        const sk_knob *any = sk_conf_knob(name), *own = knobs;
        if (k->role == SK_KNOB_LR) continue;
        while (strcmp(sk_knob_key(own), sk_knob_key(k))) own++;
        const char *help = sk_conf_help_on(&arena, name);
        check(k->least < k->most && k->usual >= k->least && k->usual <= k->most);
        check(any && any->least == own->least && any->most == own->most);
        check(any && any->whole == own->whole && sk_knob_list(any) == sk_knob_list(own));
        check(own->doc && any && !strcmp(own->doc, any->doc));
        check(help && strstr(help, own->doc) && strstr(help, part));
        back(sk_print(&arena, "%s=%s", key, part));
    }
}

static void every_knob(void)
{
    for (const sk_optim *const *o = sk_optim_parts; *o; o++)
        each_knob("optim.name", (*o)->name, (*o)->knobs);
    for (const sk_lr *const *r = sk_lr_parts; *r; r++)
        each_knob("optim.schedule", (*r)->name, (*r)->knobs);
}

static void words(void)
{
    check(!load("train.steps=5 --train.batch=64k --optim.lr 3e-4 --data.order sequential"));
    check(job.steps == 5 && job.batch == 64000 && job.lr == 3e-4);
    same(job.data_order, "sequential");
    check(!load("train.steps=5 train.steps=7") && job.steps == 7); /* the last word wins */
    check(!load("--resume -n 2") && !strcmp(job.resume, "auto") && job.ranks == 2);
    check(!load("--resume=runs/a") && !strcmp(job.resume, "runs/a"));
    check(!load("--no-resume --no-optim.clip resume=no") && !*job.resume && job.clip == 0);
    check(!load("train.time=2m") && job.time_limit == 120);
    check(!load("train.time=90s") && job.time_limit == 90);
    check(!load("ckpt.every=90s") && !job.ckpt_every.steps && job.ckpt_every.seconds == 90);
    check(!load("ckpt.every=1h ckpt.every=2k") && job.ckpt_every.steps == 2000);
    check(job.ckpt_every.seconds == 0);
    check(!load("ckpt.every=0") && !job.ckpt_every.steps && job.ckpt_every.seconds == 0);
    check(!load("--no-ckpt.every") && !job.ckpt_every.steps && job.ckpt_every.seconds == 0);
    refused(load("ckpt.every=soon"), SK_EUSAGE, "a time (90s, 10m, 1h) or a number of steps");
    refused(load("ckpt.every=-5m"), SK_EUSAGE, "ckpt.every is \"-5m\"");
    refused(load("ckpt.every=-1"), SK_EUSAGE, "ckpt.every is \"-1\"");
    check(!load("train.time=1.5h") && job.time_limit == 5400);
    check(!load("optim.betas=0.8,0.99") && knob("beta1") == 0.8 && knob("beta2") == 0.99);
    check(!load("train.dtype=bf16 train.seed=9007199254740993") && job.dtype == SK_BF16);
    check(job.seed == 9007199254740993u);
    check(!load("layout=dp=2~tp=2~zero=3~order:~dp~tp") &&
          !strcmp(job.layout, "dp=2 tp=2 zero=3 order: dp tp"));
    refused(load("-- foo=1"), SK_EUSAGE, "unknown key \"foo\"");
    check(!load("here there --rank 3 -o csv --verbose -- --more"));
    check(rest.n_words == 3 && !strcmp(rest.words[0], "here") && !strcmp(rest.words[2], "--more"));
    same(sk_conf_option(&rest, "rank"), "3");
    same(sk_conf_option(&rest, "o"), "csv");
    same(sk_conf_option(&rest, "verbose"), "yes");
    check(!load("--rank=1 --rank=2 --no-verbose -ojson"));
    same(sk_conf_option(&rest, "rank"), "2");
    same(sk_conf_option(&rest, "o"), "json");
    same(sk_conf_option(&rest, "verbose"), "no");
    check(!sk_conf_option(&rest, "none"));
    check(!load("--help --nonsense") && rest.help);
    char *one[] = {sk_strdup(&arena, "train.steps=3")}, *lost[] = {sk_strdup(&arena, "lost")};
    check(!sk_conf_load(&arena, 1, one, &job, NULL) && job.steps == 3);
    refused(sk_conf_load(&arena, 1, lost, &job, NULL), SK_EUSAGE, "\"lost\" is no key=value");
}

static void bad_words(void)
{
    refused(load("train.stpes=5"), SK_EUSAGE,
            "unknown key \"train.stpes\" - did you mean \"train.steps\"?");
    refused(load("lr=5"), SK_EUSAGE, "did you mean \"optim.lr\"?");
    refused(load("--rnak 5"), SK_EUSAGE, "did you mean \"rank");
    refused(load("-x"), SK_EUSAGE, "unknown option \"-x\"");
    refused(load("--rank"), SK_EUSAGE, "needs a value");
    refused(load("--train.steps"), SK_EUSAGE, "needs a value");
    refused(load("-n"), SK_EUSAGE, "needs a value");
    refused(load("--verbose=3"), SK_EUSAGE, "takes no value");
    refused(load("--no-train.steps"), SK_EUSAGE, "cannot be turned off");
    refused(load("--no-such"), SK_EUSAGE, "unknown option \"such\"");
    refused(load("a.yaml b.yaml"), SK_EUSAGE, "two config files");
    refused(load("/no/such.yaml"), SK_EIO, "No such file");
    refused(load("data.train=\xff"), SK_EUSAGE, "not UTF-8");
    refused(load("model=nanno"), SK_EUSAGE, "did you mean \"nano\"?");
}

/* What other programs call it, with or without a section, and nearly so. */
static void hints(void)
{
    static const char *const pairs[][2] = {{"optim.learning_rate", "optim.lr"},
                                           {"learning_rate", "optim.lr"},
                                           {"optim.learning_rat", "optim.lr"},
                                           {"--learning-rate", "optim.lr"},
                                           {"train.lr", "optim.lr"},
                                           {"train.data", "data.train"},
                                           {"data.file", "data.train"},
                                           {"batch_size", "train.batch"},
                                           {"max_steps", "train.steps"},
                                           {"train.max_iters", "train.steps"},
                                           {"seq_len", "train.seq"},
                                           {"block_size", "train.seq"},
                                           {"n_layer", "model.num_hidden_layers"},
                                           {"d_model", "model.hidden_size"},
                                           {"output_dir", "run"},
                                           {"tensor-model-parallel-size", "layout=\"tp=4\""},
                                           {"rnak", "rank"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        refused(load(sk_print(&arena, "%s=2", pairs[i][0])), SK_EUSAGE,
                sk_print(&arena, "did you mean \"%s\"?", pairs[i][1]));
    check(load("frobnicate=3") == SK_EUSAGE && !strstr(sk_error_line(), "did you mean"));
}

/* One pair of brackets at most, and a number on both sides of a comma. */
static void lists(void)
{
    static const char *const good[] = {"0.5,0.75",     "[0.5, 0.75]",  "0.5 0.75",
                                       " [ 0.5 0.75]", "[0.5 ,0.75 ]", "0.5,\t0.75 "};
    static const char *const wrong[] = {
        "[[[0.5 0.75",  "[0.5, 0.75",  "0.5, 0.75]", "[[0.5, 0.75]]", "]0.5, 0.75[",
        "[0.5], 0.75",  "[0.5][0.75]", "0.5,,0.75",  ",0.5,0.75",     "0.5,0.75,",
        "[0.5, 0.75,]", "[]",          "0.5;0.75",   "[0.5 [0.75]]"};
    char *words[2];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        words[0] = sk_print(&arena, "optim.betas=%s", good[i]);
        check(!sk_conf_load(&arena, 1, words, &job, NULL) && knob("beta1") == 0.5 &&
              knob("beta2") == 0.75);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        words[0] = sk_print(&arena, "optim.betas=%s", wrong[i]);
        refused(sk_conf_load(&arena, 1, words, &job, NULL), SK_EUSAGE, "two numbers from 0");
    }
    words[0] = sk_strdup(&arena, "optim.betas=0.9, 0.99999999999");
    refused(sk_conf_load(&arena, 1, words, &job, NULL), SK_EUSAGE,
            "0.99999999999 is 1 in f32, in which optimizers compute; at most 0.99999997");
    words[0] = sk_strdup(&arena, "optim.betas=0.99999998 0.5");
    refused(sk_conf_load(&arena, 1, words, &job, NULL), SK_EUSAGE, "0.99999998 is 1 in f32");
    check(!load("optim.betas=0.9,0.99999997") && (float)knob("beta2") < 1);
    refused(file("optim: {groups: \"rest: lion betas=[0.9, 0.999999999]\"}"), SK_ECONF,
            "0.999999999 is 1 in f32");
    refused(load("optim.eps=1e-300"), SK_EUSAGE,
            "1e-300 is 0 in f32, in which optimizers compute; 0, or at least 1.2e-38, is needed");
    check(!load("optim.eps=1.2e-38") && !load("optim.eps=0"));
    refused(load("optim.name=adafactor optim.eps1=0"), SK_EUSAGE, "from 1e-18 to 1");
}

static void ranges(void)
{
    refused(load("train.steps=-1"), SK_EUSAGE,
            "train.steps is \"-1\"; a whole number from 0 to 1e+15 is needed");
    refused(load("train.steps=abc"), SK_EUSAGE, "train.steps is \"abc\"");
    refused(load("train.steps=1.5"), SK_EUSAGE, "a whole number");
    refused(load("train.steps=99999999999999999999"), SK_EUSAGE, "a whole number");
    refused(load("train.batch=-1"), SK_EUSAGE, "train.batch");
    refused(load("train.seed=-1"), SK_EUSAGE, "train.seed");
    refused(load("optim.clip=-0.5"), SK_EUSAGE,
            "optim.clip is \"-0.5\"; a number from 0 to 1000000000 is needed");
    refused(load("optim.ema=1"), SK_EUSAGE,
            "optim.ema is \"1\"; a number from 0 to below 1 is needed (decay of an average of the "
            "weights, for validation and export; 0: none)");
    refused(
        load("optim.betas=0.9,1"), SK_EUSAGE,
        "optim.betas is \"0.9,1\"; two numbers from 0 to below 1 are needed (decay rates of the "
        "two moments)");
    refused(load("optim.lr=nan"), SK_EUSAGE, "optim.lr");
    refused(load("optim.lr=1e999"), SK_EUSAGE, "optim.lr");
    refused(load("optim.lr="), SK_EUSAGE, "optim.lr");
    refused(load("optim.lr=1m"), SK_EUSAGE,
            "optim.lr is \"1m\"; a number from 0 to 1000000 is needed; units (k, m, g) are for "
            "counts and bytes");
    refused(load("optim.eps=0.1k"), SK_EUSAGE, "optim.eps is \"0.1k\"");
    refused(load("optim.clip=1GiB"), SK_EUSAGE, "units (k, m, g) are for counts");
    refused(load("optim.betas=0.0009k,0.9"), SK_EUSAGE, "units (k, m, g) are for counts");
    refused(load("train.time=1km"), SK_EUSAGE, "a time");
    refused(load("model.initializer_range=0.01m"), SK_EUSAGE, "a number without a unit is needed");
    check(!load("train.batch=1m train.time=1m budget=1g model.vocab_size=1k"));
    check(job.batch == 1000000 && job.time_limit == 60 && job.budget == 1000000000);
    refused(load("optim.betas=0.9"), SK_EUSAGE, "two numbers from 0 to below 1");
    refused(load("optim.betas=0.9,1"), SK_EUSAGE, "two numbers");
    refused(load("optim.betas=0.9,0.9,0.9"), SK_EUSAGE, "two numbers");
    lists();
    refused(load("data.val_fraction=1"), SK_EUSAGE, "from 0 to 0.9");
    refused(load("data.order=sorted"), SK_EUSAGE, "one of: shuffle sequential");
    refused(load("optim.schedule=cos"), SK_EUSAGE, "needed is one of: constant cosine");
    refused(load("optim.schedule="), SK_EUSAGE, "one of");
    refused(load("train.dtype=i32"), SK_EUSAGE, "f32 bf16 f16");
    check(!load("train.dtype=fp16") && job.dtype == SK_F16);
    check(!load("train.dtype=float16") && job.dtype == SK_F16);
    check(!load("train.dtype=half") && job.dtype == SK_F16);
    check(!load("train.dtype=bfloat16 optim.state=float32") && job.dtype == SK_BF16);
    check(!load("train.dtype=torch.bfloat16 optim.state=bfloat16") && job.state_dtype == SK_BF16);
    check(!load("optim.state=int8") && job.state_dtype == SK_U8);
    check(!load("optim.name=adam8bit") && job.state_dtype == SK_STATE_AUTO);
    check(load("optim.state=u8") && load("optim.state=f16") && load("train.dtype=auto"));
    check(!load("train.dtype=fp32") && job.dtype == SK_F32);
    refused(load("train.dtype=double"), SK_EUSAGE, "f32 bf16 f16");
    refused(load("train.time=2d"), SK_EUSAGE, "a time");
    refused(load("ranks=0"), SK_EUSAGE, "ranks");
    refused(load("train.micro_batch=13"), SK_ECONF, "more than train.batch, which is 12");
    refused(load("optim.min_lr=1"), SK_ECONF, "more than optim.lr");
    refused(load("train.seq=513"), SK_ECONF, "train.seq is 513, but the model has 512 positions");
    refused(load("data.train="), SK_ECONF, "data.train is empty");
    char *longest = sk_alloc(&arena, 9000);
    memset(longest, 'a', 8999);
    refused(load(sk_print(&arena, "run=%s", longest)), SK_EUSAGE, "at most 4095 fit");
    refused(load(sk_print(&arena, "layout=%s", longest)), SK_EUSAGE, "at most 4095 fit");
}

static void files(void)
{
    check(!file("# a comment\nmodel: nano-short\ntrain: {steps: 7, batch: 3, time: 1m}\n"
                "optim:\n  betas: [0.5, 0.75]\n  clip: off\n  schedule: \"linear\"\n"
                "data:\n  train: 'a file.txt'\nckpt.every: 5\nresume: yes\nlog:\n"));
    check(job.steps == 7 && job.batch == 3 && job.time_limit == 60 && job.hyper.hidden_size == 32);
    check(knob("beta1") == 0.5 && knob("beta2") == 0.75 && job.clip == 0);
    check(job.ckpt_every.steps == 5 && job.ckpt_every.seconds == 0);
    same(job.data_train, "a file.txt");
    same(job.resume, "auto");
    check(strstr(job.source, "/t.yaml") != NULL);
    check(!load(sk_print(&arena, "train.steps=9 %s/t.yaml model=nano", dir)));
    check(job.steps == 9 && job.batch == 3 && job.hyper.hidden_size == 64); /* words win */
    check(!file("layout:\n  - mesh dp=2 tp=2\n  - split b over dp\n"));
    same(job.layout, "mesh dp=2 tp=2\nsplit b over dp");
    check(!file("layout: |\n  mesh dp=2\n  split b over dp\n"));
    check(!strncmp(job.layout, "mesh dp=2\nsplit b over dp", 25));
    put("two.layout", "mesh dp=2\nsplit b over dp\n");
    check(!load(sk_print(&arena, "layout=%s/two.layout", dir)));
    same(job.layout, "mesh dp=2\nsplit b over dp");
    check(!file("") && job.steps == 200);
    check(!file("{\"train\": {\"steps\": 4}, \"data\": {\"val\": null}}") && job.steps == 4);
    check(!load(put("t.json", "{\"train\": {\"steps\": 6}}")) && job.steps == 6);
}

static void bad_files(void)
{
    refused(file("train:\n  steps: 5\n  stepps: 6\n"), SK_ECONF,
            "t.yaml:3:3: unknown key \"train.stepps\"");
    refused(file("train:\n  steps: many\n"), SK_ECONF, "t.yaml:2:10: train.steps is \"many\"");
    refused(file("train: 5\n"), SK_ECONF, "t.yaml:1:1: unknown key \"train\"");
    refused(file("train:\n  steps: 5\n  steps: 6\n"), SK_ECONF,
            "t.yaml:3:3: \"train.steps\" is given twice, first in line 2");
    refused(file("train: {steps: 5}\ntrain.steps: 6\n"), SK_ECONF, "given twice");
    refused(file("train: {steps: {a: 1}}"), SK_ECONF, "unknown key \"train.steps.a\"");
    refused(file("train: {steps: [1, [2]]}"), SK_ECONF, "a plain value is needed");
    refused(file("train: [1, 2]"), SK_ECONF, "unknown key \"train\"");
    refused(file("- a\n- b\n"), SK_ECONF, "keys with values");
    refused(file("just words"), SK_ECONF, "keys with values");
    refused(file("a: &x 1\ntrain.steps: *x"), SK_ECONF, "unknown key \"a\"");
    refused(file("train.steps: &x 4\ntrain.batch: *x"), SK_ECONF, "t.yaml:2:14: aliases");
    refused(file("train.steps: !!int 4"), SK_ECONF, "tags");
    refused(file("? [a, b]\n: 4"), SK_ECONF, "a plain value");
    refused(file("train: {steps: 5"), SK_ECONF, "not YAML");
    refused(file("train:\n\tsteps: 5"), SK_ECONF, "t.yaml:2:1: not YAML");
    refused(file("run: \"\xff\""), SK_ECONF, "not YAML");
    refused(file("run: \"a\\0b\""), SK_ECONF, "NUL");
    refused(file("train.steps: 1\n---\ntrain.steps: 2\n"), SK_ECONF, "a second document");
    sk_out deep = {.arena = &arena}, wide = {.arena = &arena};
    for (int i = 0; i < 5000; i++) sk_out_add(&deep, "{a: ");
    refused(file(deep.s), SK_ECONF, "over 16 levels");
    for (int i = 0; i < 1001; i++) sk_out_add(&wide, "model.a%d: 1\n", i);
    refused(file(wide.s), SK_ECONF, "over 1000 keys");
    while (wide.n < (1 << 20) + 1) sk_out_add(&wide, "# %s\n", "filling filling filling filling");
    refused(file(wide.s), SK_EDATA, "more than the 1048576 bytes");
    refused(load(sk_print(&arena, "%s/.yaml", dir)), SK_EIO, "No such file");
}

static void models(void)
{
    check(
        !file("model: {arch: tiny, n_embd: 48, num_hidden_layers: 3, n_head: 6, vocab_size: 1k}"));
    check(job.model == &tiny && job.hyper.hidden_size == 48 && job.hyper.num_hidden_layers == 3);
    check(job.hyper.num_key_value_heads == 6 && job.hyper.vocab_size == 1000 && job.seq == 128);
    same(job.hyper.arch, "tiny");
    check(!file("model:\n  preset: nano\n  hidden_size: 128\n  tie_word_embeddings: false\n"));
    check(job.hyper.intermediate_size == 512 && !job.hyper.tie_word_embeddings);
    check(!load("model.num_attention_heads=8") && job.hyper.num_key_value_heads == 8);
    check(!load("model.num_attention_heads=8 model.num_key_value_heads=4") &&
          job.hyper.num_key_value_heads == 4);
    check(!load("model.hidden_size=32 model.intermediate_size=256") &&
          job.hyper.intermediate_size == 256);
    check(!load("--no-model.tie_word_embeddings") && !job.hyper.tie_word_embeddings);
    check(
        !file("model: {arch: turn, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2}\n"
              "train.seq: 1000\n") &&
        job.model == &turn && job.hyper.rope_theta == 10000);
    check(!load(sk_print(&arena, "%s/t.yaml model=nano train.seq=8", dir)) && job.model == &tiny);
    refused(file("model: {arch: tinny}"), SK_ECONF, "did you mean \"tiny\"?");
    refused(file("model: {preset: nano, arch: turn}"), SK_ECONF, "the sizes are those of a tiny");
    refused(file("model: {preset: nano, hiden_size: 8}"), SK_ECONF,
            "t.yaml:1:23: unknown key \"model.hiden_size\" of a tiny - did you mean "
            "\"model.hidden_size\"?");
    refused(file("model: {preset: nano, n_embd: 8.5}"), SK_ECONF, "a whole number is needed");
    refused(file("model: {preset: nano, hidden_size: big}"), SK_ECONF, "a whole number is needed");
    refused(file("model: {preset: nano, hidden_size: -4}"), SK_ECONF, "hidden_size (n_embd) is -4");
    refused(file("model: {preset: nano, num_hidden_layers: 0}"), SK_ECONF,
            "num_hidden_layers (n_layer) is 0");
    refused(file("model: {preset: nano, hidden_size: 66}"), SK_ECONF,
            "a multiple of num_attention_heads");
    refused(file("model: {preset: nano, num_key_value_heads: 3}"), SK_ECONF,
            "num_key_value_heads, which is 3");
    check(!file("model: {preset: nano, num_key_value_heads: 0}")); /* as many as heads */
    refused(file("model: {preset: nano, dropout: 1}"), SK_ECONF, "embd_pdrop is 1");
    refused(file("model: {preset: nano, attn_pdrop: 0.1}"), SK_ECONF, "model.attn_pdrop=0");
    refused(file("model: {preset: nano, rope_theta: 5}"), SK_ECONF,
            "there is no \"model.rope_theta\"");
    refused(file("model: {preset: nano, hidden_act: xielu}"), SK_ECONF, "hidden_act is \"xielu\"");
    refused(file("model: {arch: tiny}"), SK_ECONF, "hidden_size (n_embd) is 0");
}

static void directories(void)
{
    put("config.json",
        "{\"model_type\": \"tiny\", \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 3,\n"
        "\"intermediate_size\": null, \"vocab_size\": 99, \"layer_norm_epsilon\": 1e-6,\n"
        "\"architectures\": [\"X\"], \"tie_word_embeddings\": true, \"eos_token_id\": 5}");
    check(!load(sk_print(&arena, "model=%s", dir)));
    check(job.model == &tiny && job.hyper.hidden_size == 24 && job.hyper.num_key_value_heads == 3);
    check(job.hyper.vocab_size == 99 && job.hyper.norm_eps == 1e-6 &&
          job.hyper.tie_word_embeddings);
    same(job.model_dir, dir);
    same(job.data_tokenizer, "none");
    const char *own = sk_print(&arena, "%s/tokenizer.json", dir); /* a dead link is there, too */
    check(!symlink("nowhere", own) && !load(sk_print(&arena, "model=%s", dir)) && !unlink(own));
    same(job.data_tokenizer, dir);
    put("tokenizer.json", "{}");
    check(!load(sk_print(&arena, "model=%s model.n_layer=1", dir)) &&
          job.hyper.num_hidden_layers == 1);
    same(job.data_tokenizer, dir);
    check(!load(sk_print(&arena, "model=%s data.tokenizer=byte", dir)));
    same(job.data_tokenizer, "byte");
    const char *m = sk_print(&arena, "model=%s", dir);
    put("config.json", "{\"model_type\": \"turn\", \"hidden_size\": 8, \"num_hidden_layers\": 1,"
                       "\"rope_parameters\": {\"rope_theta\": 5e5}}");
    check(!load(m) && job.hyper.rope_theta == 5e5);
    put("config.json", "{\"model_type\": \"turn\", \"rope_scaling\": {\"rope_type\": \"llama3\"}}");
    refused(load(m), SK_ECONF, "llama3");
    put("config.json", "{\"model_type\": \"turn\", \"hidden_size\": 8, \"num_attention_heads\": 2, "
                       "\"num_hidden_layers\": 1, \"head_dim\": 8}");
    check(!load(m) && job.hyper.head_dim == 8);
    put("config.json", "{\"model_type\": \"bert\"}");
    refused(load(m), SK_ECONF, "\"bert\" is none of the models");
    put("config.json", "{\"model_type\": ");
    refused(load(m), SK_EDATA, "not JSON");
    put("config.json", "[]");
    refused(load(m), SK_EDATA, "no mapping");
    refused(load("model=/"), SK_ECONF, "has no config.json");
}

/* A preset and a directory of one name: said how to mean each, and each can be meant. */
static void clashes(void)
{
    char before[4096];
    const char *sizes = "{\"model_type\": \"tiny\", \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 3}";
    check(getcwd(before, sizeof before) && !chdir(dir));
    check(!load("model=preset:nano") && job.hyper.hidden_size == 64 && !*job.model_dir);
    check(!mkdir("nano", 0700));
    refused(load("model=nano"), SK_EUSAGE, "model=./nano for the directory, or model=preset:nano");
    put("nano/config.yaml", "model: nano\n"); /* a run */
    check(!load("model=nano") && job.hyper.hidden_size == 64);
    put("nano/config.json", sizes);
    refused(load("model=nano"), SK_EUSAGE, "a directory of that name is here too");
    refused(file("model: nano\n"), SK_ECONF, "t.yaml:1:8: model \"nano\" is a preset, and a");
    check(!load("") && job.hyper.hidden_size == 64 && !*job.model_dir);
    check(!load("model.preset=nano") && job.hyper.hidden_size == 64);
    check(!load("model=preset:nano") && job.hyper.hidden_size == 64 && !*job.model_dir);
    same(job.model_name, "nano");
    check(!load("model=./nano") && job.hyper.hidden_size == 24);
    same(job.model_dir, "./nano");
    check(!rename("nano", "tiny") && !load("model=./tiny") && job.hyper.hidden_size == 24);
    refused(load("model=tiny"), SK_EUSAGE, "model=preset:tiny"); /* an architecture's name too */
    refused(load("model=preset:./tiny"), SK_EUSAGE, "is no preset");
    check(!unlink("tiny/config.json") && !unlink("tiny/config.yaml") && !rmdir("tiny"));
    check(!chdir(before));
}

/* A config.json pasted below `model:`, or given as the file: read as one of a directory is. */
static void pasted(void)
{
    static const char config[] =
        "{\n  \"architectures\": [\"X\"],\n  \"model_type\": \"turn\",\n  \"hidden_size\": 8,\n"
        "  \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"head_dim\": null,\n"
        "  \"eos_token_id\": [1, 2], \"torch_dtype\": \"bfloat16\", \"layer_types\": "
        "[\"full_attention\"],\n  \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0},\n"
        "  \"transformers_version\": \"5.0\"\n}\n";
    check(!file(sk_print(&arena, "train.seq: 8\nmodel: %s", config)) && job.model == &turn);
    check(job.hyper.hidden_size == 8 && job.hyper.rope_factor == 4 && !*job.model_dir);
    same(job.hyper.rope_type, "linear");
    const char *more = sk_print(&arena, "%s/t.yaml model.num_hidden_layers=3", dir);
    check(!load(more) && job.hyper.num_hidden_layers == 3 && job.hyper.hidden_size == 8);
    check(!file("model:\n  model_type: tiny\n  n_embd: 8\n  n_layer: 1\n  n_head: 2\n"
                "  use_cache: true\n  name: mine\n"));
    same(job.model_name, "mine");
    refused(file("model: {model_type: tiny, n_embd: 8, n_layer: 1, frob: 2}"), SK_ECONF,
            "t.yaml: skein does not know the key frob (2) of a tiny");
    refused(file("model: {model_type: bert, n_embd: 8}"), SK_ECONF, "model \"bert\"");
    refused(file("model:\n  \"model_type\": \"tiny\",\n  \"n_embd\": 8\n"), SK_ECONF,
            "with its braces");
    const char *path = put("paste.json", config);
    check(!load(path) && job.model == &turn && job.hyper.rope_factor == 4 && !*job.model_dir);
    refused(load(sk_print(&arena, "model=%s", path)), SK_EUSAGE, "is a file");
    put("model.safetensors", "");
    refused(load(path), SK_EUSAGE, sk_print(&arena, "use model=%s to train it", dir));
    check(!unlink(path) && !unlink(sk_print(&arena, "%s/model.safetensors", dir)));
}

/* What the model alone has: a key with a default, a range and help; config.yaml and config.json. */
static double own(int i) { return sk_field_number(&turn_own[i], &job.hyper); }
static void own_fields(void)
{
    static const char base[] =
        "model.arch=turn model.hidden_size=8 model.num_hidden_layers=1 model.num_attention_heads=2";
#define TURN(words) sk_print(&arena, "%s %s", base, words)
    const sk_model *m = NULL;
    sk_hyper h = {0};
    check(!load(base) && own(GEARS) == 3 && own(SLIP) == 0.5 && own(OILED) == 1);
    check(!load(TURN("model.num_gears=5 model.slip=0 --no-model.oiled")));
    check(own(GEARS) == 5 && own(SLIP) == 0 && own(OILED) == 0);
    const char *text = sk_hf_config_print(&arena, job.model, &job.hyper, SK_F32);
    check(strstr(text, "\"n_gears\": 5") && strstr(text, "\"slip\": 0.0") &&
          strstr(text, "\"oiled\": false"));
    put("config.json", text);
    check(!sk_hf_config(dir, &m, &h) && m == &turn);
    check(!memcmp(h.own, job.hyper.own, sizeof h.own));
    check(!load(TURN("model.n_gears=3")) && !job.hyper.own[GEARS].set); /* as if not said */
    back(base);
    back(TURN("model.num_gears=9 model.slip=-0.25"));
    refused(load(TURN("model.num_gears=10")), SK_ECONF,
            "num_gears (n_gears) is 10; needed is 1 to 9");
    refused(load(TURN("model.num_gears=2.5")), SK_EUSAGE, "a whole number is needed");
    refused(load(TURN("model.num_gear=2")), SK_EUSAGE, "did you mean \"model.num_gears\"?");
    refused(load("model=nano model.num_gears=5"), SK_EUSAGE,
            "there is no \"model.num_gears\" of a tiny");
    refused(file("model: {model_type: tiny, n_embd: 8, n_layer: 1, n_head: 1, slip: 1}"), SK_ECONF,
            "does not know the key slip");
    text = sk_conf_help_on(&arena, "model");
    check(strstr(text, "model.num_gears      wheels that mesh (turn 3)") != NULL);
}

/* A printed job loads back as the same job, byte by byte. */
static void back_at(int line, const char *words)
{
    sk_job was;
    check_at(line, !load(words), words);
    was = job;
    const char *text = sk_conf_print(&arena, &was);
    check_at(line, !file(text), "the printed job loads");
    memset(was.source, 0, sizeof was.source);
    memset(job.source, 0, sizeof job.source);
    was.layout_unsaid = job.layout_unsaid; /* what is printed is said */
    bool equal = !memcmp(&was, &job, sizeof job);
    check_at(line, equal, "and is the same");
    if (!equal) printf("%s", text);
}

static void round_trips(void)
{
    back("");
    back("-n 8 train.time=90 train.dtype=f16 --resume optim.lr=0.1234567890123456789");
    back("model=nano-short model.dropout=0.3333333333333333 optim.betas=0.1,0.9999999");
    back("model.num_key_value_heads=2 model.intermediate_size=7 model.initializer_range=1e-300");
    back("sample.prompt=\"quoted\"~\\back:~#~{x}~\t\x7f\x01 "
         "data.train=caf\xc3\xa9/\xe2\x80\xa8\xc2\x85\xf0\x9f\x98\x80");
    back("data.train=null data.val=~ run=5 data.tokenizer=- optim.name=yes");
    back("layout=mesh~dp=2~\nsplit~b~over~dp\n");
    back("ckpt.every=7");
    back("ckpt.every=0.3m");
    back("ckpt.every=0");
    back("train.seed=9000000000000000000 train.steps=1000000000000");
    back("model.weights=/some/where model.name=my~own");
    put("config.json", "{\"model_type\": \"tiny\", \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 3}");
    back(sk_print(&arena, "model=%s", dir));
}

static void helps(void)
{
    const char *help = sk_conf_help(&arena, options);
    check(strstr(help, "--rank") && strstr(help, "-o ") && strstr(help, "train.steps"));
    check(strstr(help, "adamw 0.001;") != NULL);
    size_t wide = 0;
    for (const char *p = help; *p;) {
        size_t n = strcspn(p, "\n");
        if (n > wide) wide = n;
        p += n + (p[n] != 0);
    }
    check(wide <= 100);
}

/* Keys that take a small language have examples in `skein help KEY`, and these are right. */
static void examples(void)
{
    const char *help = sk_conf_help_on(&arena, "optim.groups");
    int n = 0;
    check(!strstr(sk_conf_help(&arena, NULL), "vectors decay only")); /* not among all keys */
    for (const char *p = help; (p = strstr(p, "  optim.groups=\"")); n++) {
        p += strlen("  optim.groups=");
        const char *end = strchr(p + 1, '"') + 1;
        check(!file(sk_print(&arena, "optim: {groups: %.*s}", (int)(end - p), p)));
        check(job.n_groups >= 2);
    }
    check(n == 3);
    check(strstr(sk_conf_help_on(&arena, "train.backward"), "  diag_ggn_mc  ") != NULL);
}

int main(void)
{
    static const char *const names[] = {"t.yaml", "lamb.yaml",  "betas.yaml",  "all.yaml",
                                        "t.json", "two.layout", "config.json", "tokenizer.json"};
    if (!mkdtemp(dir)) return 2;
    defaults();
    optimizers();
    rest_of_matrices();
    schedules();
    without_effect();
    bad_groups();
    numbers_of_groups();
    groups_without_optimizer();
    defaults_of_base();
    every_knob();
    words();
    bad_words();
    hints();
    ranges();
    files();
    bad_files();
    models();
    clashes();
    pasted();
    directories();
    own_fields();
    round_trips();
    helps();
    examples();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(sk_print(&arena, "%s/%s", dir, names[i]));
    check(rmdir(dir) == 0);
    sk_arena_end(&arena);
    printf("conf: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
