/* one_file.c - a GPT trained by hand: no engine, no BLAS, one file, every gradient written out.
 *
 *   cc -O3 -march=native example/one_file.c -lm -o one_file
 *   ./one_file FILE.txt layers=2 heads=2 width=32 batch=4 seq=32 steps=10
 *
 * Read it from top to bottom and you have seen all that happens in a training step: bytes become
 * vectors, vectors pass through layers of attention and small networks, the last vector guesses
 * the next byte, the wrongness of the guess flows back through the same steps in reverse, and
 * AdamW moves every weight a little.  It is also the oracle of skein's tests: each step prints
 * "step loss grad_norm", and skein must print the same numbers from the same weights.
 *
 * The model is GPT-2's: learned positions, layer norm before each half of a layer, GELU in its
 * tanh form, and one matrix that is both the table of word vectors and the last layer ("tied").
 * Shapes stand in comments: B sequences, T positions, C numbers per position, H heads of
 * D = C / H numbers, V words, N = B T rows.  Arrays are row-major, the last letter runs fastest.
 * Numbers are float; -Dreal=double makes them all double, for check=1 and for exact references. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef real
#define real float
#endif

/* ---- What can be asked for: key=value on the command line ---- */

static double layers = 2, heads = 2, width = 32, vocab = 256, positions; /* positions 0: seq */
static double batch = 4, seq = 32, steps = 10, seed = 1, check;
static double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, clip = 1;
static double warmup, cosine; /* steps of linear rise; 1: then fall to 0 along a cosine */
static const char *weights, *save;

static const struct {
    const char *name;
    double *number;
    const char **text;
} keys[] = {{"layers", &layers, 0}, {"heads", &heads, 0},    {"width", &width, 0},
            {"vocab", &vocab, 0},   {"batch", &batch, 0},    {"positions", &positions, 0},
            {"seq", &seq, 0},       {"steps", &steps, 0},    {"seed", &seed, 0},
            {"lr", &lr, 0},         {"beta1", &beta1, 0},    {"beta2", &beta2, 0},
            {"eps", &eps, 0},       {"decay", &decay, 0},    {"clip", &clip, 0},
            {"warmup", &warmup, 0}, {"cosine", &cosine, 0},  {"check", &check, 0},
            {"save", 0, &save},     {"weights", 0, &weights}};
enum { N_KEYS = sizeof keys / sizeof *keys };

static size_t B, T, C, H, D, V, N, L; /* the same as sizes, set once */

static _Noreturn void die(const char *what, const char *which)
{
    fprintf(stderr, "one_file: %s: %s\n", which, what);
    exit(1);
}

static void *fresh(size_t n, size_t size) /* zeroed; lives until the end */
{
    void *p = calloc(n, size);
    if (!p) die("out of memory", "calloc");
    return p;
}

/* ---- Parameters: a table of named tensors, in Hugging Face's GPT-2 names ---- */

typedef struct tensor {
    char name[64];
    size_t dims[2], n;   /* dims[1] is 0 for a vector */
    real *w, *g, *m, *v; /* value, gradient, and AdamW's two running means */
} tensor;

enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, OUT_W, OUT_B, PER_L };
enum { WTE, WPE, LNF_W, LNF_B, FIRST_L };

static const struct {
    const char *name;
    size_t in, out; /* in units of C; a matrix is [in, out], so a layer is x w + b */
} shapes[PER_L] = {
    {"ln_1.weight", 1, 0},      {"ln_1.bias", 1, 0},          {"attn.c_attn.weight", 1, 3},
    {"attn.c_attn.bias", 3, 0}, {"attn.c_proj.weight", 1, 1}, {"attn.c_proj.bias", 1, 0},
    {"ln_2.weight", 1, 0},      {"ln_2.bias", 1, 0},          {"mlp.c_fc.weight", 1, 4},
    {"mlp.c_fc.bias", 4, 0},    {"mlp.c_proj.weight", 4, 1},  {"mlp.c_proj.bias", 1, 0}};

static tensor *params;
static size_t n_params;

static void shape(tensor *p, size_t rows, size_t cols)
{
    p->dims[0] = rows, p->dims[1] = cols;
    p->n = rows * (cols ? cols : 1);
    real *block = fresh(4 * p->n, sizeof *block);
    p->w = block, p->g = block + p->n, p->m = block + 2 * p->n, p->v = block + 3 * p->n;
}

static void make_params(void)
{
    static const char *const outer[] = {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"};
    n_params = FIRST_L + L * PER_L;
    params = fresh(n_params, sizeof *params);
    for (size_t i = 0; i < FIRST_L; i++) snprintf(params[i].name, 64, "transformer.%s", outer[i]);
    shape(&params[WTE], V, C);
    shape(&params[WPE], (size_t)positions, C);
    shape(&params[LNF_W], C, 0);
    shape(&params[LNF_B], C, 0);
    for (size_t i = FIRST_L; i < n_params; i++) {
        size_t l = (i - FIRST_L) / PER_L, k = (i - FIRST_L) % PER_L;
        snprintf(params[i].name, 64, "transformer.h.%zu.%s", l, shapes[k].name);
        shape(&params[i], shapes[k].in * C, shapes[k].out * C);
    }
}

/* A counter-based generator: the number depends on (stream, i) alone, so nothing has to be kept
 * and any element can be drawn first.  SplitMix64's mixer twice, then Box and Muller's normal. */
static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double normal(uint64_t stream, uint64_t i)
{
    uint64_t key = mix(mix((uint64_t)seed) + stream);
    double u = ((double)(mix(key ^ mix(2 * i)) >> 11) + 1) * 0x1p-53; /* in (0, 1] */
    double angle = (double)(mix(key ^ mix(2 * i + 1)) >> 11) * 0x1p-53 * 2 * M_PI;
    return sqrt(-2 * log(u)) * cos(angle);
}

/* GPT-2's start: matrices from N(0, 0.02), those that write to the residual stream smaller by
 * sqrt(2 L) as 2 L of them add up; norms start as the identity, biases at zero. */
static void init_params(void)
{
    for (size_t i = 0; i < n_params; i++) {
        tensor *p = &params[i];
        double std = strstr(p->name, "c_proj") ? 0.02 / sqrt(2.0 * layers) : 0.02;
        int gain = strstr(p->name, "ln_") && strstr(p->name, "weight");
        for (size_t j = 0; j < p->n; j++) p->w[j] = (real)(p->dims[1] ? std * normal(i, j) : gain);
    }
}

/* ---- model.safetensors: 8 bytes of length, a JSON header, then the numbers ---- */

/* Where the numbers of a tensor begin, from the header: "name":{"dtype":"F32",...,
 * "data_offsets":[from,to]}.  Older files leave out "transformer.". */
static size_t find_tensor(const char *json, const tensor *p)
{
    char quoted[72];
    snprintf(quoted, sizeof quoted, "\"%s\"", p->name);
    const char *at = strstr(json, quoted);
    if (!at) {
        snprintf(quoted, sizeof quoted, "\"%s\"", p->name + strlen("transformer."));
        at = strstr(json, quoted);
    }
    if (!at) die("not in the weights file", p->name);
    const char *end = strchr(at, '}'), *type = strstr(at, "\"F32\"");
    const char *offsets = strstr(at, "\"data_offsets\"");
    size_t from, to;
    if (!end || !type || type > end || !offsets || offsets > end) die("is not F32", p->name);
    if (sscanf(strchr(offsets, '['), "[%zu ,%zu", &from, &to) != 2 || to - from != 4 * p->n)
        die("has another size than asked for", p->name);
    return from;
}

static void load_params(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint64_t length = 0;
    if (!f || fread(&length, 8, 1, f) != 1 || length > 100000000) die("cannot read", path);
    char *json = fresh(length + 1, 1);
    if (fread(json, 1, length, f) != length) die("is cut short", path);
    for (size_t i = 0; i < n_params; i++) {
        tensor *p = &params[i];
        fseek(f, (long)(8 + length + find_tensor(json, p)), SEEK_SET);
        for (size_t j = 0; j < p->n; j++) {
            float x;
            if (fread(&x, 4, 1, f) != 1) die("is cut short", path);
            p->w[j] = x;
        }
    }
    free(json);
    fclose(f);
}

static void save_params(const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f) die("cannot write", path);
    char *json = fresh(n_params + 1, 256);
    size_t at = 0;
    uint64_t n = 0;
    for (size_t i = 0; i < n_params; at += 4 * params[i++].n) {
        const tensor *p = &params[i];
        char cols[24] = "";
        if (p->dims[1]) snprintf(cols, sizeof cols, ",%zu", p->dims[1]);
        n += (uint64_t)sprintf(
            json + n, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%zu%s],\"data_offsets\":[%zu,%zu]}",
            i ? ',' : '{', p->name, p->dims[0], cols, at, at + 4 * p->n);
    }
    n += (uint64_t)sprintf(json + n, "}");
    while (n % 8) json[n++] = ' '; /* the numbers begin at a multiple of 8 */
    fwrite(&n, 8, 1, f);
    fwrite(json, 1, n, f);
    for (size_t i = 0; i < n_params; i++)
        for (size_t j = 0; j < params[i].n; j++) {
            float x = (float)params[i].w[j];
            fwrite(&x, 4, 1, f);
        }
    if (fclose(f)) die("cannot write", path);
    free(json);
}

/* ---- Arithmetic on rows ---- */

static void axpy(real *y, real a, const real *x, size_t n) /* y += a x */
{
    for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

static real dot(const real *x, const real *y, size_t n) /* eight sums at once, as C keeps order */
{
    real s[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++) s[j] += x[i + j] * y[i + j];
    for (; i < n; i++) s[0] += x[i] * y[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* y[m,n] += a[m,k] b[k,n], where a(i,j) = a[i * ai + j * aj] may lie either way.  The plain triple
 * loop, except that the sums of a tile of 4 rows and 32 columns stay in registers. */
static void matmul(real *y, const real *a, size_t ai, size_t aj, const real *b, size_t m, size_t k,
                   size_t n)
{
    for (size_t r = 0; r < m; r += 4)
        for (size_t c = 0; c < n; c += 32) {
            if (r + 4 > m || c + 32 > n) { /* the ragged edge */
                size_t wide = n - c < 32 ? n - c : 32;
                for (size_t i = r; i < m && i < r + 4; i++)
                    for (size_t j = 0; j < k; j++)
                        axpy(y + i * n + c, a[i * ai + j * aj], b + j * n + c, wide);
                continue;
            }
            real sum[4][32] = {{0}};
            for (size_t j = 0; j < k; j++)
                for (size_t i = 0; i < 4; i++) {
                    real x = a[(r + i) * ai + j * aj];
                    for (size_t q = 0; q < 32; q++) sum[i][q] += x * b[j * n + c + q];
                }
            for (size_t i = 0; i < 4; i++) axpy(y + (r + i) * n + c, 1, sum[i], 32);
        }
}

/* y[m,n] += a[m,k] b[n,k]^T: turn b over first; that costs m times less than the product. */
static void matmul_turned(real *y, const real *a, const real *b, size_t m, size_t k, size_t n)
{
    real *bt = fresh(k * n, sizeof *bt); /* [k,n] */
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < k; j++) bt[j * n + i] = b[i * k + j];
    matmul(y, a, k, 1, bt, m, k, n);
    free(bt);
}

/* ---- The layers, each with its backward ----
 *
 * A backward takes dy, how much the loss would change with each number of y, and adds to dx and
 * to the gradients of its weights.  It adds, as a value used twice has two gradients. */

static void linear(real *y, const real *x, const tensor *w, const tensor *b, size_t rows)
{
    size_t in = w->dims[0], out = w->dims[1]; /* y[N,out] = x[N,in] w[in,out] + b[out] */
    for (size_t i = 0; i < rows; i++) memcpy(y + i * out, b->w, out * sizeof *y);
    matmul(y, x, in, 1, w->w, rows, in, out);
}

static void linear_back(real *dx, const real *dy, const real *x, tensor *w, tensor *b, size_t rows)
{
    size_t in = w->dims[0], out = w->dims[1];
    matmul_turned(dx, dy, w->w, rows, out, in); /* dx[N,in] += dy[N,out] w[in,out]^T */
    matmul(w->g, x, 1, in, dy, in, rows, out);  /* dw[in,out] += x[N,in]^T dy[N,out] */
    for (size_t i = 0; i < rows; i++) axpy(b->g, 1, dy + i * out, out);
}

/* Layer norm: every row of C numbers is moved to mean 0 and spread 1, then scaled and shifted. */
static void moments(const real *x, double *mean, double *rate)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < C; i++) sum += x[i];
    *mean = sum / (double)C;
    for (size_t i = 0; i < C; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *rate = 1 / sqrt(squares / (double)C + 1e-5);
}

static void norm(real *y, const real *x, const tensor *w, const tensor *b)
{
    for (size_t r = 0; r < N; r++, x += C, y += C) {
        double mean, rate;
        moments(x, &mean, &rate);
        for (size_t i = 0; i < C; i++) y[i] = (real)((x[i] - mean) * rate) * w->w[i] + b->w[i];
    }
}

/* With h = (x - mean) rate and g = dy w:  dx = rate (g - mean(g) - h mean(g h)). */
static void norm_back(real *dx, const real *dy, const real *x, tensor *w, tensor *b)
{
    for (size_t r = 0; r < N; r++, x += C, dx += C, dy += C) {
        double mean, rate, g = 0, gh = 0;
        moments(x, &mean, &rate);
        for (size_t i = 0; i < C; i++) {
            double h = (x[i] - mean) * rate;
            w->g[i] += (real)(dy[i] * h);
            b->g[i] += dy[i];
            g += dy[i] * w->w[i];
            gh += dy[i] * w->w[i] * h;
        }
        for (size_t i = 0; i < C; i++) {
            double h = (x[i] - mean) * rate;
            dx[i] += (real)(rate * (dy[i] * w->w[i] - g / (double)C - h * gh / (double)C));
        }
    }
}

/* Causal attention.  Position t asks with its query, every earlier position s answers with its
 * key, and t takes the mean of their values, weighted by a softmax over the answers:
 *   att[t,s] = softmax_s(q[t] . k[s] / sqrt(D)) for s <= t,   y[t] = sum_s att[t,s] v[s]
 * qkv[N,3C] holds q, k and v side by side, each H heads of D; att is [B,H,T,T]. */
static void attend(real *y, real *att, const real *qkv)
{
    double scale = 1 / sqrt((double)D);
    memset(y, 0, N * C * sizeof *y);
    for (size_t bh = 0; bh < B * H; bh++, att += T * T) {
        size_t first = bh / H * T, h = bh % H * D; /* row of this sequence, column of this head */
        for (size_t t = 0; t < T; t++) {
            const real *q = qkv + (first + t) * 3 * C + h, *k = qkv + first * 3 * C + C + h;
            real *a = att + t * T;
            double most = -INFINITY, sum = 0;
            for (size_t s = 0; s <= t; s++) {
                a[s] = (real)(scale * dot(q, k + s * 3 * C, D));
                if (a[s] > most) most = a[s];
            }
            for (size_t s = 0; s <= t; s++) sum += a[s] = (real)exp(a[s] - most);
            for (size_t s = 0; s <= t; s++) {
                a[s] = (real)(a[s] / sum);
                axpy(y + (first + t) * C + h, a[s], k + s * 3 * C + C, D);
            }
        }
    }
}

/* Through the mean (dv, da), the softmax (dz = a (da - sum a da)) and the product (dq, dk). */
static void attend_back(real *dqkv, const real *dy, const real *att, const real *qkv)
{
    double scale = 1 / sqrt((double)D);
    real *da = fresh(T, sizeof *da);
    for (size_t bh = 0; bh < B * H; bh++, att += T * T) {
        size_t first = bh / H * T, h = bh % H * D;
        const real *base = qkv + first * 3 * C + h;
        real *dbase = dqkv + first * 3 * C + h;
        for (size_t t = 0; t < T; t++) {
            const real *g = dy + (first + t) * C + h, *a = att + t * T;
            double mean = 0;
            for (size_t s = 0; s <= t; s++) {
                da[s] = dot(g, base + s * 3 * C + 2 * C, D);
                mean += a[s] * da[s];
                axpy(dbase + s * 3 * C + 2 * C, a[s], g, D);
            }
            for (size_t s = 0; s <= t; s++) {
                real dz = (real)(scale * a[s] * (da[s] - mean));
                axpy(dbase + t * 3 * C, dz, base + s * 3 * C + C, D);
                axpy(dbase + s * 3 * C + C, dz, base + t * 3 * C, D);
            }
        }
    }
    free(da);
}

/* GELU: x times about the chance that a normal number is below x, in GPT-2's tanh form. */
static double gelu_tanh(double x) { return tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }

static void gelu(real *y, const real *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = (real)(0.5 * x[i] * (1 + gelu_tanh(x[i])));
}

static void gelu_back(real *dx, const real *dy, const real *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v = x[i], t = gelu_tanh(v);
        double dt = (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * v * v);
        dx[i] += (real)(dy[i] * 0.5 * (1 + t + v * dt));
    }
}

/* ---- The model: what every layer keeps for its backward, forward, backward ---- */

typedef struct layer {
    real *x, *ln1, *qkv, *att, *y, *mid, *ln2, *fc, *act; /* mid: x after attention is added */
} layer;

static layer *acts;              /* L layers, and one more whose x is the output of the last */
static real *final, *logits;     /* [N,C], [N,V]; logits become their own gradient */
static size_t *tokens, *targets; /* [B,T] */

static void make_acts(void)
{
    acts = fresh(L + 1, sizeof *acts);
    for (size_t l = 0; l <= L; l++) {
        real **to[] = {&acts[l].x,   &acts[l].ln1, &acts[l].qkv, &acts[l].att, &acts[l].y,
                       &acts[l].mid, &acts[l].ln2, &acts[l].fc,  &acts[l].act};
        size_t row[] = {C, C, 3 * C, H * T, C, C, C, 4 * C, 4 * C};
        for (size_t i = 0; i < (l < L ? 9 : 1); i++) *to[i] = fresh(N * row[i], sizeof **to);
    }
    final = fresh(N * C, sizeof *final);
    logits = fresh(N * V, sizeof *logits);
    tokens = fresh(N, sizeof *tokens);
    targets = fresh(N, sizeof *targets);
}

/* Loss of a row: -log softmax(logits)[target].  Returns the mean over the N rows, and leaves in
 * logits the gradient of that mean: (softmax - one at the target) / N. */
static double cross_entropy(void)
{
    double loss = 0;
    for (size_t r = 0; r < N; r++) {
        real *z = logits + r * V;
        double most = -INFINITY, sum = 0;
        for (size_t i = 0; i < V; i++)
            if (z[i] > most) most = z[i];
        for (size_t i = 0; i < V; i++) sum += exp(z[i] - most);
        loss += log(sum) + most - z[targets[r]];
        for (size_t i = 0; i < V; i++)
            z[i] = (real)((exp(z[i] - most) / sum - (i == targets[r])) / (double)N);
    }
    return loss / (double)N;
}

static double forward(void)
{
    for (size_t r = 0; r < N; r++)
        for (size_t c = 0; c < C; c++)
            acts->x[r * C + c] = params[WTE].w[tokens[r] * C + c] + params[WPE].w[r % T * C + c];
    for (size_t l = 0; l < L; l++) {
        const tensor *p = params + FIRST_L + l * PER_L;
        layer *a = &acts[l];
        norm(a->ln1, a->x, &p[LN1_W], &p[LN1_B]);
        linear(a->qkv, a->ln1, &p[QKV_W], &p[QKV_B], N);
        attend(a->y, a->att, a->qkv);
        linear(a->mid, a->y, &p[PROJ_W], &p[PROJ_B], N);
        axpy(a->mid, 1, a->x, N * C); /* the residual stream: layers only ever add to it */
        norm(a->ln2, a->mid, &p[LN2_W], &p[LN2_B]);
        linear(a->fc, a->ln2, &p[FC_W], &p[FC_B], N);
        gelu(a->act, a->fc, N * 4 * C);
        linear(a[1].x, a->act, &p[OUT_W], &p[OUT_B], N);
        axpy(a[1].x, 1, a->mid, N * C);
    }
    norm(final, acts[L].x, &params[LNF_W], &params[LNF_B]);
    memset(logits, 0, N * V * sizeof *logits);
    matmul_turned(logits, final, params[WTE].w, N, C, V); /* [N,V] = final[N,C] wte[V,C]^T */
    return cross_entropy();
}

static real *zeros(real *x, size_t n) { return memset(x, 0, n * sizeof *x); }

/* forward() read backwards.  dx is the gradient of the residual stream; as every addition passes
 * its gradient to both sides, each half of a layer only adds its share to it. */
static void backward(void)
{
    static real *dx, *d1, *d4, *dfc; /* [N,C], [N,C], [N,4C] (also dqkv), [N,4C] */
    if (!dx)
        dx = fresh(10 * N * C, sizeof *dx), d1 = dx + N * C, d4 = d1 + N * C, dfc = d4 + 4 * N * C;
    tensor *wte = &params[WTE], *wpe = &params[WPE];
    for (size_t i = 0; i < n_params; i++) zeros(params[i].g, params[i].n);
    matmul(zeros(d1, N * C), logits, V, 1, wte->w, N, V, C); /* dfinal = dlogits wte */
    matmul(wte->g, logits, 1, V, final, V, N, C);            /* dwte += dlogits^T final */
    norm_back(zeros(dx, N * C), d1, acts[L].x, &params[LNF_W], &params[LNF_B]);
    for (size_t l = L; l-- > 0;) {
        tensor *p = params + FIRST_L + l * PER_L;
        const layer *a = &acts[l];
        linear_back(zeros(d4, 4 * N * C), dx, a->act, &p[OUT_W], &p[OUT_B], N);
        gelu_back(zeros(dfc, 4 * N * C), d4, a->fc, 4 * N * C);
        linear_back(zeros(d1, N * C), dfc, a->ln2, &p[FC_W], &p[FC_B], N);
        norm_back(dx, d1, a->mid, &p[LN2_W], &p[LN2_B]);
        linear_back(zeros(d1, N * C), dx, a->y, &p[PROJ_W], &p[PROJ_B], N);
        attend_back(zeros(d4, 3 * N * C), d1, a->att, a->qkv);
        linear_back(zeros(d1, N * C), d4, a->ln1, &p[QKV_W], &p[QKV_B], N);
        norm_back(dx, d1, a->x, &p[LN1_W], &p[LN1_B]);
    }
    for (size_t r = 0; r < N; r++) {
        axpy(wte->g + tokens[r] * C, 1, dx + r * C, C);
        axpy(wpe->g + r % T * C, 1, dx + r * C, C);
    }
}

/* ---- Learning ---- */

static double grad_norm(void) /* one length over all gradients together */
{
    double sum = 0;
    for (size_t i = 0; i < n_params; i++)
        for (size_t j = 0; j < params[i].n; j++) sum += (double)params[i].g[j] * params[i].g[j];
    return sqrt(sum);
}

static double rate_at(double step) /* step from 0 */
{
    if (step < warmup) return lr * (step + 1) / warmup;
    return cosine > 0 ? lr * 0.5 * (1 + cos(M_PI * (step - warmup) / (steps - warmup))) : lr;
}

/* AdamW (Loshchilov & Hutter 2019): m and v are running means of g and g^2, made unbiased by the
 * 1 - beta^step; decay pulls matrices towards 0, but not biases and norms. */
static void adamw(double step, double rate, double shrink)
{
    double bias1 = 1 - pow(beta1, step + 1), bias2 = 1 - pow(beta2, step + 1);
    for (size_t i = 0; i < n_params; i++) {
        tensor *p = &params[i];
        double keep = 1 - (p->dims[1] ? rate * decay : 0);
        for (size_t j = 0; j < p->n; j++) {
            double g = p->g[j] * shrink;
            double m = beta1 * p->m[j] + (1 - beta1) * g, v = beta2 * p->v[j] + (1 - beta2) * g * g;
            p->m[j] = (real)m, p->v[j] = (real)v;
            p->w[j] = (real)(p->w[j] * keep - rate * (m / bias1) / (sqrt(v / bias2) + eps));
        }
    }
}

/* Window k is bytes [k T, k T + T]; step s takes windows s B ... s B + B - 1, wrapping. */
static void take_batch(const unsigned char *text, size_t n_bytes, size_t step)
{
    size_t n_windows = (n_bytes - 1) / T;
    for (size_t r = 0; r < N; r++) {
        size_t at = (step * B + r / T) % n_windows * T + r % T;
        tokens[r] = text[at], targets[r] = text[at + 1];
        if (tokens[r] >= V || targets[r] >= V) die("a byte is not below vocab", "text");
    }
}

/* Is every gradient right?  Move a weight a little both ways and see what the loss does.  All
 * weights get noise first, as zero biases and small weights would hide mistakes. */
static int check_grads(void)
{
    int wrong = 0, is_double = sizeof(real) == 8;
    double step = is_double ? 1e-4 : 1e-2, limit = is_double ? 1e-6 : 2e-3;
    for (size_t i = 0; i < n_params; i++)
        for (size_t j = 0; j < params[i].n; j++)
            params[i].w[j] += (real)(0.2 * normal(n_params + i, j));
    forward();
    backward();
    for (size_t i = 0; i < n_params; i++) {
        tensor *p = &params[i];
        double most = 0, worst = 0;
        for (size_t j = 0; j < p->n; j++) most = fmax(most, fabs((double)p->g[j]));
        for (size_t k = 0; k < 8; k++) {
            real *w = &p->w[mix(k) % p->n], was = *w;
            double up = (*w = (real)(was + step), forward()), x = *w;
            double down = (*w = (real)(was - step), forward()), slope = (up - down) / (x - *w);
            *w = was;
            worst = fmax(worst, fabs(slope - (double)p->g[w - p->w]) / most);
        }
        wrong += !(worst < limit);
        printf("%-36s %9.2e %s\n", p->name, worst, worst < limit ? "ok" : "WRONG");
    }
    return wrong;
}

/* ---- The program ---- */

static void set_key(const char *arg)
{
    size_t n = strcspn(arg, "=");
    for (size_t i = 0; i < N_KEYS; i++) {
        if (!arg[n] || strlen(keys[i].name) != n || memcmp(arg, keys[i].name, n)) continue;
        if (keys[i].text) *keys[i].text = arg + n + 1;
        else *keys[i].number = strtod(arg + n + 1, NULL);
        return;
    }
    die("not a key=value that I know", arg);
}

static unsigned char *read_text(const char *path, size_t *n_bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) die("cannot read", path);
    fseek(f, 0, SEEK_END);
    *n_bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *text = fresh(*n_bytes + 1, 1);
    if (fread(text, 1, *n_bytes, f) != *n_bytes) die("cannot read", path);
    fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: one_file FILE.txt [key=value ...]\nkeys and what they are now:");
        for (size_t i = 0; i < N_KEYS; i++)
            if (keys[i].number) fprintf(stderr, " %s=%g", keys[i].name, *keys[i].number);
            else fprintf(stderr, " %s=PATH", keys[i].name);
        fprintf(stderr, "\n");
        return 64;
    }
    for (int i = 2; i < argc; i++) set_key(argv[i]);
    if (positions < seq) positions = seq;
    B = (size_t)batch, T = (size_t)seq, C = (size_t)width, H = (size_t)heads, V = (size_t)vocab;
    L = (size_t)layers, N = B * T;
    if (!B || !T || !C || !H || !V || C % H) die("must be positive, width a multiple", "heads");
    D = C / H;
    size_t n_bytes;
    static unsigned char *text; /* static, so that leak checkers see it to the end */
    text = read_text(argv[1], &n_bytes);
    if (n_bytes < T + 1) die("is shorter than seq + 1", argv[1]);
    make_params();
    make_acts();
    if (weights) load_params(weights);
    else init_params();
    if (save) save_params(save);
    take_batch(text, n_bytes, 0);
    if (check > 0) return check_grads() != 0;
    for (size_t step = 0; (double)step < steps; step++) {
        take_batch(text, n_bytes, step);
        double loss = forward();
        backward();
        double length = grad_norm(), shrink = clip > 0 && length > clip ? clip / length : 1;
        adamw((double)step, rate_at((double)step), shrink);
        printf("%zu %.9g %.9g\n", step + 1, loss, length);
        fflush(stdout);
    }
    return 0;
}
