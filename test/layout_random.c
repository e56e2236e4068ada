/* layout_random.c - any layout that type-checks gives the result of one rank.
 *
 * Random small models with sizes that do not divide, under random mixes of everything a layout can
 * say, on 1 to 16 ranks.  A pair of both must plan, verify, run, and match the same model on one
 * rank: in fast order every loss within 1e-5; in canonical order every loss, norm, weight and
 * number of the optimizer's state to the bit.  Where ranks keep one copy of the weights (replica),
 * every bit is that of the same ranks with copies of their own.
 *
 *     layout_random [--features] [SEED [COUNT]]     default: seed 1, 100 pairs
 *     layout_random --pair "MODEL" "LAYOUT"         one pair; both texts as they are printed here
 *
 * A pair that the compiler refuses with a story is counted apart, by kinds of stories.  Any other
 * end is a failure: it is made smaller while it still fails in the same way, and
 * printed as a --pair.  Each pair runs in a process of its own, so that one that crashes is
 * a failure like others.
 *
 * Which expert a token goes to is a comparison of two numbers, and in fast order they have
 * another last bit on another layout.  So there is no result to match where they are nearly equal.
 * Whether that is so is found out, not believed: losses of one rank that leave the
 * tolerance when the initial weights are off by 1e-6 of them are undecided, and such a pair must
 * match in canonical order instead. */
#include "lib/ranks.h"

#include "base/rng.h"
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 512 };

typedef struct pair {
    char model[TEXT], layout[TEXT];
} pair;

static uint64_t seed, number, drawn; /* of the run, of the pair, in the pair */

static int pick(int from, int to) /* both included */
{
    return from + (int)(sk_rng(seed, number, drawn++).a % (uint64_t)(to - from + 1));
}

static bool one_in(int n) { return pick(1, n) == 1; }

static void say(char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(char *text, const char *fmt, ...)
{
    va_list list;
    size_t n = strlen(text);
    va_start(list, fmt);
    vsnprintf(text + n, TEXT - n, fmt, list);
    va_end(list);
}

/* --- a model as text: "llama layers=2 keys=1 queries=3 f=17 tie=1 b=5 optim=lamb" --- */

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
    BITS,
    STATE,
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
    [BITS] = {"bits", 32},
    [STATE] = {"state", 32},
};

static bool has_experts(const sk_model *m)
{
    return !strcmp(m->name, "switch") || !strcmp(m->name, "mixtral");
}

static void set_sizes(sk_trial *t, const double *v)
{
    sk_hyper *h = &t->hyper;
    *h = t->model->usual;
    h->num_hidden_layers = (int64_t)v[LAYERS];
    h->num_key_value_heads = (int64_t)v[KEYS];
    h->num_attention_heads = (int64_t)(v[KEYS] * v[QUERIES]);
    h->hidden_size = h->num_attention_heads * (int64_t)v[WIDTH];
    h->intermediate_size = (int64_t)v[F];
    h->vocab_size = (int64_t)v[V];
    h->input_size = (int64_t)v[X];
    h->max_position_embeddings = 32;
    h->tie_word_embeddings = v[TIE] != 0;
    h->embd_pdrop = h->resid_pdrop = v[DROP];
    t->batch = (int64_t)v[B];
    t->seq = (int64_t)v[T];
    t->steps = (int)fmin(v[STEPS], SK_TEST_STEPS);
    t->threads = (int)v[THREADS];
    t->bucket_bytes = (int64_t)v[BUCKET];
    t->clip = v[CLIP];
    t->dtype = v[BITS] < 32 ? SK_BF16 : SK_F32;
    t->state_type = v[STATE] < 32 ? SK_BF16 : SK_F32;
    if (!has_experts(t->model)) return;
    h->num_local_experts = (int64_t)v[EXPERTS];
    h->num_experts_per_tok = (int64_t)v[CHOICES];
    h->expert_groups = (int64_t)v[GROUPS];
    h->n_shared_experts = (int64_t)v[SHARED];
    h->capacity_factor = v[ROOM];
    h->router_aux_loss_coef = v[BALANCE];
    h->router_bias_update_speed = v[SPEED];
}

static sk_status read_word(sk_trial *t, double *v, const char *word)
{
    const char *eq = strchr(word, '=');
    for (int k = 0; eq && k < N_KEYS; k++)
        if (!strncmp(word, keys[k].name, (size_t)(eq - word)) && !keys[k].name[eq - word] &&
            sk_read_real(eq + 1, &v[k]) && v[k] >= 0 && v[k] < 1e6)
            return SK_OK;
    if (!strncmp(word, "optim=", 6)) {
        const sk_optim *o = sk_optim_find(word + 6);
        t->optim = o ? o->name : NULL;
        return o ? SK_OK : sk_fail(SK_EUSAGE, "no optimizer is called '%s'", word + 6);
    }
    t->model = sk_model_find(word);
    return t->model ? SK_OK : sk_fail(SK_EUSAGE, "\"%s\" is no model and no key=number", word);
}

static sk_status read_model(const char *text, sk_trial *t)
{
    char copy[TEXT], *rest = copy;
    double v[N_KEYS];
    *t = (sk_trial){0};
    for (int k = 0; k < N_KEYS; k++) v[k] = keys[k].usual;
    snprintf(copy, sizeof copy, "%s", text);
    for (const char *w; (w = strsep(&rest, " "));)
        if (*w) SK_TRY(read_word(t, v, w));
    if (!t->model) return sk_fail(SK_EUSAGE, "\"%s\" names no model", text);
    set_sizes(t, v);
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

static void draw_model(pair *p)
{
    static const char *const archs[] = {"gpt2", "llama", "mlp", "switch", "mixtral", "llama"};
    static const char *const optims[] = {"adamw", "lamb", "sgd", "adamw"};
    int arch = pick(0, 5), n_keys = pick(1, 4);
    bool groups = !strcmp(archs[arch], "llama") || !strcmp(archs[arch], "mixtral");
    say(p->model, "%s", archs[arch]);
    put(p, LAYERS, pick(1, 4));
    put(p, KEYS, n_keys);
    put(p, QUERIES, groups ? pick(1, n_keys < 3 ? 3 : 1) : 1);
    put(p, WIDTH, 2 * pick(1, 3));
    put(p, F, pick(3, 33));
    put(p, V, pick(7, 37));
    put(p, X, pick(3, 23));
    put(p, TIE, pick(0, 1));
    put(p, DROP, one_in(4) ? 0.1 : 0);
    put(p, B, pick(1, 9));
    put(p, T, pick(1, 13));
    if (arch == 3 || arch == 4) draw_experts(p, arch == 4);
    put(p, STEPS, one_in(8) ? 10 : pick(3, 5));
    put(p, THREADS, pick(1, 2));
    put(p, BUCKET, one_in(2) ? 0 : pick(1, 40) * 100);
    put(p, CLIP, one_in(2) ? 1 : 0);
    put(p, BITS, one_in(6) ? 16 : 32);
    put(p, STATE, one_in(6) ? 16 : 32);
    say(p->model, " optim=%s", optims[pick(0, 3)]);
}

/* --- drawing a layout --- */

/* What an axis may be for.  Up to TENSOR there is a short word for it, with these letters. */
enum role { STAGES, BATCH, TIME, TOKENS, TENSOR, COLUMNS, BANK, N_ROLES };
enum { MOST_AXES = 4 };
static const struct {
    const char *name, *letters;
    int weight; /* how often it is drawn */
} roles[N_ROLES] = {
    [STAGES] = {"pp", "", 4},    [BATCH] = {"dp", "b", 5},      [TIME] = {"cp", "t", 3},
    [TOKENS] = {"ep", "b e", 2}, [TENSOR] = {"tp", "h f v", 5}, [COLUMNS] = {"col", "c", 1},
    [BANK] = {"bank", "e", 1},
};

typedef struct axis {
    enum role role;
    int size;
    int by; /* TIME: gather, exchange, ring */
    char name[8];
} axis;

typedef struct plan {
    axis axes[MOST_AXES];
    int n, shard; /* the axis that shards, or -1 */
    int level, micro, prefetch, chunks, overlap, slices;
    bool sp, replica, keep, balance, canonical;
    const sk_schedule *schedule; /* NULL: not said */
    const char *again;           /* what is made again; NULL: nothing */
} plan;

static const char *const ways[] = {"gather", "exchange", "ring"};

static int count_role(const plan *p, enum role role)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) n += p->axes[i].role == role;
    return n;
}

static enum role draw_role(void)
{
    int sum = 0;
    for (int r = 0; r < N_ROLES; r++) sum += roles[r].weight;
    int at = pick(1, sum), r = 0;
    while ((at -= roles[r].weight) > 0) r++;
    return (enum role)r;
}

/* Axes until the ranks are used up; an axis of one rank now and then. */
static void draw_axes(plan *p, int most)
{
    static const int sizes[] = {2, 2, 2, 2, 3, 3, 4, 1};
    int ranks = 1, want = pick(1, MOST_AXES);
    for (int tries = 0; tries < 12 && p->n < want; tries++) {
        axis a = {.role = draw_role(), .size = sizes[pick(0, 7)], .by = pick(0, 2)};
        int same = count_role(p, a.role);
        if (ranks * a.size > most || (a.role == STAGES && same) || same > 1) continue;
        snprintf(a.name, sizeof a.name, same ? "%s2" : "%s", roles[a.role].name);
        int at = pick(0, p->n);
        memmove(p->axes + at + 1, p->axes + at, sizeof a * (size_t)(p->n++ - at));
        p->axes[at] = a;
        ranks *= a.size;
    }
}

static void draw_shard(plan *p)
{
    p->shard = -1;
    for (int i = 0; i < p->n; i++) {
        bool batch = p->axes[i].role == BATCH || p->axes[i].role == TOKENS;
        bool odd = p->axes[i].role == TIME && one_in(4);
        if ((batch || odd) && (p->shard < 0 || one_in(2))) p->shard = i;
    }
    p->level = p->shard < 0 ? 0 : pick(0, 3);
    p->replica = (p->level == 1 || p->level == 2) && one_in(3);
    p->prefetch = p->level == 3 ? pick(0, 3) : 0;
    p->keep = p->level == 3 && one_in(3);
}

/* May stages update on their own? */
static bool may_part(const char *model, bool staged)
{
    bool tied = strstr(model, "tie=1") && strncmp(model, "mlp", 3) != 0;
    return !strstr(model, "lamb") && !(staged && tied);
}

static void draw_stages(plan *p, const char *model)
{
    int n = 0;
    bool staged = count_role(p, STAGES);
    if (staged || one_in(2)) p->micro = pick(1, 6);
    while (sk_schedule_parts[n]) n++;
    if (!staged && !one_in(8)) return;
    do p->schedule = sk_schedule_parts[pick(0, n - 1)];
    while (!strcmp(p->schedule->name, "file") || (p->schedule->apart && !may_part(model, staged)));
    if (staged && !p->schedule->chunks) p->chunks = pick(0, 3);
    p->balance = staged && one_in(3);
}

/* Can short words say it? */
static bool is_short(const plan *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->axes[i].role > TENSOR || count_role(p, p->axes[i].role) > 1) return false;
    return p->shard < 0 || p->axes[p->shard].role == BATCH;
}

static void say_short(const plan *p, char *to)
{
    for (int i = 0; i < p->n; i++) say(to, "%s=%d ", p->axes[i].name, p->axes[i].size);
    for (int i = 0; i < p->n; i++)
        if (p->axes[i].role == TIME && p->axes[i].by) say(to, "by=%s ", ways[p->axes[i].by]);
    if (p->level) say(to, "zero=%d ", p->level);
    if (p->micro) say(to, "micro=%d ", p->micro);
    if (p->schedule) say(to, "schedule=%s ", p->schedule->name);
    if (p->chunks) say(to, "chunks=%d ", p->chunks);
    if (p->prefetch) say(to, "prefetch=%d ", p->prefetch);
    if (p->overlap) say(to, "overlap=%d ", p->overlap);
    if (p->slices) say(to, "slices=%d ", p->slices);
    if (p->again) say(to, "recompute=%s ", p->again);
    say(to, "%s%s%s%s", p->sp ? "sp " : "", p->replica ? "replica " : "", p->keep ? "keep " : "",
        p->balance ? "balance " : "");
    say(to, "order:");
    for (int i = 0; i < p->n; i++) say(to, " %s", p->axes[i].name);
}

static void say_axis(const plan *p, const axis *a, char *to)
{
    if (a->role == STAGES) {
        say(to, "; stages over %s", a->name);
        if (p->schedule) say(to, " schedule %s", p->schedule->name);
        if (p->chunks) say(to, " chunks %d", p->chunks);
        if (p->micro) say(to, " micro %d", p->micro);
        if (p->balance) say(to, " balanced");
        return;
    }
    say(to, "; split %s%s over %s", roles[a->role].letters, a->role == TENSOR && p->sp ? " t" : "",
        a->name);
    if (a->role == TIME && a->by) say(to, " by %s", ways[a->by]);
}

static void say_long(const plan *p, char *to)
{
    static const char *const what[] = {"none", "state", "grads", "params"};
    say(to, "mesh");
    for (int i = 0; i < p->n; i++) say(to, " %s=%d", p->axes[i].name, p->axes[i].size);
    for (int i = 0; i < p->n; i++) say_axis(p, &p->axes[i], to);
    if (p->level) say(to, "; shard %s over %s", what[p->level], p->axes[p->shard].name);
    if (p->replica) say(to, "; one copy of weights per host");
    if (p->prefetch) say(to, "; gather weights %d ahead", p->prefetch);
    if (p->keep) say(to, "; keep gathered weights");
    if (p->overlap) say(to, "; overlap in %d turns", p->overlap);
    if (p->slices) say(to, "; results in %d slices", p->slices);
    if (p->again) say(to, "; recompute %s%s", p->again, *p->again < 'a' ? " blocks" : "");
    if (count_role(p, STAGES)) return;
    if (p->schedule) say(to, "; schedule %s", p->schedule->name);
    if (p->micro) say(to, "; micro %d", p->micro);
}

static const char canonical[] = "; canonical order";

static void draw_again(plan *p)
{
    static const char *const whats[] = {"full", "selective", "1", "2", "contract"};
    if (p->schedule && !strcmp(p->schedule->name, "pb")) return;
    if (one_in(3)) p->again = whats[pick(0, 4)];
    if (one_in(3)) p->slices = pick(1, 9);
}

/* Each of what a rank keeps stays, or goes to the host or a file. */
static bool draw_homes(const plan *l, char *to)
{
    int tier[SK_N_WARES];
    if (l->replica || !one_in(3)) return false;
    for (int w = 0; w < SK_N_WARES; w++) {
        tier[w] = pick(0, SK_N_TIERS - 1);
        if (tier[w]) say(to, "; offload %s to %s", sk_ware_names[w], sk_tier_names[tier[w]]);
    }
    bool own = l->schedule && l->schedule->apart;
    bool tiles = tier[SK_STATE] && tier[SK_PARAMS] && l->level < 3 && !own && one_in(2);
    if (tiles) say(to, "; weights in %d tiles", pick(2, 6));
    return tiles;
}

/* What ranks send each other in fewer bits. */
static bool draw_codecs(const plan *l, bool own, char *to)
{
    static const char *const names[] = {"f16", "bf16", "fp8", "int8", "int4"};
    bool weights = l->level == 3 && one_in(5), grads = one_in(8);
    grads &= l->level || count_role(l, BATCH) || count_role(l, TOKENS);
    if (weights) say(to, "; encode weights as %s", names[pick(0, 3)]);
    if (grads)
        say(to, "; encode gradients as %s%s", names[pick(0, 4)], one_in(2) ? " with feedback" : "");
    if (l->level == 3 && !own && l->axes[l->shard].size % 2 == 0 && one_in(4))
        say(to, "; second copy of weights over 2 ranks");
    return weights || grads;
}

static void draw_layout(pair *p)
{
    plan l = {0};
    draw_axes(&l, one_in(4) ? 16 : 8);
    draw_shard(&l);
    draw_stages(&l, p->model);
    bool own = l.schedule && l.schedule->apart;
    l.replica &= !own;
    l.sp = count_role(&l, TENSOR) && one_in(2);
    bool waits = count_role(&l, TENSOR) || count_role(&l, COLUMNS);
    l.overlap = waits && one_in(2) ? pick(1, 5) : 0;
    draw_again(&l);
    if (is_short(&l) && one_in(2)) say_short(&l, p->layout);
    else say_long(&l, p->layout);
    bool tiles = draw_homes(&l, p->layout), codes = draw_codecs(&l, own, p->layout);
    if (one_in(5)) say(p->layout, "; encode kept results");
    if (l.slices < 2 && !tiles && !codes && one_in(2) && !own && !strstr(p->model, "bits=16"))
        say(p->layout, "%s", canonical);
    if (waits && one_in(2)) say(p->layout, "; keep results in pieces");
    if (one_in(4)) say(p->layout, "; keep cheap results");
}

/* --- judging a pair --- */

typedef enum verdict { FINE, REFUSED, UNDECIDED, WRONG, FAILED, CRASHED, N_VERDICTS } verdict;
static const char *const verdicts[] = {"fine",  "refused", "undecided",
                                       "WRONG", "FAILED",  "CRASHED"};

typedef struct outcome {
    verdict verdict;
    char story[1000];
    double worst; /* relative difference of a loss */
    bool drops;
} outcome;

static void tell(outcome *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tell(outcome *o, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    vsnprintf(o->story, sizeof o->story, fmt, list);
    va_end(list);
}

static double apart(double a, double b)
{
    if (!isfinite(a) || !isfinite(b)) return INFINITY;
    return fabs(a - b) / fmax(1e-3, fmax(fabs(a), fabs(b)));
}

/* Numbers of 16 bits are rounded at other places when ranks meet; and a lot that falls otherwise
 * shows in the state. */
static bool near(const sk_trial *one, const sk_trial *many, outcome *o)
{
    bool codes = strstr(many->layout, "encode weights") || strstr(many->layout, "encode grad");
    double most = codes ? 5e-2 : one->dtype ? 3e-2 : one->state_type ? 3e-3 : 1e-5;
    double norm = codes ? 0.5 : one->dtype || one->state_type ? 0.2 : 1e-3;
    o->worst = apart(one->valid, many->valid);
    if (o->worst > most)
        tell(o, "validation: loss %.9g on one rank, %.9g on %d", one->valid, many->valid,
             many->n_ranks);
    for (int s = one->steps - 1; s >= 0; s--) {
        double loss = apart(one->loss[s], many->loss[s]);
        if (loss > most || apart(one->norm[s], many->norm[s]) > norm)
            tell(o, "step %d: loss %.9g on one rank, %.9g on %d; norm %.9g, %.9g", s, one->loss[s],
                 many->loss[s], many->n_ranks, one->norm[s], many->norm[s]);
        o->worst = fmax(o->worst, loss);
    }
    return !*o->story;
}

static bool same_bits(const sk_trial *a, const sk_trial *b, const char *what, outcome *o)
{
    for (int s = 0; s < a->steps; s++)
        if (a->loss[s] != b->loss[s] || a->norm[s] != b->norm[s]) {
            tell(o, "%s: other bits in step %d: loss %.17g, %.17g on %d; norm %.17g, %.17g", what,
                 s, a->loss[s], b->loss[s], b->n_ranks, a->norm[s], b->norm[s]);
            return false;
        }
    if (a->valid != b->valid)
        tell(o, "%s: other bits in validation: loss %.17g, %.17g on %d", what, a->valid, b->valid,
             b->n_ranks);
    else if (a->elements != b->elements)
        tell(o, "%s: %lld weights and states have an owner, %lld on %d", what,
             (long long)a->elements, (long long)b->elements, b->n_ranks);
    else if (a->digest != b->digest) tell(o, "%s: other bits in weights or state", what);
    return !*o->story;
}

/* Leave a sentence out of a layout, or a word. */
static void without(const char *layout, const char *words, char *out)
{
    const char *at = strstr(layout, words);
    snprintf(out, TEXT, "%.*s%s", (int)(at - layout), layout, at + strlen(words));
}

/* The same ranks with weights of their own. */
static bool replica_holds(const sk_trial *t, outcome *o)
{
    static const char *const said[] = {"replica ", "one copy of weights per host"};
    char text[TEXT];
    for (int i = 0; i < 2; i++) {
        if (!strstr(t->layout, said[i])) continue;
        sk_trial own = *t;
        without(t->layout, said[i], text);
        own.layout = text;
        if (sk_trial_run(&own)) tell(o, "without replica: %.900s", sk_error());
        return !*o->story && same_bits(&own, t, "without replica", o);
    }
    return true;
}

/* Stages that update on their own read other weights than one rank would: there the reference has
 * the stages, and nothing else. */
static const char *reference(const char *layout, bool in_order)
{
    static char text[TEXT];
    sk_layout l;
    if (in_order) return "dp=1; canonical order";
    if (sk_layout_read(layout, 0, &l) || !sk_schedule_find(l.schedule)->apart) return "dp=1";
    snprintf(text, sizeof text, "pp=%d micro=%d schedule=%s%s",
             l.stage_axis < 0 ? 1 : l.mesh.size[l.stage_axis], l.n_micro ? l.n_micro : 1,
             l.schedule, l.balance ? " balance" : "");
    return text;
}

static sk_trial alone(const sk_trial *t, bool in_order)
{
    sk_trial one = *t;
    one.layout = reference(t->layout, in_order);
    one.threads = 1;
    one.bucket_bytes = 0;
    return one;
}

/* Do losses of one rank leave the tolerance by as little as rounding? */
static bool sensitive(const sk_trial *one)
{
    for (int k = 0; k < 6; k++) {
        sk_trial off = *one;
        outcome o = {0};
        off.nudge = one->dtype ? 4e-3 : 1e-6;
        off.nudges = k;
        if (sk_trial_run(&off) || !near(one, &off, &o)) return true;
    }
    return false;
}

static bool holds_in_order(const sk_trial *t, outcome *o)
{
    char text[TEXT + sizeof canonical];
    sk_trial many = *t, one = alone(t, true);
    outcome again = {0};
    snprintf(text, sizeof text, "%s%s", t->layout, canonical);
    many.layout = text;
    if (sk_trial_run(&one) || sk_trial_run(&many)) {
        tell(o, "undecided in fast order, and in canonical order: %.900s", sk_error());
        return false;
    }
    if (same_bits(&one, &many, "undecided, so in canonical order", &again)) return true;
    *o = again;
    return false;
}

/* On one rank both orders are roundings of the same sums. */
static bool fast_agrees(const sk_trial *one, outcome *o)
{
    sk_trial fast = alone(one, false);
    if (has_experts(one->model) || (!sk_trial_run(&fast) && near(&fast, one, o))) return true;
    o->verdict = WRONG;
    if (!*o->story) tell(o, "on one rank, in fast order: %.900s", sk_error());
    return false;
}

static void compare(const sk_trial *t, bool in_order, outcome *o)
{
    sk_trial one = alone(t, in_order);
    if (sk_trial_run(&one)) {
        o->verdict = FAILED;
        tell(o, "on one rank: %.900s", sk_error());
        return;
    }
    o->drops = one.drops > 0;
    if (in_order && !fast_agrees(&one, o)) return;
    if (in_order ? same_bits(&one, t, "canonical order", o)
                 : near(&one, t, o) && replica_holds(t, o))
        return;
    o->verdict = WRONG;
    if (in_order || !has_experts(t->model) || !sensitive(&one)) return;
    bool own = strcmp(one.layout, "dp=1") || t->dtype ||
               strstr(t->layout, "slices"); /* canonical order cannot decide */
    if (!own && !holds_in_order(t, o)) return;
    o->verdict = UNDECIDED;
}

static void judge(const pair *p, double timeout_s, outcome *o)
{
    sk_trial t;
    sk_layout l;
    sk_status st = read_model(p->model, &t);
    t.layout = p->layout;
    t.timeout_s = timeout_s;
    if (!st) st = sk_layout_read(p->layout, 0, &l);
    if (!st) st = sk_trial_run(&t);
    if (!st) {
        compare(&t, l.canonical, o);
        return;
    }
    o->verdict = st == SK_ECONF || st == SK_EUSAGE ? REFUSED : FAILED;
    tell(o, "%.980s", o->verdict == REFUSED ? sk_error_line() : sk_error());
}

/* --- in a process of its own --- */

/* What a process that crashed said last. */
static void last_words(FILE *errors, int status, outcome *o)
{
    char said[800];
    rewind(errors);
    size_t n = fread(said, 1, sizeof said - 1, errors);
    said[n] = 0;
    o->verdict = CRASHED;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) tell(o, "does not end. %s", said);
    else if (WIFSIGNALED(status)) tell(o, "signal %d. %s", WTERMSIG(status), said);
    else tell(o, "exit code %d. %s", WEXITSTATUS(status), said);
}

static outcome try(const pair *p, double timeout_s)
{
    outcome *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FILE *errors = tmpfile();
    int status = -1;
    fflush(stdout);
    pid_t child = errors && shared != MAP_FAILED ? fork() : -1;
    if (child == 0) {
        dup2(fileno(errors), STDERR_FILENO);
        alarm((unsigned)(4 * timeout_s));
        judge(p, timeout_s, shared);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("layout_random: a process for a pair");
        exit(1);
    }
    if (status) last_words(errors, status, shared);
    outcome o = *shared;
    munmap(shared, sizeof *shared);
    fclose(errors);
    return o;
}

/* --- making a failure smaller --- */

typedef struct shrinker {
    pair best;
    verdict verdict;
    char kind[TEXT]; /* of its story, where that says more than numbers */
    time_t until;
    int tries;
} shrinker;

/* A story without its names and numbers: of which kind it is. */
static void kind_of(const char *story, char *out, size_t n)
{
    size_t at = 0;
    for (const char *s = story; *s && at + 4 < n; s++) {
        const char *end = *s == '\'' || *s == '"' ? strchr(s + 1, *s) : NULL;
        if (end) s = end, out[at++] = '*';
        else if (!isdigit((unsigned char)*s)) out[at++] = *s;
        else if (!at || out[at - 1] != '#') out[at++] = '#';
    }
    out[at] = 0;
}

static bool same_failure(const shrinker *s, const outcome *o)
{
    char kind[TEXT];
    kind_of(o->story, kind, sizeof kind);
    return o->verdict == s->verdict && (o->verdict == WRONG || !strcmp(kind, s->kind));
}

/* Does the pair fail in the same way with [from, to) of its text replaced?  Then keep it. */
static bool smaller(shrinker *s, bool layout, size_t from, size_t to, const char *with)
{
    pair p = s->best;
    char *text = layout ? p.layout : p.model;
    const char *old = layout ? s->best.layout : s->best.model;
    if (time(NULL) > s->until) return false;
    int n = snprintf(text, TEXT, "%.*s%s%s", (int)from, old, with, old + to);
    if (n >= TEXT) return false;
    outcome o = try(&p, 10);
    s->tries++;
    if (!same_failure(s, &o)) return false;
    s->best = p;
    return true;
}

/* A number: least first. */
static bool lower(shrinker *s, bool layout, size_t from, size_t to)
{
    const char *text = layout ? s->best.layout : s->best.model;
    if (!from || isalpha((unsigned char)text[from - 1]) || text[from - 1] == '.' || text[to] == '.')
        return false;
    int n = atoi(text + from), next[] = {1, n / 2, n - 1};
    for (int i = 0; i < 3; i++) {
        char with[16];
        snprintf(with, sizeof with, "%d", next[i]);
        if (next[i] >= 1 && next[i] < n && smaller(s, layout, from, to, with)) return true;
    }
    return false;
}

static bool shrink_text(shrinker *s, bool layout, const char *ends)
{
    bool any = false;
    for (size_t at = 0;;) {
        const char *text = layout ? s->best.layout : s->best.model;
        if (at >= strlen(text)) return any;
        size_t to = at + strcspn(text + at, ends);
        if (smaller(s, layout, at, text[to] ? to + 1 : to, "")) any = true;
        else at = text[to] ? to + 1 : to;
    }
}

static bool shrink_numbers(shrinker *s, bool layout)
{
    bool any = false;
    for (size_t at = 0;;) {
        const char *text = layout ? s->best.layout : s->best.model;
        at += strcspn(text + at, "0123456789");
        if (!text[at]) return any;
        size_t to = at + strspn(text + at, "0123456789");
        if (lower(s, layout, at, to)) any = true;
        else at = to;
    }
}

static void trim(char *text)
{
    size_t n = strlen(text);
    while (n && strchr(" ;", text[n - 1])) text[--n] = 0;
}

static void shrink(pair *p, const outcome *o)
{
    shrinker s = {.best = *p, .verdict = o->verdict, .until = time(NULL) + 120};
    kind_of(o->story, s.kind, sizeof s.kind);
    for (bool any = true; any;) {
        any = shrink_text(&s, true, ";");
        for (int layout = 1; layout >= 0; layout--) {
            any |= shrink_text(&s, layout, " ");
            any |= shrink_numbers(&s, layout);
        }
    }
    printf("  after %d smaller ones:\n", s.tries);
    *p = s.best;
    trim(p->model);
    trim(p->layout);
}

static void show(const pair *p, const outcome *o)
{
    printf("%s: %s\n  layout_random --pair \"%s\" \"%s\"\n", verdicts[o->verdict], o->story,
           p->model, p->layout);
}

/* --- counting --- */

typedef struct tally {
    char name[200];
    int n;
    pair first;
} tally;

typedef struct counts {
    tally v[400];
    int n;
} counts;

static void count(counts *c, const char *name, const pair *p)
{
    int i = 0;
    while (i < c->n && strcmp(c->v[i].name, name)) i++;
    if (i == (int)(sizeof c->v / sizeof *c->v)) return;
    if (i == c->n) {
        snprintf(c->v[i].name, sizeof c->v[i].name, "%s", name);
        c->v[c->n++].first = *p;
    }
    c->v[i].n++;
}

static void count_f(counts *c, const pair *p, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void count_f(counts *c, const pair *p, const char *fmt, ...)
{
    char name[64];
    va_list list;
    va_start(list, fmt);
    vsnprintf(name, sizeof name, fmt, list);
    va_end(list);
    count(c, name, p);
}

static void axis_features(counts *c, const pair *p, const sk_layout *l)
{
    int times = 0, batches = 0, split = 0;
    for (int a = 0; a < l->mesh.n; a++) {
        if (l->mesh.size[a] == 1) continue;
        count_f(c, p, "split %s", a == l->stage_axis ? "layers" : l->split[a]);
        if (l->split[a][0] == 't') times++, count_f(c, p, "by %s", ways[l->by[a]]);
        batches += sk_layout_splits(l, a, 'b');
        split++;
    }
    count_f(c, p, "axes %d", split);
    if (times > 1) count(c, "two-level time", p);
    if (batches > 1) count(c, l->shard ? "two batch axes, sharded" : "two batch axes", p);
}

static void stage_features(counts *c, const pair *p, const sk_layout *l)
{
    if (l->n_micro) count_f(c, p, "micro %d", l->n_micro);
    if (l->stage_axis < 0 || l->mesh.size[l->stage_axis] == 1) return;
    count_f(c, p, "schedule %s", l->schedule);
    if (l->chunks) count_f(c, p, "chunks %d", l->chunks);
    if (l->balance) count(c, "balance", p);
}

static void expert_features(counts *c, const pair *p, const sk_trial *t, const outcome *o)
{
    const sk_hyper *h = &t->hyper;
    if (!has_experts(t->model)) return;
    count_f(c, p, "experts %d", (int)h->num_local_experts);
    count_f(c, p, "choices %d", (int)h->num_experts_per_tok);
    if (h->n_shared_experts) count(c, "shared experts", p);
    if (h->expert_groups) count(c, "two-level gates", p);
    if (h->router_bias_update_speed > 0) count(c, "biased router", p);
    if (o->drops) count(c, "drops", p);
}

static void model_features(counts *c, const pair *p, const sk_trial *t)
{
    const sk_hyper *h = &t->hyper;
    count(c, t->model->name, p);
    count(c, t->optim, p);
    count_f(c, p, "threads %d", t->threads);
    if (h->num_key_value_heads < h->num_attention_heads) count(c, "grouped keys", p);
    if (h->tie_word_embeddings) count(c, "tied", p);
    if (h->resid_pdrop > 0) count(c, "dropout", p);
    if (t->bucket_bytes) count(c, "small buckets", p);
    if (t->clip > 0) count(c, "clip", p);
    if (t->dtype) count(c, "bf16", p);
    if (t->state_type) count(c, "state of bf16", p);
}

static void features(counts *c, const pair *p, const outcome *o)
{
    sk_trial t;
    sk_layout l;
    if (read_model(p->model, &t) || sk_layout_read(p->layout, 0, &l)) return;
    model_features(c, p, &t);
    expert_features(c, p, &t, o);
    axis_features(c, p, &l);
    stage_features(c, p, &l);
    count_f(c, p, "ranks %d", sk_mesh_ranks(&l.mesh));
    count_f(c, p, "zero %d", (int)l.shard);
    count(c, strncmp(p->layout, "mesh", 4) ? "short form" : "long form", p);
    if (l.prefetch) count(c, "prefetch", p);
    if (l.keep) count(c, "keep", p);
    if (l.overlap > 1) count(c, "overlap", p);
    if (l.slices > 1) count(c, "slices", p);
    if (*l.again) count_f(c, p, "recompute %s%s", l.again, l.again_blocks ? ", some blocks" : "");
    if (l.replica) count(c, "replica", p);
    if (l.tiles) count(c, "tiles", p);
    if (l.gist) count(c, "gist", p);
    if (l.copy) count(c, "second copy", p);
    if (*l.weights_as) count_f(c, p, "weights as %s", l.weights_as);
    if (*l.grads_as) count_f(c, p, "grads as %s%s", l.grads_as, l.feedback ? ", feedback" : "");
    for (int w = 0; w < SK_N_WARES; w++)
        if (l.home[w]) count_f(c, p, "%s to %s", sk_ware_names[w], sk_tier_names[l.home[w]]);
    if (l.partition) count(c, "partition", p);
    if (l.keep_cheap) count(c, "cheap results kept", p);
    count(c, l.canonical ? "canonical order" : "fast order", p);
}

/* In one line, or a line each. */
static void show_counts(const counts *c, bool table)
{
    for (int i = 0; i < c->n && table; i++) printf("%6d  %s\n", c->v[i].n, c->v[i].name);
    for (int i = 0; i < c->n && !table; i++)
        printf("%s%s %d", i ? ", " : "features: ", c->v[i].name, c->v[i].n);
    printf("\n");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tally *)a)->name, ((const tally *)b)->name);
}

/* --- the whole --- */

static pair draw(uint64_t i)
{
    pair p = {0};
    number = i;
    drawn = 0;
    draw_model(&p);
    draw_layout(&p);
    return p;
}

static int run_pairs(int n, bool all_features)
{
    static counts seen, stories;
    int end[N_VERDICTS] = {0}, bad = 0;
    double worst = 0;
    for (int i = 0; i < n; i++) {
        pair p = draw((uint64_t)i);
        outcome o = try(&p, 60);
        char kind[200];
        end[o.verdict]++;
        if (o.verdict == FINE) features(&seen, &p, &o), worst = fmax(worst, o.worst);
        kind_of(o.story, kind, sizeof kind);
        if (o.verdict == REFUSED) count(&stories, kind, &p);
        if (o.verdict <= UNDECIDED) continue;
        show(&p, &o);
        if (bad++ < 8) shrink(&p, &o), o = try(&p, 10), show(&p, &o);
    }
    for (int i = 0; i < stories.n; i++)
        printf("refused %d times: %s\n  layout_random --pair \"%s\" \"%s\"\n", stories.v[i].n,
               stories.v[i].name, stories.v[i].first.model, stories.v[i].first.layout);
    qsort(seen.v, (size_t)seen.n, sizeof *seen.v, by_name);
    show_counts(&seen, all_features);
    printf("layouts: %d random pairs (seed %llu), %d features, worst difference of a loss %.1e, "
           "%d refused with %d kinds of stories, %d undecided, %d bad\n",
           n, (unsigned long long)seed, seen.n, worst, end[REFUSED], stories.n, end[UNDECIDED],
           bad);
    return bad || end[REFUSED] > n / 4 || end[UNDECIDED] > n / 20;
}

static int run_one(const char *model, const char *layout)
{
    pair p = {0};
    say(p.model, "%s", model);
    say(p.layout, "%s", layout);
    outcome o = try(&p, 60);
    show(&p, &o);
    return o.verdict > UNDECIDED;
}

int main(int argc, char **argv)
{
    bool all_features = argc > 1 && !strcmp(argv[1], "--features");
    int at = all_features ? 2 : 1;
    if (argc == 4 && !strcmp(argv[1], "--pair")) return run_one(argv[2], argv[3]);
    seed = argc > at ? strtoull(argv[at], NULL, 10) : 1;
    return run_pairs(argc > at + 1          ? atoi(argv[at + 1])
                     : getenv("SKEIN_LONG") ? 2000
                                            : 40,
                     all_features);
}
