/* eight_bits.c - optimizer state in blocks of 8 bits (tensor/q8_format.h), in the engine.
 *
 * 20 steps of adam8bit are within 1e-5 of a reference in double that encodes its moments in the
 * same way, block by block, by a search through all numbers.  State has n + 4 ceil(n / 256) bytes
 * for each shard of a tensor of 4,096 elements and more, and 4 n for others.  In canonical order a
 * layout has the bits of one rank, or is refused with a sentence.  Every optimizer with such state
 * follows the same with state of f32, on the CPU, on GPUs that are none, and on several ranks. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"

#include <math.h>

enum { STEPS = 20, LAST = 4, MOST_PARTS = 400, PART = 1024 };

/* ---- the reference */

/* What one call of the pass sees: a few whole blocks of a shard.  m and v as they are kept. */
typedef struct part {
    const real *at;
    int64_t n;
    double w[PART], m[PART], v[PART];
    bool tie[PART]; /* some state was so near to the middle of two codes that f32 may differ */
} part;

static part parts[MOST_PARTS];
static int n_parts;
static double numbers[2][256]; /* signed, unsigned */
static const sk_optim *adam8bit;

static void list_numbers(void)
{
    for (int k = 1; k < 128; k++) {
        numbers[0][k] = (double)sk_q8_magnitude(SK_Q8_SIGNED, k);
        numbers[0][256 - k] = -numbers[0][k];
    }
    numbers[0][128] = 1;
    for (int k = 0; k < 256; k++) numbers[1][k] = (double)sk_q8_magnitude(SK_Q8_UNSIGNED, k);
}

static double nearest(const double *map, double x, bool *tie)
{
    double best = 0, second = 9;
    for (int c = 1; c < 256; c++) {
        double off = fabs(map[c] - x);
        if (off < fabs(best - x)) second = fabs(best - x), best = map[c];
        else if (off < second) second = off;
    }
    *tie |= second - fabs(best - x) < 1e-4 * (second + fabs(best - x));
    if (map == numbers[1] && best == 0 && x > 0) best = map[1];
    return best;
}

static void encode(const double *map, double *x, bool *tie, int64_t n)
{
    for (int64_t at = 0; at < n; at += SK_Q8_BLOCK) {
        int64_t end = at + SK_Q8_BLOCK < n ? at + SK_Q8_BLOCK : n;
        double scale = 0;
        for (int64_t i = at; i < end; i++) scale = fabs(x[i]) > fabs(scale) ? x[i] : scale;
        for (int64_t i = at; i < end && scale != 0; i++)
            x[i] = scale * nearest(map, x[i] / scale, &tie[i]);
    }
}

static part *part_at(const sk_piece *p)
{
    int k = 0;
    while (k < n_parts && parts[k].at != p->param) k++;
    if (k == MOST_PARTS || p->n > PART) return NULL;
    if (k < n_parts) return &parts[k];
    part *x = &parts[n_parts++];
    *x = (part){.at = p->param, .n = p->n};
    for (int64_t i = 0; i < p->n; i++) x->w[i] = (double)p->param[i];
    return x;
}

static void reference(part *x, const sk_piece *p)
{
    double lr = (double)p->knob[0], b1 = (double)p->knob[1], b2 = (double)p->knob[2];
    double eps = (double)p->knob[3], decay = (double)p->knob[4], t = (double)p->step;
    for (int64_t i = 0; i < p->n; i++) {
        double g = (double)p->grad[i] * (double)p->scale;
        x->m[i] = b1 * x->m[i] + (1 - b1) * g;
        x->v[i] = b2 * x->v[i] + (1 - b2) * g * g;
        double root = sqrt(x->v[i] / (1 - pow(b2, t)));
        x->w[i] -= lr * decay * x->w[i] + lr * x->m[i] / (1 - pow(b1, t)) / (root + eps);
    }
    encode(numbers[0], x->m, x->tie, p->n);
    encode(numbers[1], x->v, x->tie, p->n);
}

static void beside(sk_piece *p)
{
    part *x = part_at(p);
    check(x && x->n == p->n);
    if (x) reference(x, p);
    adam8bit->pass[0](p);
}

static double worst;
static int64_t seen, ties;

static void compare(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    (void)t, (void)run, (void)p;
    for (int k = 0; k < n_parts && step + 1 == STEPS; k++)
        for (int64_t i = 0; i < parts[k].n; i++) {
            double off = fabs((double)parts[k].at[i] - parts[k].w[i]);
            seen++, ties += parts[k].tie[i];
            if (!parts[k].tie[i]) worst = fmax(worst, off);
        }
}

static void against_double(void)
{
    sk_optim twin = *(adam8bit = sk_optim_find("adam8bit"));
    twin.pass[0] = beside;
    sk_trial t = sk_trial_small("llama", "dp=1");
    t.own_optim = &twin;
    t.state_type = SK_STATE_AUTO;
    t.q8_least = 1;
    t.steps = STEPS;
    t.after = compare;
    list_numbers();
    check(!sk_trial_run(&t));
    printf("adam8bit: %lld weights after %d steps, worst error %.2g, %lld ties left out\n",
           (long long)seen, STEPS, worst, (long long)ties);
    check(seen > 9000 && worst < 1e-5 && ties * 100 < seen);
}

/* ---- bytes */

static sk_trial trial(const char *model, const char *optim, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.num_hidden_layers = 2;
    t.hyper.num_attention_heads = 4;
    t.hyper.num_key_value_heads = 4;
    t.hyper.hidden_size = 64;
    t.hyper.intermediate_size = 128;
    t.hyper.vocab_size = 96;
    t.optim = optim;
    t.state_type = SK_U8;
    t.clip = 1;
    sk_trial_groups(&t);
    return t;
}

static int64_t volume(const int64_t *size, int n)
{
    int64_t v = 1;
    for (int d = 0; d < n; d++) v *= size[d];
    return v;
}

/* State of all ranks; each buffer against the closed form. */
static int64_t state_bytes(sk_trial t, bool blocks)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0, small = 0, large = 0;
    int64_t sum = 0;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int r = 0; r < n; r++)
        for (int i = 0; i < p[r]->bufs.n; i++) {
            const sk_buffer *b = &p[r]->bufs.v[i];
            if (b->kind != SK_OPTIM || !b->zero) continue;
            int64_t here = volume(b->box.size, b->box.n), all = volume(b->box.full, b->box.n);
            bool coded = blocks && all >= SK_Q8_LEAST;
            check(b->bytes == (coded ? here + 4 * ((here + 255) / 256) : 4 * here));
            small += !coded, large += coded;
            sum += b->bytes;
        }
    check(small && (large || !blocks));
    sk_arena_end(&a);
    return sum;
}

static void bytes(void)
{
    static const char *const spread[] = {"", "dp=3 zero=1", "dp=2 zero=3 tp=2", "pp=2 dp=2 zero=2",
                                         "dp=2 offload=state"};
    for (size_t i = 0; i < sizeof spread / sizeof *spread; i++) {
        sk_trial t = trial("llama", "adam8bit", spread[i]), wide = t;
        t.state_type = SK_STATE_AUTO; /* int8 by itself; what is said wins */
        wide.state_type = SK_F32;
        check(3 * state_bytes(t, true) < state_bytes(wide, false));
        check(state_bytes(trial("llama", "adamw", spread[i]), true) == state_bytes(t, true));
    }
    sk_trial t = trial("llama", "adamw", "");
    t.state_type = SK_STATE_AUTO;
    state_bytes(t, false);
}

/* ---- layouts */

static const struct {
    const char *model, *layout;
    bool gpu;
} cases[] = {
    {"llama", "dp=2", false},
    {"llama", "dp=3 zero=1 micro=2", false},
    {"llama", "dp=2 zero=2 cp=2", false},
    {"llama", "dp=2 tp=2 zero=3", false},
    {"llama", "tp=2 sp", false},
    {"llama", "pp=2 dp=2 zero=3 micro=2", false},
    {"mixtral", "ep=2 dp=2 zero=2", false},
    {"llama", "dp=2 zero=1 offload=state", false},
    {"llama", "dp=2 zero=2", true},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static int same_bits(const char *optim)
{
    int same = 0;
    for (int i = 0; i < N_CASES; i++) {
        char text[100];
        snprintf(text, sizeof text, "%s; canonical order", cases[i].layout);
        sk_trial one = trial(cases[i].model, optim, "canonical order"), many = one;
        many.layout = text;
        one.gpu = many.gpu = cases[i].gpu;
        check(!sk_trial_run(&one));
        sk_status st = sk_trial_run(&many);
        if (st) fails(st, SK_ECONF, "with order=canonical no layout may cut a block of 256");
        else check(one.digest == many.digest && one.elements == many.elements);
        if (!st && one.digest != many.digest) printf("%s, %s: other bits\n", optim, text);
        same += !st;
    }
    return same;
}

static bool near(const sk_trial *a, const sk_trial *b, double limit)
{
    bool good = true;
    for (int s = 0; s < a->steps; s++) good &= fabs(a->loss[s] / b->loss[s] - 1) < limit;
    return good && isfinite(b->loss[a->steps - 1]);
}

static void follows(const char *optim)
{
    sk_trial wide = trial("llama", optim, "dp=1"), one = wide, gpu = wide, many = wide;
    wide.state_type = SK_F32;
    gpu.gpu = true;
    many.layout = "dp=2 tp=2 zero=2";
    wide.steps = one.steps = gpu.steps = many.steps = LAST + 1;
    check(!sk_trial_run(&wide) && !sk_trial_run(&one));
    check(!sk_trial_run(&gpu) && !sk_trial_run(&many));
    bool good = near(&wide, &one, 1e-2) && near(&one, &many, 3e-3) && near(&one, &gpu, 1e-3);
    if (!good)
        printf("%s: after %d steps f32 %.6g, int8 %.6g, 4 ranks %.6g, GPU %.6g\n", optim,
               wide.steps, wide.loss[LAST], one.loss[LAST], many.loss[LAST], gpu.loss[LAST]);
    /* Vectors are small, and state of whole matrices is f32: of Adafactor nothing is left. */
    bool coded = !sk_optim_find(optim)->every_matrix;
    if ((wide.digest == one.digest) == coded)
        printf("%s: state of 8 bits is %sthat of f32\n", optim, coded ? "" : "not ");
    check(good && (wide.digest != one.digest) == coded);
}

int main(void)
{
    sk_fake_gpu(0);
    sk_fake_nccl();
    against_double();
    bytes();
    for (const sk_optim *const *o = sk_optim_parts; *o; o++)
        if (!(*o)->average && !(*o)->sends)
            follows((*o)->name); /* state that is weights, or sent: refused */
    check(same_bits("adam8bit") >= 6);
    check(same_bits("lamb") >= 6); /* sums over tensors */
    printf("eight_bits: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
