/* codec.c - every codec on the shelf: sizes, what is lost at most, numbers that are not
 * finite, rows of any length, parts of a row alone; of codecs that draw, means; of codecs of whole
 * rows, that what is sent and what is not are the row to the bit. */
#include "coll/codec.h"
#include "lib/check.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 3 * SK_CODEC_RUN + 7 };

static float x[MOST], y[MOST];
static uint8_t code[8 * MOST + 64];

/* What may be lost of an element when `top` is the largest of its block. */
static double allowed(const sk_codec *c, double v, double top)
{
    v = fabs(v);
    if (!strcmp(c->name, "bf16")) return v * 0x1p-8 + 0x1p-133;
    if (!strcmp(c->name, "f16")) return v * 0x1p-11 + 0x1p-25;
    if (c->bits == 1) return v + top * (1 + 0x1p-7);
    double step = top * (1 + 0x1p-7) / (c->bits == 8 ? 127 : c->bits == 4 ? 7 : 1);
    if (c->encode_random) return step * (1 + 1e-6) + 1e-36;
    if (!strcmp(c->name, "fp8")) step = fmax(v / 8, top * (1 + 0x1p-7) / 448 * 0x1p-9);
    return step / 2 * (1 + 1e-6) + 1e-36; /* tiny blocks become zeros */
}

static double top_of(const sk_codec *c, int64_t i, int64_t n)
{
    double top = 0;
    int64_t from = i / c->block * c->block;
    for (int64_t k = from; k < from + c->block && k < n; k++) top = fmax(top, fabs((double)x[k]));
    return top;
}

static void read_x(const void *of, int64_t at, int64_t n, float *to)
{
    memcpy(to, (const float *)of + at, (size_t)n * sizeof *to);
}

static uint64_t drawn = 1; /* the step of random bits */

static sk_code_row row_of(int64_t n)
{
    uint64_t shared = sk_code_shared(1, 2, drawn);
    return (sk_code_row){.n = n,
                         .first = 1000,
                         .shared = shared,
                         .own = sk_code_own(shared, 1, 0),
                         .read = read_x,
                         .of = x};
}

static void there_and_back(const sk_codec *c, int64_t n)
{
    sk_code_row r = row_of(n);
    int64_t bytes = sk_codec_bytes(c, n);
    memset(code, 0xa5, sizeof code);
    for (int64_t i = 0; i < n; i++) y[i] = NAN;
    sk_encode(c, &r, code);
    check(code[bytes] == 0xa5 && code[bytes + 1] == 0xa5); /* not a byte more */
    sk_decode(c, &r, code, 0, n, y);
}

static void near_enough(const sk_codec *c, int64_t n, const char *what)
{
    int wrong = 0;
    there_and_back(c, n);
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)y[i] - (double)x[i]), may = allowed(c, x[i], top_of(c, i, n));
        if (off <= may) continue;
        if (!wrong++)
            printf("%s, %s: %g became %g, %g lost, %g may be\n", c->name, what, (double)x[i],
                   (double)y[i], off, may);
    }
    check(!wrong);
}

static float normal(uint64_t i)
{
    double sum = 0;
    for (uint64_t k = 0; k < 4; k++) sum += sk_rng_uniform(7, k, i) - 0.5;
    return (float)sum;
}

static void fill(float scale)
{
    for (int i = 0; i < MOST; i++) x[i] = scale * normal((uint64_t)i);
}

static void shapes(const sk_codec *c)
{
    static const int64_t lengths[] = {0,   1,   2,   3,   31,  32,   33,   127,  128,
                                      129, 255, 256, 257, 511, 1023, 1024, 1025, MOST};
    fill(1);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        near_enough(c, lengths[i], "normal numbers");
}

static void values(const sk_codec *c)
{
    bool small = !strcmp(c->name, "f16"); /* its range is */
    fill(0);
    near_enough(c, 300, "zeros");
    for (int64_t i = 0; i < 300; i++) check(y[i] == 0);
    for (int i = 0; i < MOST; i++) x[i] = -0.37F;
    near_enough(c, 300, "one number");
    fill(small ? 1e4F : 1e38F);
    near_enough(c, 999, "huge numbers");
    fill(small ? 1e-6F : 1e-30F);
    near_enough(c, 999, "tiny numbers");
    fill(1e-40F);
    near_enough(c, 999, "numbers next to nothing");
    fill(1e-3F);
    for (int i = 0; i < MOST; i += 50) x[i] = 10; /* some stand out */
    near_enough(c, 999, "few large numbers");
}

/* A step that blew up is still seen, and only its blocks are lost. */
static void not_finite(const sk_codec *c, float what)
{
    fill(1);
    x[3 * c->block / 2] = what;
    there_and_back(c, 4 * c->block);
    check(!isfinite(y[3 * c->block / 2]));
    for (int64_t i = 0; i < c->block; i++) check(isfinite(y[i]) && isfinite(y[3 * c->block + i]));
}

/* Also of codecs that send some elements of a row: one that is not finite is seen at any place, and
 * whether what is lost is owed or made up for. */
static void seen_anywhere(const char *text)
{
    static const float what[] = {NAN, INFINITY, -INFINITY};
    enum { N = 300 };
    sk_codec c;
    int unseen = 0;
    check(!sk_codec_read(text, &c));
    fill(1);
    for (int i = 0; i < 6 * N; i++) {
        float off = 0, was = x[i % N];
        sk_code_row r = row_of(N);
        r.upscale = i / N % 2;
        x[i % N] = what[i / N / 2];
        sk_encode(&c, &r, code);
        sk_decode(&c, &r, code, 0, N, y);
        for (int k = 0; k < N; k++) off += y[k] * 0;
        unseen += !isnan(off);
        x[i % N] = was;
    }
    if (unseen) printf("%s: %d of %d not seen\n", text, unseen, 6 * N);
    check(!unseen);
}

static void seen_by_all(void)
{
    char text[40];
    for (int i = 0; sk_codec_parts[i]; i++) {
        const sk_codec *c = sk_codec_parts[i];
        if (c->low_rank) continue;
        int n = snprintf(text, sizeof text, "%s", c->name);
        if (c->value_name) snprintf(text + n, sizeof text - (size_t)n, ":%g", c->value_usual);
        seen_anywhere(text);
    }
    seen_anywhere("randk:0.2");
    seen_anywhere("randk:1");
}

/* Any part of a row is decoded alone. */
static void parts(const sk_codec *c)
{
    static float part[MOST];
    sk_code_row r = row_of(MOST);
    for (int64_t at = 0; at < MOST; at += SK_CODEC_RUN) {
        int64_t n = MOST - at < SK_CODEC_RUN ? MOST - at : SK_CODEC_RUN;
        sk_decode(c, &r, code, at, n, part);
        check(!memcmp(part, y + at, (size_t)n * sizeof *part));
    }
}

/* A run of whole blocks is the same alone, and where it stands in the row. */
static void runs(const sk_codec *c)
{
    static uint8_t alone[sizeof code];
    int64_t from = SK_CODEC_RUN, at = sk_codec_bytes(c, from), n = MOST - from;
    fill(1);
    there_and_back(c, MOST);
    sk_code_row r = row_of(n);
    r.of = x + from;
    r.first += from;
    sk_encode(c, &r, alone);
    check(!memcmp(alone, code + at, (size_t)sk_codec_bytes(c, n)));
    parts(c);
    check(sk_codec_bytes(c, MOST) == at + sk_codec_bytes(c, n));
}

/* --- codecs that draw --- */

/* The mean of many drawings is the number, as near as their spread lets it be. */
static void unbiased(const sk_codec *c, int64_t n, bool upscale)
{
    enum { TIMES = 4000 };
    static double sum[MOST], square[MOST];
    int wrong = 0;
    fill(1);
    memset(sum, 0, sizeof sum), memset(square, 0, sizeof square);
    for (drawn = 1; drawn <= TIMES; drawn++) {
        sk_code_row r = row_of(n);
        r.upscale = upscale;
        sk_encode(c, &r, code);
        sk_decode(c, &r, code, 0, n, y);
        for (int64_t i = 0; i < n; i++)
            sum[i] += (double)y[i], square[i] += (double)y[i] * (double)y[i];
    }
    for (int64_t i = 0; i < n; i++) {
        double mean = sum[i] / TIMES,
               spread = sqrt(fmax(square[i] / TIMES - mean * mean, 0) / TIMES);
        wrong += !(fabs(mean - (double)x[i]) <= 5 * spread + 1e-4 * fabs((double)x[i]) + 1e-5);
    }
    if (wrong) printf("%s: the means of %d of %lld are wrong\n", c->name, wrong, (long long)n);
    check(!wrong);
    drawn = 1;
}

/* Another step, term or micro-batch draws otherwise; the same again the same. */
static void draws(const sk_codec *c)
{
    static uint8_t again[sizeof code];
    size_t bytes = (size_t)sk_codec_bytes(c, 999);
    fill(1);
    there_and_back(c, 999);
    sk_code_row r = row_of(999);
    sk_encode(c, &r, again);
    check(!memcmp(code, again, bytes));
    for (int how = 0; how < 3; how++) {
        uint64_t shared = sk_code_shared(1, 2, how ? 1 : 2);
        r.own = sk_code_own(shared, how == 1 ? 2 : 1, how == 2);
        sk_encode(c, &r, again);
        check(memcmp(code, again, bytes) != 0);
    }
    unbiased(c, 300, false);
}

/* The scale of signs is the mean magnitude, to bf16. */
static void mean_magnitude(void)
{
    const sk_codec *c = sk_codec_find("sign");
    double sum = 0;
    fill(1);
    there_and_back(c, 200);
    for (int i = 0; i < 200; i++) sum += fabs((double)x[i]) / 200;
    for (int i = 0; i < 200; i++) {
        check(fabs(fabs((double)y[i]) - sum) <= sum * 0x1p-8);
        check((y[i] < 0) == (x[i] < 0));
    }
}

/* --- codecs of whole rows --- */

static int by_size(const void *a, const void *b)
{
    float p = fabsf(*(const float *)a), q = fabsf(*(const float *)b);
    return (p < q) - (p > q);
}

/* What is sent and what is not are the row, to the bit; returns how many are sent. */
static int64_t exact(const sk_codec *c, int64_t n)
{
    int64_t sent = 0;
    there_and_back(c, n);
    for (int64_t i = 0; i < n; i++) {
        check(y[i] == 0 || y[i] == x[i]);
        check(y[i] + (x[i] - y[i]) == x[i]);
        sent += y[i] != 0;
    }
    return sent;
}

static void largest_go(const sk_codec *c, int64_t n)
{
    static float sorted[MOST];
    int64_t k = sk_codec_kept(n, c->value);
    memcpy(sorted, x, sizeof sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    for (int64_t i = 0; i < n; i++) {
        if (y[i] != 0) check(fabsf(x[i]) >= fabsf(sorted[k - 1]));
        else check(fabsf(x[i]) <= fabsf(sorted[k - 1]));
    }
}

static sk_codec with(const char *text)
{
    sk_codec c = {0};
    check(!sk_codec_read(text, &c));
    return c;
}

static int64_t kept(int64_t n, double share)
{
    int64_t k = (int64_t)ceil((double)n * share - 1e-6);
    return k < 1 ? 1 : k;
}

/* Elements of at least TIMES the root mean square go, and the largest; there is room for them. */
static void over_threshold(const sk_codec *c, int64_t n)
{
    double square = 0, largest = 0;
    int64_t room = c->value > 1 ? (int64_t)((double)n / (c->value * c->value) + 1e-9) : n;
    for (int64_t i = 0; i < n; i++) {
        square += (double)x[i] * (double)x[i];
        largest = fmax(largest, fabs((double)x[i]));
    }
    double least = c->value * sqrt(square / (double)n);
    check(exact(c, n) <= (room < 1 ? 1 : room));
    check(sk_codec_bytes(c, n) == 4 + (room < 1 ? 1 : room) * 6);
    for (int64_t i = 0; i < n; i++) {
        double size = fabs((double)x[i]);
        if (size >= least * (1 + 1e-6) || size == largest) check(y[i] == x[i]);
        else if (size < least * (1 - 1e-6)) check(y[i] == 0);
    }
}

/* Of chunks of 32 those with the greatest norm go as a whole. */
static void greatest_chunks(const sk_codec *c, int64_t n)
{
    double norm[MOST / 32 + 1] = {0}, least = INFINITY, left = 0;
    int64_t chunks = (n + 31) / 32, sent = 0;
    exact(c, n);
    for (int64_t i = 0; i < n; i++) norm[i / 32] += (double)x[i] * (double)x[i];
    for (int64_t i = 0; i < chunks; i++) {
        bool goes = y[32 * i] != 0;
        sent += goes;
        for (int64_t k = 32 * i; k < n && k < 32 * i + 32; k++) check(y[k] == (goes ? x[k] : 0));
        if (goes) least = fmin(least, norm[i]);
        else left = fmax(left, norm[i]);
    }
    check(sent == kept(chunks, c->value) && sk_codec_bytes(c, n) == sent * (2 + 128));
    check(left <= least * (1 + 1e-5)); /* 20 bits of norms are compared */
}

static void row(const sk_codec *c, int64_t n)
{
    bool top = !strcmp(c->name, "topk");
    fill(1);
    if (!strcmp(c->name, "threshold")) over_threshold(c, n);
    else if (!strcmp(c->name, "chunks")) greatest_chunks(c, n);
    else {
        check(sk_codec_bytes(c, n) == kept(n, c->value) * (top ? 6 : 4));
        check(exact(c, n) == kept(n, c->value));
        if (top) largest_go(c, n);
    }
    if (n == MOST) parts(c);
}

static void rows(const char *name)
{
    static const int64_t lengths[] = {1, 2, 3, 100, 1023, 1024, 1025, MOST};
    static const double shares[] = {0.001, 0.07, 0.5, 1}, times[] = {30, 3, 1.5, 1e-6};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t s = 0; s < sizeof shares / sizeof *shares; s++) {
            char text[32];
            bool share = strcmp(name, "threshold") != 0;
            snprintf(text, sizeof text, "%s:%g", name, (share ? shares : times)[s]);
            sk_codec c = with(text);
            check(sk_codec_bytes(&c, 0) == 0);
            row(&c, lengths[i]);
            if (s == 3) check(!memcmp(x, y, (size_t)lengths[i] * sizeof *x)); /* all are sent */
        }
}

/* Of the elements that topk sends each is within a step of its scale; nothing else is sent. */
static void quanta(const char *name)
{
    static const int64_t lengths[] = {1, 2, 100, 1025, MOST};
    static const double shares[] = {0.001, 0.07, 0.5, 1};
    static float sent[MOST];
    bool eight = !strcmp(name, "topk8");
    int64_t block = eight ? 256 : 128;
    for (int i = 0; i < 5 * 4; i++) {
        char text[2][32];
        int64_t n = lengths[i % 5], k = kept(n, shares[i / 5]), none = 0;
        snprintf(text[0], sizeof text[0], "topk:%g", shares[i / 5]);
        snprintf(text[1], sizeof text[1], "%s:%g", name, shares[i / 5]);
        sk_codec all = with(text[0]), c = with(text[1]);
        fill(1);
        there_and_back(&all, n);
        memcpy(sent, y, sizeof sent);
        there_and_back(&c, n);
        check(sk_codec_bytes(&c, 0) == 0);
        check(sk_codec_bytes(&c, n) == k * 2 + (k + block - 1) / block * 2 +
                                           k / block * (eight ? 256 : 64) +
                                           (eight ? k % block : (k % block + 1) / 2));
        for (int64_t j = 0; j < n; j++) {
            if (sent[j] == 0) none += y[j] != 0;
            else
                none += !(fabs((double)y[j] - (double)sent[j]) <=
                          2.02 * (1 + 0x1p-7) / (eight ? 127 : 7));
        }
        check(!none);
        if (n == MOST) parts(&c);
    }
    sk_codec c = with(eight ? "topk8:0.3" : "topk4:0.3");
    fill(1);
    x[77] = NAN;
    there_and_back(&c, 200);
    check(isnan(y[77]));
    c.value = 1;
    draws(&c); /* means of what is sent are right */
}

/* A row of which all or none stand out, and numbers that are not finite. */
static void odd_thresholds(void)
{
    sk_codec c = with("threshold:3"), chunks = with("chunks:0.1");
    fill(0);
    check(exact(&c, 500) == 0);
    for (int i = 0; i < MOST; i++) x[i] = i % 2 ? -0.25F : 0.25F;
    check(exact(&c, 500) == 55); /* all are the largest: the first of them */
    fill(1);
    x[0] = 0, x[77] = 1e30F;
    check(exact(&c, 500) == 1 && y[77] == 1e30F);
    x[400] = NAN, x[401] = -INFINITY;
    there_and_back(&c, 500);
    check(isnan(y[400]) && isinf(y[401]) && y[77] == 0);
    there_and_back(&chunks, 500);
    check(isnan(y[400]) && isinf(y[401]) && y[77] == 1e30F);
}

static void odd_rows(void)
{
    sk_codec top = with("topk:0.01"), most = with("topk:0.5");
    check(sk_codec_bytes(&top, 65536) == 656 * 6 && sk_codec_bytes(&top, 65537) == 656 * 8);
    for (int i = 0; i < MOST; i++) x[i] = i % 2 ? -0.25F : 0.25F; /* of equals the first go */
    there_and_back(&most, 101);
    for (int i = 0; i < 101; i++) check(y[i] == (i < 51 ? x[i] : 0));
    fill(1);
    x[700] = NAN, x[800] = -INFINITY;
    there_and_back(&top, 1000);
    check(isnan(y[700]) && isinf(y[800]));
    sk_codec any = with("randk:0.1");
    unbiased(&any, 300, true);
    unbiased(&any, 77, true); /* stretches of 9 and 10 */
    sk_code_row r = row_of(MOST);
    static float other[MOST];
    fill(1);
    there_and_back(&any, MOST);
    r.own = 99; /* places are those of all ranks */
    sk_encode(&any, &r, code);
    sk_decode(&any, &r, code, 0, MOST, other);
    check(!memcmp(other, y, sizeof y));
}

/* Rows of over 65536 elements have indices of 4 bytes. */
static void long_row(void)
{
    enum { LONG = 70001 };
    sk_codec c = with("topk:0.001");
    float *in = calloc(LONG, sizeof *in), *out = calloc(LONG, sizeof *out);
    uint8_t *bytes = calloc((size_t)sk_codec_bytes(&c, LONG), 1);
    sk_code_row r = row_of(LONG);
    r.of = in;
    for (int i = 0; i < LONG; i++) in[i] = i % 1000 == 999 || i == LONG - 1 ? -5 : 0.5F;
    sk_encode(&c, &r, bytes);
    sk_decode(&c, &r, bytes, 0, LONG, out);
    for (int i = 0; i < LONG; i++) check(out[i] == (in[i] < 0 ? in[i] : 0));
    free(in), free(out), free(bytes);
}

static void misread(void)
{
    static const char *const wrong[] = {
        "topk",    "topk:",    "topk:0",    "topk:2",      "topk:abc",       "topk:nan",  "topk:-1",
        "randk:0", "int4:0.1", "topkk:0.1", "threshold:0", "threshold:1001", "chunks:1.1"};
    sk_codec c;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (!sk_codec_read(wrong[i], &c)) printf("%s was read\n", wrong[i]);
        check(sk_codec_read(wrong[i], &c) == SK_ECONF);
    }
    check(!sk_codec_read("topk:1", &c) && c.value == 1);
    check(!sk_codec_read("powersgd:4", &c) && c.value == 4 && c.low_rank);
}

static void of_blocks(const sk_codec *c)
{
    check(c->block > 0 && SK_CODEC_RUN % c->block == 0 && !c->encode != !c->encode_random);
    check(sk_codec_bytes(c, 0) == 0 && sk_codec_bytes(c, 1) <= c->head + 2);
    check(sk_codec_bytes(c, 2 * c->block) == 2 * (c->head + c->block * c->bits / 8));
    shapes(c);
    values(c);
    not_finite(c, NAN);
    not_finite(c, INFINITY);
    not_finite(c, -INFINITY);
    runs(c);
    if (c->encode_random) draws(c);
}

int main(void)
{
    int n = 0;
    for (; sk_codec_parts[n]; n++) {
        const sk_codec *c = sk_codec_parts[n];
        check(sk_codec_find(c->name) == c && c->doc);
        check(c->low_rank || (c->encode_flops > 0 && c->decode_flops > 0));
        if (c->low_rank) continue; /* whole matrices: test/layout/low_rank.c */
        if (c->encode_row && !strncmp(c->name, "topk", 4) && c->name[4]) quanta(c->name);
        else if (c->encode_row) rows(c->name);
        else of_blocks(c);
    }
    odd_rows();
    odd_thresholds();
    long_row();
    seen_by_all();
    mean_magnitude();
    misread();
    check(n >= 5 && !sk_codec_find("int5"));
    check(sk_codec_bytes(sk_codec_find("int8"), 256) == 258);
    check(sk_codec_bytes(sk_codec_find("int4"), 129) == 66 + 3);
    check(sk_codec_bytes(sk_codec_find("sign"), 257) == 34 + 3);
    printf("codecs: %d, %d checks, %d bad\n", n, checks, bad);
    return bad > 0;
}
