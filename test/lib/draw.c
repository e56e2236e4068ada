/* draw.c - see draw.h. */
#include "lib/draw.h"

#include "base/strings.h"
#include "graph/extra.h"
#include "kernel/activation.h"
#include "layout/word.h"
#include "program/pipeline_schedule.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = SK_PAIR_TEXT };
typedef sk_pair pair;

static sk_dice dice;

static int pick(int from, int to) { return sk_dice_pick(&dice, from, to); }
static bool one_in(int n) { return sk_dice_one_in(&dice, n); }

static void say(char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(char *text, const char *fmt, ...)
{
    va_list list;
    size_t n = strlen(text);
    va_start(list, fmt);
    vsnprintf(text + n, TEXT - n, fmt, list);
    va_end(list);
}

/* --- a model as text --- */

/* Heads are keys * queries, the model's width is heads * width: so that any numbers fit. */
enum key {
    LAYERS,
    KEYS,
    QUERIES,
    WIDTH,
    F,
    V,
    X,
    TIE,
    DROP,
    HEAD,
    ACT,
    BIAS,
    OUT_BIAS,
    MLP_BIAS,
    ROPE,
    INVERSE,
    B,
    T,
    EXPERTS,
    CHOICES,
    GROUPS,
    SHARED,
    ROOM,
    BALANCE,
    SPEED,
    STEPS,
    THREADS,
    BUCKET,
    CLIP,
    STATE,
    SCALE,
    LATE,
    NOISE,
    ADASCALE,
    FUSE,
    DELAY,
    HOSTS,
    POSITIONS,
    CYCLE,
    EMA,
    SMOOTH,
    Z_LOSS,
    DECAY,
    EXTRAS,
    NORMS_BY,
    WORK,
    FIRST,
    ALL_KRON,
    N_KEYS
};
static const struct {
    const char *name;
    double usual; /* the least that makes a model */
} keys[N_KEYS] = {
    [LAYERS] = {"layers", 1},
    [KEYS] = {"keys", 1},
    [QUERIES] = {"queries", 1},
    [WIDTH] = {"width", 2},
    [F] = {"f", 4},
    [V] = {"v", 5},
    [X] = {"x", 3},
    [TIE] = {"tie", 0},
    [DROP] = {"drop", 0},
    [HEAD] = {"head", 0},
    [ACT] = {"act", 0},
    [BIAS] = {"bias", 0},
    [OUT_BIAS] = {"out_bias", 0},
    [MLP_BIAS] = {"mlp_bias", 0},
    [ROPE] = {"rope", 0}, /* 1: linear, 2: llama3 */
    [INVERSE] = {"inverse", 0},
    [B] = {"b", 1},
    [T] = {"t", 1},
    [EXPERTS] = {"experts", 2},
    [CHOICES] = {"choices", 1},
    [GROUPS] = {"groups", 0},
    [SHARED] = {"shared", 0},
    [ROOM] = {"room", 0},
    [BALANCE] = {"aux", 0},
    [SPEED] = {"speed", 0},
    [STEPS] = {"steps", 3},
    [THREADS] = {"threads", 1},
    [BUCKET] = {"bucket", 0},
    [CLIP] = {"clip", 0},
    [STATE] = {"state", 32},
    [SCALE] = {"scale", 1},
    [LATE] = {"late", 0},
    [NOISE] = {"noise", 0},
    [ADASCALE] = {"adascale", 0},
    [FUSE] = {"fuse", 0},
    [DELAY] = {"delay", 0},
    [HOSTS] = {"hosts", 1},
    [POSITIONS] = {"positions", 32},
    [EMA] = {"ema", 0},     /* decay of the average of weights */
    [CYCLE] = {"cycle", 0}, /* momentum of the first step, as a schedule sets it */
    [SMOOTH] = {"smooth", 0},
    [Z_LOSS] = {"z", 0},
    [DECAY] = {"layer_decay", 0},
    [EXTRAS] = {"extras", 0}, /* bits of sk_extra_kind */
    [NORMS_BY] = {"norms_by", 0},
    [WORK] = {"work", 0}, /* sk_matrix_work */
    [FIRST] = {"first", 0},
    [ALL_KRON] = {"all_kron", 0},
};

bool sk_model_routes(const sk_model *m)
{
    return sk_model_has(m, sk_hyper_field("num_local_experts"));
}

/* What a config.json may ask of a model beside its sizes; 0 leaves it as it usually is. */
static void set_options(sk_hyper *h, const double *v)
{
    static const char *const ropes[] = {"", "linear", "llama3"};
    const char *act = sk_activation_name((int)v[ACT]);
    h->head_dim = (int64_t)v[HEAD];
    if (act) snprintf(h->hidden_act, sizeof h->hidden_act, "%s", act);
    h->attention_bias |= v[BIAS] != 0;
    h->attention_out_bias |= v[OUT_BIAS] != 0;
    h->mlp_bias |= v[MLP_BIAS] != 0;
    h->scale_attn_by_inverse_layer_idx = v[INVERSE] != 0;
    snprintf(h->rope_type, sizeof h->rope_type, "%s", ropes[(int)v[ROPE] % 3]);
    h->rope_factor = 4;
    h->rope_low_freq_factor = 1;
    h->rope_high_freq_factor = 4;
    h->rope_original_positions = 8;
}

static void set_sizes(sk_trial *t, const double *v)
{
    sk_hyper *h = &t->hyper;
    sk_hyper said = *h; /* read_own */
    *h = t->model->usual;
    memcpy(h->own, said.own, sizeof h->own);
    h->num_hidden_layers = (int64_t)v[LAYERS];
    h->num_key_value_heads = (int64_t)v[KEYS];
    h->num_attention_heads = (int64_t)(v[KEYS] * v[QUERIES]);
    h->hidden_size = h->num_attention_heads * (int64_t)v[WIDTH];
    h->intermediate_size = (int64_t)v[F];
    h->vocab_size = (int64_t)v[V];
    h->input_size = (int64_t)v[X];
    h->max_position_embeddings = (int64_t)v[POSITIONS];
    h->tie_word_embeddings = v[TIE] != 0;
    h->embd_pdrop = h->resid_pdrop = v[DROP];
    set_options(h, v);
    t->batch = (int64_t)v[B];
    t->seq = (int64_t)v[T];
    t->steps = (int)fmin(v[STEPS], SK_TEST_STEPS);
    t->threads = (int)v[THREADS];
    t->bucket_bytes = (int64_t)v[BUCKET];
    t->clip = v[CLIP];
    t->loss_scale = v[SCALE];
    t->late = v[LATE] != 0;
    t->cycle = v[CYCLE];
    t->ema = v[EMA];
    t->smoothing = v[SMOOTH];
    t->z_loss = v[Z_LOSS];
    t->layer_decay = v[DECAY];
    t->noise = v[NOISE] != 0;
    t->adascale = t->noise ? v[ADASCALE] : 0;
    t->extras = (unsigned)v[EXTRAS];
    t->norms_by = (int)v[NORMS_BY];
    t->matrix_work = (sk_matrix_work)((int)v[WORK] % (SK_MATRIX_CUT + 1));
    t->first = v[FIRST] != 0;
    t->all_kron = v[ALL_KRON] != 0;
    t->fuse = v[FUSE] != 0;
    t->delay_us = (int)v[DELAY];
    t->hosts = (int)fmin(v[HOSTS], SK_TEST_RANKS);
    t->state_type = v[STATE] < 16 ? SK_U8 : v[STATE] < 32 ? SK_BF16 : SK_F32;
    t->q8_least = 1; /* models are small */
    if (!sk_model_routes(t->model)) return;
    h->num_local_experts = (int64_t)v[EXPERTS];
    h->num_experts_per_tok = (int64_t)v[CHOICES];
    h->expert_groups = (int64_t)v[GROUPS];
    h->n_shared_experts = (int64_t)v[SHARED];
    h->capacity_factor = v[ROOM];
    h->router_aux_loss_coef = v[BALANCE];
    h->router_bias_update_speed = v[SPEED];
}

static bool is_key(const char *name)
{
    for (int k = 0; k < N_KEYS; k++)
        if (!strcmp(keys[k].name, name)) return true;
    return false;
}

/* A number of the optimizer, which was named before. */
static bool read_knob(sk_trial *t, const char *word, size_t name, const char *value)
{
    const sk_optim *o = t->optim ? sk_optim_find(t->optim) : NULL;
    int n = 0;
    double x;
    while (t->knobs[n].name) n++;
    for (const sk_knob *k = o ? o->knobs : NULL; k && k->name; k++)
        if (n < SK_MAX_KNOB && !strncmp(word, k->name, name) && !k->name[name]) {
            if (!sk_read_real(value, &x) || !(x >= k->least && x <= k->most)) return false;
            t->knobs[n] = (struct sk_trial_knob){k->name, x};
            return true;
        }
    return false;
}

/* A size that this model alone has. */
static bool read_own(sk_trial *t, const char *word, size_t name, const char *value)
{
    double x;
    for (const sk_field *f = t->model ? t->model->own : NULL; f && f->name; f++)
        if (!strncmp(word, f->name, name) && !f->name[name])
            return sk_read_real(value, &x) && x >= f->least && x <= f->most &&
                   sk_field_set_number(f, &t->hyper, x);
    return false;
}

static bool read_number(double *v, const char *word, size_t name, const char *value)
{
    for (int k = 0; k < N_KEYS; k++)
        if (!strncmp(word, keys[k].name, name) && !keys[k].name[name])
            return sk_read_real(value, &v[k]) && v[k] >= 0 && v[k] < 1e6;
    return false;
}

static sk_status read_word(sk_trial *t, double *v, const char *word)
{
    const char *eq = strchr(word, '='), *value = eq ? eq + 1 : "";
    size_t name = eq ? (size_t)(eq - word) : strlen(word);
    const sk_model *m = eq ? NULL : sk_model_find(word);
    const sk_optim *o = strncmp(word, "optim=", 6) ? NULL : sk_optim_find(value);
    const sk_optim *matrix = strncmp(word, "matrix=", 7) ? NULL : sk_optim_find(value);
    bool dtype = !strncmp(word, "dtype=", 6), device = !strncmp(word, "device=", 7);
    if (m) t->model = m;
    else if (o) t->optim = o->name;
    else if (matrix) t->matrix = matrix->name;
    else if (device) t->gpu = !strcmp(value, "cuda");
    else if (!(dtype ? sk_dtype_find(value, &t->dtype)
                     : eq && (read_number(v, word, name, value) ||
                              read_knob(t, word, name, value) || read_own(t, word, name, value))))
        return sk_fail(SK_EUSAGE,
                       "\"%s\" is no model, optim=, matrix=, dtype=, device= or key=number", word);
    return SK_OK;
}

sk_status sk_pair_read(const sk_pair *p, sk_trial *t)
{
    char copy[TEXT], *rest = copy;
    double v[N_KEYS];
    *t = (sk_trial){.layout = p->layout};
    for (int k = 0; k < N_KEYS; k++) v[k] = keys[k].usual;
    snprintf(copy, sizeof copy, "%s", p->model);
    for (const char *w; (w = strsep(&rest, " "));)
        if (*w) SK_TRY(read_word(t, v, w));
    if (!t->model) return sk_fail(SK_EUSAGE, "\"%s\" names no model", p->model);
    set_sizes(t, v);
    sk_trial_groups(t);
    return SK_OK;
}

/* --- drawing a model --- */

static void put(pair *p, enum key k, double value)
{
    if (value != keys[k].usual) say(p->model, " %s=%g", keys[k].name, value);
}

static void draw_experts(pair *p, bool shares)
{
    static const double rooms[] = {0, 0, 0.5, 0.75, 1, 1.25, 4};
    int experts = pick(2, 5);
    put(p, EXPERTS, experts);
    put(p, CHOICES, pick(1, experts < 3 ? experts : 3));
    put(p, GROUPS, one_in(3) ? (experts % 2 ? experts : 2) : 0);
    put(p, SHARED, shares && one_in(3) ? pick(1, 3) : 0);
    put(p, ROOM, rooms[pick(0, 6)]);
    put(p, BALANCE, one_in(2) ? 0.5 : 0);
    put(p, SPEED, one_in(2) ? 0.03 : 0);
}

static int n_parts(const void *const *v)
{
    int n = 0;
    while (v[n]) n++;
    return n;
}
#define ANY(parts) (parts)[pick(0, n_parts((const void *const *)(parts)) - 1)]

/* Switches are off or on, intervals 2 or endless; of other numbers with a range a part, towards the
 * end that is 0.  Where steps come in kinds, some runs have all of them. */
static void draw_knobs(pair *p, const sk_optim *o)
{
    bool kinds = o->step_kind && one_in(2);
    for (const sk_knob *k = o->knobs; k->name; k++) {
        bool free = k->role != SK_KNOB_LR && k->least < k->most && !is_key(k->name);
        double part = k->least + (k->usual - k->least) * (one_in(2) ? 0.5 : 0.75);
        if (!free) continue;
        bool long_run = k->most > 1e5; /* an interval: some that end within the run, too */
        if (k->whole && kinds) say(p->model, " %s=%d", k->name, pick(2, 3));
        else if (k->whole && one_in(2))
            say(p->model, " %s=%g", k->name, long_run && one_in(2) ? 2 : k->most);
        else if (!k->whole && part > k->least && one_in(4)) say(p->model, " %s=%g", k->name, part);
    }
}

/* An optimizer for matrices.  Those whose ranks send momentum stand alone, which need not be
 * refused often. */
static void draw_group(pair *p, const sk_optim *rest)
{
    const sk_optim *o = ANY(sk_optim_parts);
    bool alone = o != rest && (o->sends || rest->sends);
    if (!alone || one_in(8)) say(p->model, " matrix=%s", o->name);
}

/* What it is computed in, on what and by what. */
static void draw_machine(pair *p)
{
    static const char *const dtypes[] = {"bf16", "f16"};
    const sk_optim *optim = ANY(sk_optim_parts);
    bool gpu = one_in(2), narrow = one_in(3);
    int dtype = pick(0, 1);
    put(p, THREADS, one_in(5) ? 2 : 1);
    put(p, BUCKET, one_in(2) ? 0 : pick(1, 40) * 100);
    put(p, CLIP, one_in(2) ? 1 : 0);
    put(p, STATE, one_in(5) ? (one_in(2) ? 16 : 8) : 32);
    if (narrow) say(p->model, " dtype=%s", dtypes[dtype]);
    put(p, SCALE, narrow && dtype ? 256 : 1);
    if (gpu) say(p->model, " device=cuda");
    put(p, FUSE, gpu && one_in(2));
    put(p, DELAY, gpu && one_in(4) ? 50 : 0);
    say(p->model, " optim=%s", optim->name);
    draw_knobs(p, optim);
    if (one_in(4)) draw_group(p, optim);
    put(p, CYCLE, one_in(4) ? 0.8 : 0);
    put(p, WORK, one_in(2) ? 0 : pick(1, SK_MATRIX_CUT));
}

static bool has(const sk_model *m, const char *field)
{
    return sk_model_has(m, sk_hyper_field(field));
}

static void draw_options(pair *p, const sk_model *m)
{
    put(p, HEAD, has(m, "head_dim") && one_in(4) ? 2 * pick(1, 4) : 0);
    put(p, ACT, has(m, "hidden_act") && one_in(2) ? pick(1, SK_N_ACTIVATIONS - 1) : 0);
    put(p, BIAS, has(m, "attention_bias") && one_in(2));
    put(p, OUT_BIAS, has(m, "attention_out_bias") && one_in(2));
    put(p, MLP_BIAS, has(m, "mlp_bias") && one_in(2));
    put(p, ROPE, has(m, "rope_type") && one_in(2) ? pick(1, 2) : 0);
    put(p, INVERSE, has(m, "scale_attn_by_inverse_layer_idx") && one_in(3));
}

/* The least, or a few more; of what is no whole number, the default. */
static void draw_own(pair *p, const sk_model *m)
{
    for (const sk_field *f = m->own; f && f->name; f++) {
        int more = (int)fmin(f->most - f->least, 3);
        bool free = f->kind != SK_FIELD_REAL && !is_key(f->name) && one_in(2);
        if (free && f->least < f->most) say(p->model, " %s=%g", f->name, f->least + pick(0, more));
    }
}

static void draw_model(pair *p, const sk_pair_most *most)
{
    const sk_model *m = ANY(sk_model_parts);
    int n_keys = pick(1, 4);
    bool groups = has(m, "num_key_value_heads");
    say(p->model, "%s", m->name);
    int layers = one_in(6) ? pick(1, most->layers) : pick(1, 4);
    put(p, LAYERS, !strcmp(m->name, "mlp") && layers > 8 ? 8 : layers);
    put(p, KEYS, n_keys);
    put(p, QUERIES, groups ? pick(1, n_keys < 3 ? 3 : 1) : 1);
    put(p, WIDTH, 2 * pick(1, 3));
    put(p, F, pick(3, 33));
    put(p, V, pick(7, 37));
    put(p, X, pick(3, 23));
    put(p, TIE, pick(0, 1));
    put(p, DROP, one_in(4) ? 0.1 : 0);
    draw_options(p, m);
    draw_own(p, m);
    put(p, B, one_in(4) ? pick(1, most->batch) : pick(1, 9));
    put(p, T, pick(1, 13));
    if (sk_model_routes(m)) draw_experts(p, strcmp(m->name, "switch") != 0);
    put(p, STEPS, one_in(8) ? 10 : pick(3, 5));
    draw_machine(p);
    put(p, HOSTS, most->piped && one_in(3) ? 1 << pick(1, 4) : 1);
}

/* --- drawing a layout --- */

/* What an axis may be for: the words of the table that make axes, and two that have no word. */
enum { MOST_AXES = 4, MOST_ROLES = 16 };
typedef struct role {
    const char *name, *letters; /* no letters: stages */
    int weight;                 /* how often it is drawn */
    bool word;
} role;

typedef struct axis {
    const role *role;
    int size;
    char name[SK_AXIS_NAME];
} axis;

typedef struct plan { /* a layout that grows */
    axis axes[MOST_AXES];
    int n;
    bool brief; /* axes are short words */
    char shorts[TEXT], sentences[TEXT];
    sk_layout layout; /* all of it */
    sk_word_ask ask;
    bool tied, sums; /* of the model: weights on several stages; an optimizer that needs sums */
    bool averages;   /* an optimizer that averages weights */
} plan;

static int all_roles(role to[MOST_ROLES])
{
    int n = 0;
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if ((*w)->kind == SK_WORD_AXIS && n < MOST_ROLES - 2)
            to[n++] = (role){(*w)->name, (*w)->letters, 4, true};
    to[n++] = (role){"col", "c", 1, false};
    to[n++] = (role){"bank", "e", 1, false};
    return n;
}

static int count_role(const plan *p, const role *r)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) n += p->axes[i].role == r;
    return n;
}

static const role *draw_role(const role *all, int n, bool stages)
{
    int sum = 0, r = 0;
    for (int i = 0; i < n; i++) sum += all[i].weight;
    for (int at = pick(1, sum); (at -= all[r].weight) > 0;) r++;
    while (stages && *all[r].letters) r = (r + 1) % n;
    return &all[r];
}

/* Axes until the ranks are used up; an axis of one rank now and then. */
static void draw_axes(plan *p, int most, const sk_pair_most *m)
{
    static const int sizes[] = {2, 2, 2, 2, 3, 3, 4, 1};
    static role all[MOST_ROLES];
    int n = all_roles(all), ranks = 1, want = pick(1, MOST_AXES);
    for (int tries = 0; tries < 12 && p->n < want; tries++) {
        axis a = {.role = draw_role(all, n, m->piped && !tries), .size = sizes[pick(0, 7)]};
        int same = count_role(p, a.role);
        bool stages = !*a.role->letters;
        if (stages && one_in(m->piped ? 1 : 3))
            a.size = pick(1, most < m->stages ? most : m->stages);
        if (ranks * a.size > most || (stages && same) || same > 1) continue;
        snprintf(a.name, sizeof a.name, same ? "%s.2" : "%s", a.role->name);
        int at = pick(0, p->n);
        memmove(p->axes + at + 1, p->axes + at, sizeof a * (size_t)(p->n++ - at));
        p->axes[at] = a;
        ranks *= a.size;
    }
}

/* Can short words say them? */
static bool is_short(const plan *p)
{
    for (int i = 0; i < p->n; i++)
        if (!p->axes[i].role->word || count_role(p, p->axes[i].role) > 1) return false;
    return true;
}

static void say_short(const plan *p, char *to)
{
    const sk_word *const *order = sk_word_parts;
    while ((*order)->kind != SK_WORD_ORDER) order++;
    for (int i = 0; i < p->n; i++) say(to, "%s=%d ", p->axes[i].name, p->axes[i].size);
    say(to, "%s%s", p->shorts, (*order)->name);
    for (int i = 0; i < p->n; i++) say(to, " %s", p->axes[i].name);
}

static void say_long(const plan *p, char *to)
{
    say(to, "mesh");
    for (int i = 0; i < p->n; i++) say(to, " %s=%d", p->axes[i].name, p->axes[i].size);
    for (int i = 0; i < p->n; i++) {
        const char *letters = p->axes[i].role->letters;
        if (*letters) say(to, "; split %s over %s", letters, p->axes[i].name);
        else say(to, "; stages over %s", p->axes[i].name);
    }
    if (*p->shorts) say(to, "; %s", p->shorts);
}

/* Updates without a flush are not for every model and optimizer: program/weight_stash.c. */
static bool may_part(const plan *p)
{
    return !p->sums && !p->averages && !(p->layout.stage_axis >= 0 && p->tied);
}

/* Is the text a layout that the model, the device and the schedule allow? */
static bool read_plan(plan *p, char *to)
{
    *to = 0;
    if (p->brief) say_short(p, to);
    else say_long(p, to);
    say(to, "%s", p->sentences);
    if (strlen(to) > TEXT - 8 || sk_layout_read(to, 0, &p->layout)) return false;
    const sk_schedule *s = sk_schedule_find(p->layout.schedule);
    p->ask.layout = &p->layout;
    p->ask.async = s->async;
    p->ask.stale = s->async && !strcmp(s->name, "pb");
    return !sk_layout_fits(&p->ask) && (!s->async || may_part(p));
}

/* A phrase of a word is kept if the layout is still one: so words that exclude each other need not
 * know it. */
static void draw_word(plan *p, const sk_word *w)
{
    char phrase[SK_WORD_TEXT] = "", text[TEXT];
    plan with = *p;
    if (w->kind == SK_WORD_AXIS || !sk_word_draw(w, &dice, &p->layout, phrase)) return;
    if (strchr(phrase, ' ')) say(with.sentences, "; %s", phrase);
    else say(with.shorts, "%s ", phrase);
    if (read_plan(&with, text)) *p = with;
}

/* Are there gradients of small batches?  Mostly, if so: program/grad_noise.c refuses the rest. */
static bool has_small_batches(const plan *p, const sk_layout *l)
{
    bool parts = l->n_micro > 1, sequences = false;
    for (int a = 0; a < l->mesh.n; a++) {
        if (l->mesh.size[a] == 1) continue;
        parts |= sk_layout_splits(l, a, 'b');
        sequences |= sk_layout_splits(l, a, 't');
    }
    bool apart = l->canonical || l->shard >= SK_SHARD_GRADS || l->stage_axis >= 0;
    return parts && !sequences && !p->ask.async && !l->home[SK_GRAD] && !*l->grads_as &&
           !(apart && p->tied);
}

/* The long form of all of it, as the printer writes it. */
static void as_printed(const plan *p, char *to)
{
    sk_arena a = {0};
    char *text = sk_layout_print(&a, &p->layout);
    size_t n = strlen(text);
    if (2 * n < TEXT) {
        *to = 0;
        for (char *line; (line = strsep(&text, "\n"));)
            if (*line) say(to, "%s%s", *to ? "; " : "", line);
    }
    sk_arena_end(&a);
}

/* Not within a step or beside the next: it needs sums of all ranks, or two gradients. */
static bool goes_alone(const sk_optim *o) { return o->pass[1] || o->perturb; }

/* What the backward pass tells; an exact diagonal takes a walk for each class of a sample, and
 * norms are made in a way of their own where no output needs gradients of samples. */
static double draw_extras(const sk_trial *t)
{
    const unsigned norms = 1u << SK_EXTRA_NORMS | 1u << SK_EXTRA_TOTALS;
    unsigned kinds = (unsigned)pick(1, (1 << SK_N_EXTRAS) - 1);
    if (one_in(2)) kinds &= norms | 1u << SK_EXTRA_KRON_A | 1u << SK_EXTRA_KRON_G;
    if (!kinds) kinds = norms;
    if (strcmp(t->model->name, "mlp") || t->hyper.vocab_size > 8) kinds &= ~(1u << SK_EXTRA_GGN);
    return kinds;
}

/* With replicas what the backward pass tells is refused. */
static bool any_sync(const sk_layout *l)
{
    bool any = false;
    for (int a = 0; a < l->mesh.n; a++) any |= *l->sync[a].name && l->mesh.size[a] > 1;
    return any;
}

static void draw_layout(pair *p, const sk_pair_most *most)
{
    const sk_word *words[SK_MOST_WORDS + 1];
    sk_trial t;
    plan l = {0};
    sk_assert(!sk_pair_read(p, &t));
    l.ask = (sk_word_ask){.gpu = t.gpu, .dtype = t.dtype};
    dice.blocks = (int)t.hyper.num_hidden_layers;
    l.tied = t.hyper.tie_word_embeddings && strcmp(t.model->name, "mlp") != 0;
    l.sums = goes_alone(sk_optim_find(t.optim));
    l.averages = sk_optim_find(t.optim)->average != 0;
    for (int i = 0; i < t.n_groups; i++) l.sums |= goes_alone(t.groups[i].optim);
    for (int i = 0; i < t.n_groups; i++) l.averages |= t.groups[i].optim->average != 0;
    draw_axes(&l, one_in(4) ? most->ranks : 8, most);
    l.brief = l.n && is_short(&l) && one_in(2);
    sk_assert(read_plan(&l, p->layout));
    sk_words_in_order(false, words);
    for (int i = 0; words[i]; i++) draw_word(&l, words[i]);
    read_plan(&l, p->layout);
    const sk_layout *x = &l.layout;
    put(p, LATE, x->home[SK_STATE] == SK_HOST && !l.sums && !l.ask.async && one_in(3));
    put(p, EMA, !l.averages && !l.ask.async && one_in(3) ? 0.75 : 0);
    bool noise = has_small_batches(&l, x) && one_in(2);
    put(p, NOISE, noise);
    if (one_in(4)) put(p, SMOOTH, 0.1);
    if (one_in(4)) put(p, Z_LOSS, 1e-2);
    if (one_in(4)) put(p, DECAY, 0.5);
    if (one_in(3)) as_printed(&l, p->layout);
    bool told = !l.ask.async && !x->home[SK_GRAD] && one_in(4) && !(any_sync(x) && !one_in(8));
    put(p, EXTRAS, told ? draw_extras(&t) : 0);
    put(p, NORMS_BY, told ? pick(0, SK_NORMS_BY_SAMPLES) : 0);
    put(p, ADASCALE, noise && t.batch > 1 && one_in(2) ? pick(2, (int)t.batch) : 0);
    put(p, FIRST, one_in(4));
    put(p, ALL_KRON, t.matrix && sk_optim_find(t.matrix)->factors);
}

/* A table of words with many more rows than a batch reads, of which ranks sum these rows alone, but
 * on GPUs; more often where some of the memory is elsewhere. */
static void draw_words(pair *p)
{
    sk_trial t;
    sk_layout l;
    sk_assert(!sk_pair_read(p, &t) && !sk_layout_read(p->layout, 0, &l));
    bool few = t.gpu || t.extras || t.hyper.tie_word_embeddings || !strcmp(t.model->name, "mlp");
    if (one_in(sk_layout_offloads(&l) ? 1 : 3) && !few) put(p, V, pick(100, 400));
}

/* --- the whole --- */

sk_pair sk_pair_draw(uint64_t run, uint64_t i, const sk_pair_most *most)
{
    pair p = {0};
    dice = (sk_dice){.seed = run, .number = i, .most = most->micro};
    draw_model(&p, most);
    draw_layout(&p, most);
    draw_words(&p);
    return p;
}

void sk_sentence_kind(const char *sentence, char *out, size_t n)
{
    size_t at = 0;
    for (const char *s = sentence; *s && at + 4 < n; s++) {
        const char *end = *s == '\'' || *s == '"' ? strchr(s + 1, *s) : NULL;
        if (end) s = end, out[at++] = '*';
        else if (!isdigit((unsigned char)*s)) out[at++] = *s;
        else if (!at || out[at - 1] != '#') out[at++] = '#';
    }
    out[at] = 0;
}
