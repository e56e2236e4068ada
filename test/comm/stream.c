/* stream.c - the test of coll/sparse_stream.c and coll/adasum_kernel.c.
 *
 * Packed vectors come back to the bit for all types, rows, sizes and densities; their length is
 * the closed form of sparse_stream.h; the union of several is their dense sum to the bit; every
 * cut, every changed byte of the head and every bad row number is refused or harmless.  Adasum
 * meets its definition in long double, does not care which operand comes first, and may write onto
 * one.  Output: each failed check, then "stream: N checks, N bad".
 */
#include "base/rng.h"
#include "coll/adasum_kernel.h"
#include "coll/sparse_stream.h"
#include "coll/sum_kernels.h"
#include "lib/check.h"

#include <stdlib.h>

enum { MOST = 600, ROOM = SK_STREAM_HEAD + MOST * 8 };

static uint64_t salt;

static double uniform(int64_t i) { return sk_rng_uniform(7, salt, (uint64_t)i); }

/* Random bytes in rows that are there, zeros in the others. */
static void fill(unsigned char *x, int64_t bytes, int64_t row_bytes, double density)
{
    salt++;
    for (int64_t i = 0; i < bytes; i++)
        x[i] = uniform(i / row_bytes) < density ? (unsigned char)(256 * uniform(MOST * 8 + i)) : 0;
}

static int64_t closed_form(const unsigned char *x, int64_t n, int64_t row, int64_t size)
{
    int64_t stream = 0;
    for (int64_t at = 0; at < n; at += row) {
        int64_t w = (n - at < row ? n - at : row) * size, any = 0;
        for (int64_t i = 0; i < w; i++) any |= x[at * size + i];
        if (any) stream += 4 + w;
    }
    return SK_STREAM_HEAD + (stream < n * size ? stream : n * size);
}

static void round_trip(sk_dtype type, int64_t n, int64_t row, double density)
{
    static unsigned char x[MOST * 8], y[MOST * 8 + 1], packed[ROOM + 1];
    int64_t size = (int64_t)sk_dtype_size(type);
    fill(x, n * size, row * size, density);
    memset(packed, 0xee, sizeof packed);
    memset(y, 0xdd, sizeof y);
    int64_t bytes = sk_stream_pack(type, x, n, row, packed);
    check(bytes == closed_form(x, n, row, size) && bytes <= sk_stream_most(type, n, row));
    check(packed[bytes] == 0xee);
    check(!sk_stream_unpack(type, packed, bytes, y, n, row));
    check(!memcmp(x, y, (size_t)(n * size)) && y[n * size] == 0xdd);
}

static void round_trips(void)
{
    const int64_t row[] = {1, 2, 3, 4, 7, 8, 64, 599, 1000};
    const int64_t size[] = {0, 1, 2, 5, 8, 63, 64, 65, 300, MOST};
    const double density[] = {0, 0.01, 0.3, 0.5, 0.9, 1};
    for (int t = 0; t < SK_N_DTYPES; t++)
        for (size_t r = 0; r < sizeof row / sizeof *row; r++)
            for (size_t s = 0; s < sizeof size / sizeof *size; s++)
                for (size_t d = 0; d < sizeof density / sizeof *density; d++)
                    round_trip((sk_dtype)t, size[s], row[r], density[d]);
}

static void edges(void)
{
    float x[4] = {0, -0.0f, 0, 0}, y[4];
    char p[64];
    check(sk_stream_pack(SK_F32, x, 4, 1, p) == SK_STREAM_HEAD + 8); /* -0 is something */
    check(!sk_stream_unpack(SK_F32, p, 24, y, 4, 1) && !memcmp(x, y, sizeof x));
    x[2] = 1; /* 2 (4 + 4) = 4 4: as long as dense, so dense */
    check(sk_stream_pack(SK_F32, x, 4, 1, p) == SK_STREAM_HEAD + 16);
    check(sk_stream_most(SK_BF16, 10, 4) == SK_STREAM_HEAD + 20);
}

/* --- sums --- */

/* Small numbers, some of them -0, in rows that are there. */
static void fill_numbers(sk_dtype type, char *x, int64_t n, int64_t row, double density)
{
    int64_t size = (int64_t)sk_dtype_size(type);
    salt++;
    memset(x, 0, (size_t)(n * size));
    for (int64_t i = 0; i < n; i++) {
        float v = (float)((int)(16 * uniform(MOST * 8 + i)) - 8) / 3;
        if (uniform(i / row) >= density) continue;
        if (uniform(2 * MOST * 8 + i) < 0.2) v = -0.0f;
        if (type == SK_U8 || type == SK_I32 || type == SK_I64) x[i * size] = (char)(1 + i % 9);
        else sk_convert(x + i * size, type, &v, SK_F32, 1);
    }
}

/* The union of k vectors is their dense sum, to the bit; dense where that is as short. */
static void one_merge(sk_dtype type, sk_reduce reduce, int k, int64_t n, int64_t row,
                      double density)
{
    enum { STREAMS = 9 };
    static char x[STREAMS][MOST * 8], packed[STREAMS][ROOM], got[ROOM + 1], y[MOST * 8];
    static _Alignas(64) char want[MOST * 8];
    const void *dense[STREAMS], *streams[STREAMS];
    int64_t size = (int64_t)sk_dtype_size(type), most = sk_stream_most(type, n, row), used = 0;
    for (int j = 0; j < k; j++) {
        fill_numbers(type, x[j], n, row, j % 4 == 3 ? 1 - density : density);
        int64_t bytes = sk_stream_pack(type, dense[j] = x[j], n, row, packed[j]);
        streams[j] = packed[j];
        check(sk_stream_bytes(type, packed[j], n, row) == bytes);
        check(!sk_stream_check(type, packed[j], bytes + 3, n, row, &used) && used == bytes);
    }
    sk_sum(type, reduce, k, dense, 1, (void *[]){want}, n);
    memset(got, 0xee, sizeof got);
    int64_t bytes = sk_stream_merge(type, reduce, k, streams, n, row, got, most);
    check(bytes >= SK_STREAM_HEAD && bytes <= most && got[bytes] == (char)0xee);
    check(sk_stream_bytes(type, got, n, row) == bytes);
    check(!sk_stream_unpack(type, got, bytes, y, n, row) && !memcmp(y, want, (size_t)(n * size)));
    check(sk_stream_merge(type, reduce, k, streams, n, row, got, bytes - 1) == -1);
    check(sk_stream_merge(type, reduce, k, streams, n, row, got, bytes) == bytes);
}

static void merges(void)
{
    static const int64_t row[] = {1, 3, 4, 64, 599}, size[] = {0, 1, 5, 64, 300, MOST};
    static const double density[] = {0, 0.02, 0.2, 0.6};
    static const sk_reduce reduces[] = {SK_SUM, SK_MAXIMUM, SK_MINIMUM};
    for (int t = 0; t < SK_N_DTYPES; t++)
        for (int r = 0; r < 3; r++)
            for (int k = 1; k <= 9 && sk_sum_can((sk_dtype)t, reduces[r]); k++)
                for (int i = 0; i < 5 * 6 * 4; i++)
                    one_merge((sk_dtype)t, reduces[r], k, size[i % 6], row[i / 6 % 5],
                              density[i / 30]);
}

static void rooms(void)
{
    check(sk_stream_room(SK_F32, 100, 1, 10) == SK_STREAM_HEAD + 80);
    check(sk_stream_room(SK_F32, 100, 1, 50) == sk_stream_most(SK_F32, 100, 1));
    check(sk_stream_room(SK_BF16, 100, 10, 3) == SK_STREAM_HEAD + 3 * 24);
    check(sk_stream_room(SK_F32, 10, 4, 1000) == sk_stream_most(SK_F32, 10, 4));
    float x[8] = {1, 0, 0, 0, 0, 0, 0, 2};
    char p[64];
    check(sk_stream_pack_into(SK_F32, x, 8, 1, p, SK_STREAM_HEAD + 15) == -1);
    check(sk_stream_pack_into(SK_F32, x, 8, 1, p, SK_STREAM_HEAD + 16) == SK_STREAM_HEAD + 16);
}

/* --- bad input --- */

static char good[ROOM];
static int64_t good_bytes;
static float values[30];

static sk_status unpack(const char *p, int64_t bytes)
{
    char *exact = malloc((size_t)bytes + 1); /* so that a sanitizer sees a read past the end */
    float *y = malloc(sizeof values);
    sk_assert(exact && y);
    memcpy(exact, p, (size_t)bytes);
    sk_status st = sk_stream_unpack(SK_F32, exact + 0, bytes, y, 30, 4);
    free(exact);
    free(y);
    return st;
}

static void set_index(char *p, int k, uint32_t i) { memcpy(p + SK_STREAM_HEAD + 4 * k, &i, 4); }

static void make_good(void) /* rows 1, 4 and the short row 7 of eight */
{
    memset(values, 0, sizeof values);
    for (int i = 0; i < 4; i++) values[4 + i] = values[16 + i] = 1;
    values[28] = values[29] = 2;
    good_bytes = sk_stream_pack(SK_F32, values, 30, 4, good);
    check(good_bytes == SK_STREAM_HEAD + 3 * 4 + 10 * 4);
    check(!unpack(good, good_bytes));
}

static void bad_lengths(void)
{
    for (int64_t cut = 0; cut < good_bytes; cut++) fails(unpack(good, cut), SK_EPEER, "stream");
    fails(unpack(good, good_bytes + 1), SK_EPEER, "rows in");
}

static void bad_heads(void)
{
    for (int i = 0; i < SK_STREAM_HEAD; i++)
        for (int bit = 0; bit < 8; bit++) {
            char p[ROOM];
            memcpy(p, good, sizeof p);
            p[i] = (char)(p[i] ^ 1 << bit);
            fails(unpack(p, good_bytes), SK_EPEER, "stream");
        }
}

static void bad_rows(void)
{
    const uint32_t bad_one[][3] = {{1, 1, 7}, {4, 1, 7}, {1, 7, 7},          {1, 4, 8}, {1, 4, 4},
                                   {1, 4, 6}, {8, 4, 7}, {1, 4, UINT32_MAX}, {7, 4, 1}};
    for (size_t k = 0; k < sizeof bad_one / sizeof *bad_one; k++) {
        char p[ROOM];
        memcpy(p, good, sizeof p);
        for (int i = 0; i < 3; i++) set_index(p, i, bad_one[k][i]);
        fails(unpack(p, good_bytes), SK_EPEER, "stream");
    }
}

static void noise(void) /* whatever comes: an answer, not a crash */
{
    char p[ROOM];
    for (int k = 0; k < 20000; k++) {
        salt++;
        memcpy(p, good, sizeof p);
        for (int i = 0; i < 4; i++)
            p[(int)(uniform(i) * (double)good_bytes)] = (char)(int)(256 * uniform(9 + i));
        sk_status st = unpack(p, (int64_t)(uniform(20) * (double)good_bytes) + 1);
        check(st == SK_OK || st == SK_EPEER);
    }
}

/* --- adasum --- */

static void make_vector(sk_dtype type, void *to, int n, double scale)
{
    double v[MOST];
    salt++;
    for (int i = 0; i < n; i++) v[i] = scale * (uniform(i) - 0.3);
    sk_convert(to, type, v, SK_F64, n);
}

static bool near_definition(sk_dtype type, const void *a, const void *b, const void *out, int n)
{
    const double eps[SK_N_DTYPES] = {
        [SK_F32] = 3e-7, [SK_BF16] = 8e-3, [SK_F16] = 1e-3, [SK_F64] = 1e-14};
    double x[MOST], y[MOST], z[MOST];
    long double xx = 0, xy = 0, yy = 0;
    sk_convert(x, SK_F64, a, type, n);
    sk_convert(y, SK_F64, b, type, n);
    sk_convert(z, SK_F64, out, type, n);
    for (int i = 0; i < n; i++) {
        xx += (long double)x[i] * x[i];
        xy += (long double)x[i] * y[i];
        yy += (long double)y[i] * y[i];
    }
    long double p = xx > 0 ? 1 - xy / (2 * xx) : 1, q = yy > 0 ? 1 - xy / (2 * yy) : 1;
    for (int i = 0; i < n; i++) {
        double big = fabs((double)p * x[i]) + fabs((double)q * y[i]);
        if (fabs(z[i] - (double)(p * x[i] + q * y[i])) > eps[type] * big) return false;
    }
    return true;
}

static void adasum_of(sk_dtype type, int n, double scale_a, double scale_b)
{
    double a[MOST], b[MOST], c[MOST], d[MOST]; /* as bytes of any type */
    size_t bytes = (size_t)n * sk_dtype_size(type);
    make_vector(type, a, n, scale_a);
    make_vector(type, b, n, scale_b);
    sk_adasum(type, a, b, c, n);
    check(near_definition(type, a, b, c, n));
    sk_adasum(type, b, a, d, n);
    check(!memcmp(c, d, bytes));
    memcpy(d, a, bytes);
    sk_adasum(type, d, b, d, n);
    check(!memcmp(c, d, bytes));
    memcpy(d, b, bytes);
    sk_adasum(type, a, d, d, n);
    check(!memcmp(c, d, bytes));
}

static void adasums(void)
{
    const sk_dtype types[] = {SK_F32, SK_F64, SK_BF16, SK_F16};
    const int size[] = {0, 1, 3, 8, 100, 512, 513, MOST};
    for (int t = 0; t < 4; t++)
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
            adasum_of(types[t], size[s], 1, 1);
            adasum_of(types[t], size[s], 8, 0.01);
            adasum_of(types[t], size[s], 0, 1);
            adasum_of(types[t], size[s], 0, 0);
        }
    float a[2] = {3, 0}, b[2] = {0, 5}, out[2];
    sk_adasum(SK_F32, a, b, out, 2); /* at right angles: the sum */
    check(out[0] == 3 && out[1] == 5);
    sk_adasum(SK_F32, a, a, out, 2); /* equal: the mean */
    check(out[0] == 3 && out[1] == 0);
    check(!sk_adasum_can(SK_I32) && sk_adasum_can(SK_BF16));
}

int main(void)
{
    round_trips();
    merges();
    rooms();
    edges();
    make_good();
    bad_lengths();
    bad_heads();
    bad_rows();
    noise();
    adasums();
    printf("stream: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
