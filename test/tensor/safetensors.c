/* Tensor files: round trips, a long list of lies, and random damage.  Nothing
 * here may crash, read outside the file, or allocate much. */
#include "base/hash.h"
#include "base/rng.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"

#include <endian.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int checks, bad;
static char dir[] = "/tmp/skein-st-XXXXXX";

#define CHECK(cond)                                                                     \
    do {                                                                                \
        checks++;                                                                       \
        if (!(cond)) bad++, printf("line %d: %s\n  %s\n", __LINE__, #cond, sk_error()); \
    } while (0)

static const char *path(const char *name)
{
    static char p[256];
    snprintf(p, sizeof p, "%s/%s", dir, name);
    return p;
}

static sk_status write_two(sk_arena *a, int d, const float *x, const uint8_t *y)
{
    sk_st_tensor t[] = {{.name = "a.weight", .type = SK_F32, .n = 2, .size = {3, 5}},
                        {.name = "empty", .type = SK_BF16, .n = 2, .size = {0, 7}},
                        {.name = "scalar \"\xc3\xa9\\", .type = SK_U8}};
    sk_st_pair meta[] = {{"format", "pt"}, {"note", "line\nbad \xff byte"}};
    sk_st_writer w;
    SK_TRY(sk_st_create(a, d, "two.safetensors", 0600, t, 3, meta, 2, &w));
    SK_TRY(sk_st_write(&w, x, 4));
    SK_TRY(sk_st_write(&w, x + 1, 14 * sizeof *x));
    SK_TRY(sk_st_write(&w, y, 1));
    SK_TRY(sk_st_finish(&w));
    CHECK(w.n_crc == 1 && w.data % 64 == 0);
    return SK_OK;
}

static void round_trip(void)
{
    sk_arena a = {0};
    sk_st st;
    float x[15], back[15];
    uint8_t y = 42, z = 0;
    for (int i = 0; i < 15; i++) x[i] = (float)i * 0.5f;
    int d = open(dir, O_RDONLY | O_DIRECTORY);
    CHECK(write_two(&a, d, x, &y) == SK_OK);
    CHECK(write_two(&a, d, x, &y) == SK_EIO); /* O_EXCL */
    CHECK(sk_st_open(&a, path("two.safetensors"), &st) == SK_OK);
    CHECK(st.n == 3 && st.n_meta == 2);
    CHECK(!strcmp(st.meta[0].value, "pt") || !strcmp(st.meta[1].value, "pt"));
    const sk_st_tensor *t = sk_st_find(&st, "a.weight"),
                       *s = sk_st_find(&st, "scalar \"\xc3\xa9\\");
    CHECK(t && t->type == SK_F32 && t->n == 2 && t->size[0] == 3 && t->size[1] == 5);
    CHECK(s && s->n == 0 && s->end - s->begin == 1);
    CHECK(!sk_st_find(&st, "a") && !sk_st_find(&st, "zzz"));
    CHECK(sk_st_find(&st, "empty")->begin == sk_st_find(&st, "empty")->end);
    CHECK(sk_st_read(&st, t, 0, sizeof back, back) == SK_OK && !memcmp(x, back, sizeof x));
    CHECK(sk_st_read(&st, t, 20, 4, back) == SK_OK && back[0] == x[5]);
    CHECK(sk_st_read(&st, s, 0, 1, &z) == SK_OK && z == y);
    CHECK(truncate(path("two.safetensors"), st.data + 10) == 0);
    CHECK(sk_st_read(&st, t, 0, sizeof back, back) == SK_EDATA); /* cut while open */
    sk_st_close(&st);
    CHECK(sk_st_open(&a, path("two.safetensors"), &st) == SK_EDATA);
    close(d);
    sk_arena_end(&a);
}

/* Larger than a chunk, written in odd portions: the sums must not depend on the cutting. */
static void chunks(void)
{
    sk_arena a = {0};
    int64_t n = 9000001;
    uint8_t *x = sk_alloc(&a, (size_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = (uint8_t)(i * 31 + (i >> 9));
    sk_st_tensor t = {.name = "x", .type = SK_U8, .n = 1, .size = {n}};
    sk_st_writer w;
    sk_text back;
    int d = open(dir, O_RDONLY | O_DIRECTORY);
    CHECK(sk_st_create(&a, d, "big", 0600, &t, 1, NULL, 0, &w) == SK_OK);
    for (int64_t at = 0, k = 1; at < n; at += k, k = k * 7 + 1)
        if (sk_st_write(&w, x + at, (size_t)(k < n - at ? k : n - at))) bad++;
    CHECK(sk_st_finish(&w) == SK_OK && w.n_crc == 3);
    CHECK(sk_file_read(&a, path("big"), &back) == SK_OK && (int64_t)back.n == w.bytes);
    for (int64_t i = 0; i < w.n_crc; i++) {
        size_t at = (size_t)i * SK_ST_CHUNK, left = back.n - at;
        CHECK(sk_crc32c(0, back.s + at, left < SK_ST_CHUNK ? left : SK_ST_CHUNK) == w.crc[i]);
    }
    sk_st_tensor twice[] = {t, t};
    twice[0].size[0] = twice[1].size[0] = 1;
    CHECK(sk_st_create(&a, d, "twice", 0600, twice, 2, NULL, 0, &w) == SK_EDATA);
    CHECK(access(path("twice"), F_OK));
    sk_st_tensor huge = {.name = "x", .type = SK_F64, .n = 2, .size = {1LL << 40, 1LL << 40}};
    CHECK(sk_st_create(&a, d, "huge", 0600, &huge, 1, NULL, 0, &w) == SK_EDATA);
    struct rlimit old, small = {1 << 20, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &old);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){small.rlim_cur, old.rlim_max});
    CHECK(sk_st_create(&a, d, "full", 0600, &t, 1, NULL, 0, &w) == SK_EIO);
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK(access(path("full"), F_OK));
    close(d);
    sk_arena_end(&a);
}

static sk_status parse(const char *text, int64_t bytes)
{
    sk_arena a = {0};
    sk_st st;
    sk_status status = sk_st_parse(&a, "test", text, strlen(text), bytes, &st);
    sk_arena_end(&a);
    return status;
}

#define T(shape, from, to) \
    "{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"

static void lies(void)
{
    static const struct {
        const char *text;
        int64_t bytes;
        bool good;
    } all[] = {
        {"{}", 0, true},
        {"{}   ", 0, true},
        {"{\"a\":" T("2", 0, 8) "}", 8, true},
        {"{\"b\":" T("2", 8, 16) ",\"a\":" T("1,2", 0, 8) "}", 16, true},
        {"{\"b\":" T("0", 8, 8) ",\"a\":" T("2", 0, 8) ",\"c\":" T("3,0", 0, 0) "}", 8, true},
        {"{\"a\":" T("1,1,1,1,1,1,1,1", 0, 4) "}", 4, true},
        {"{\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3, true},
        {"{\"__metadata__\":{}}", 0, true},
        {"", 0, false},
        {" {}", 0, false},
        {"[]", 0, false},
        {"{", 0, false},
        {"{}x", 0, false},
        {"{}{}", 0, false},
        {"{}", 1, false}, /* a rest that is nobody's */
        {"{\"a\":" T("2", 0, 8) "}", 9, false},
        {"{\"a\":" T("2", 0, 8) "}", 7, false},
        {"{\"a\":" T("2", 0, 8) "}", 0, false},
        {"{\"a\":" T("2", 0, 8) ",\"a\":" T("2", 8, 16) "}", 16, false},
        {"{\"a\":" T("2", 0, 8) ",\"b\":" T("2", 0, 8) "}", 8, false},
        {"{\"a\":" T("2", 0, 8) ",\"b\":" T("2", 4, 12) "}", 12, false},
        {"{\"a\":" T("2", 0, 8) ",\"b\":" T("2", 9, 17) "}", 17, false},
        {"{\"a\":" T("2", 1, 9) "}", 9, false},
        {"{\"a\":" T("2", 8, 0) "}", 8, false},
        {"{\"a\":" T("3", 0, 8) "}", 8, false},
        {"{\"a\":" T("2", -8, 0) "}", 8, false},
        {"{\"a\":" T("-2", 0, 8) "}", 8, false},
        {"{\"a\":" T("-1,-2", 0, 8) "}", 8, false},
        {"{\"a\":" T("2.0", 0, 8) "}", 8, false},
        {"{\"a\":" T("\"2\"", 0, 8) "}", 8, false},
        {"{\"a\":" T("null", 0, 8) "}", 8, false},
        {"{\"a\":" T("[2]", 0, 8) "}", 8, false},
        {"{\"a\":" T("1,1,1,1,1,1,1,1,2", 0, 8) "}", 8, false},
        {"{\"a\":" T("4611686018427387904,4", 0, 0) "}", 0, false}, /* 2^62 * 4 * 4 wraps to 0 */
        {"{\"a\":" T("4611686018427387904,4,0", 0, 0) "}", 0, false},
        {"{\"a\":" T("9223372036854775807", 0, 8) "}", 8, false},
        {"{\"a\":" T("9223372036854775808", 0, 8) "}", 8, false},
        {"{\"a\":" T("99999999999999999999999999", 0, 8) "}", 8, false},
        {"{\"a\":" T("1e999", 0, 8) "}", 8, false},
        {"{\"a\":" T("2", 0, 18446744073709551615) "}", 8, false},
        {"{\"a\":" T("2", 9223372036854775800, 9223372036854775807) "}", 8, false},
        {"{\"\":" T("2", 0, 8) "}", 8, false},
        {"{\"a\\u0000b\":" T("2", 0, 8) "}", 8, false},
        {"{\"a\\u001b[2J\":" T("2", 0, 8) "}", 8, false},
        {"{\"a\\u009b2J\":" T("2", 0, 8) "}", 8, false},
        {"{\"a\\ud800\":" T("2", 0, 8) "}", 8, false},
        {"{\"a\xff\":" T("2", 0, 8) "}", 8, false},
        {"{\"a\n\":" T("2", 0, 8) "}", 8, false},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, false},
        {"{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, false},
        {"{\"a\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4,8]}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{}}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, false},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         false},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, false},
        {"{\"a\":[]}", 0, false},
        {"{\"a\":null}", 0, false},
        {"{\"__metadata__\":[]}", 0, false},
        {"{\"__metadata__\":{\"a\":1}}", 0, false},
        {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, false},
        {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, false},
        {"{\"a\":" T("2", 0, 8) ",}", 8, false},
        {"{'a':1}", 0, false},
        {"{\"a\":NaN}", 0, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        checks++;
        if (parse(all[i].text, all[i].bytes) == (all[i].good ? SK_OK : SK_EDATA)) continue;
        bad++, printf("%s %s\n", all[i].good ? "refused:" : "accepted:", all[i].text);
    }
}

/* A text made by repeating. */
static char *repeat(sk_arena *a, const char *head, const char *unit, int n, const char *tail)
{
    size_t h = strlen(head), u = strlen(unit), t = strlen(tail);
    char *s = sk_alloc(a, h + u * (size_t)n + t + 1), *p = s;
    p = (char *)memcpy(p, head, h) + h;
    for (int i = 0; i < n; i++) p = (char *)memcpy(p, unit, u) + u;
    memcpy(p, tail, t);
    return s;
}

static void bombs(void)
{
    sk_arena a = {0};
    CHECK(parse(repeat(&a, "{\"a\":", "[", 1000000, "}"), 0) == SK_EDATA);
    CHECK(parse(repeat(&a, "", "{\"a\":", 1000000, ""), 0) == SK_EDATA);
    CHECK(parse(repeat(&a, "{\"a\":[", "0,", 4000000, "0]}"), 0) == SK_EDATA);
    CHECK(parse(repeat(&a, "{\"a\":[", "{},", 2000000, "{}]}"), 0) == SK_EDATA);
    CHECK(parse(repeat(&a, "{\"", "n", 513, "\":" T("2", 0, 8) "}"), 8) == SK_EDATA);
    CHECK(parse(repeat(&a, "{\"", "n", 512, "\":" T("2", 0, 8) "}"), 8) == SK_OK);
    CHECK(parse(repeat(&a, "{", " ", 4000000, "}"), 0) == SK_OK);
    CHECK(parse(repeat(&a, "{\"a", "\\", 1000001, ""), 0) == SK_EDATA);
    sk_arena_end(&a);
}

static sk_status open_bytes(const void *p, size_t n)
{
    sk_arena a = {0};
    sk_st st = {.fd = -1};
    unlink(path("lie"));
    if (sk_file_write_new(path("lie"), p, n)) exit(1);
    sk_status status = sk_st_open(&a, path("lie"), &st);
    if (!status) sk_st_close(&st);
    sk_arena_end(&a);
    return status;
}

static void files(void)
{
    static const uint64_t lengths[] = {
        0,          1,          3,        100, 1 << 24, (1 << 24) + 1, UINT64_MAX, UINT64_MAX - 7,
        1ULL << 63, 1ULL << 32, INT64_MAX};
    char file[64] = {0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t n = htole64(lengths[i]);
        memcpy(file, &n, 8);
        memcpy(file + 8, "{}", 2);
        CHECK(open_bytes(file, 10) == SK_EDATA);
    }
    uint64_t two = htole64(2);
    memcpy(file, &two, 8);
    CHECK(open_bytes(file, 10) == SK_OK);
    for (size_t n = 0; n < 10; n++) CHECK(open_bytes(file, n) == SK_EDATA);
    sk_arena a = {0};
    sk_st st;
    CHECK(sk_st_open(&a, dir, &st) == SK_EDATA);
    CHECK(sk_st_open(&a, path("nothing"), &st) == SK_EDATA);
    CHECK(sk_st_open(&a, "/dev/zero", &st) == SK_EDATA);
    CHECK(!mkfifo(path("fifo"), 0600) && sk_st_open(&a, path("fifo"), &st) == SK_EDATA);
    char target[256];
    snprintf(target, sizeof target, "%s", path("lie"));
    CHECK(open_bytes(file, 10) == SK_OK);
    int below = open(dir, O_RDONLY | O_DIRECTORY);
    CHECK(!symlink(target, path("link")) && sk_st_open(&a, path("link"), &st) == SK_OK);
    sk_st_close(&st);
    CHECK(below >= 0 && sk_st_open_at(&a, below, "link", "link", 0, &st) == SK_EDATA);
    close(below);
    /* a header over the default cap, allowed on request */
    size_t n = (17 << 20) + 10;
    char *long_one = memset(sk_alloc(&a, n), ' ', n);
    uint64_t len = htole64((uint64_t)(17 << 20));
    memcpy(long_one, &len, 8);
    memcpy(long_one + 8, "{}", 2);
    CHECK(open_bytes(long_one, n - 2) == SK_EDATA && strstr(sk_error(), "at most 16777216"));
    CHECK(sk_st_open_at(&a, AT_FDCWD, path("lie"), "lie", 32 << 20, &st) == SK_OK);
    sk_st_close(&st);
    sk_arena_end(&a);
}

/* Random damage to a good header: never a crash; whatever is accepted is consistent. */
static void damage(void)
{
    static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},\"b\":" T(
        "2,3", 40, 64) ",\"a\":" T("10", 0, 40) ",\"c\":" T("0", 64, 64) "}";
    static const char spice[] = "{}[]\",:0123456789-+eE.\\ nut\xff";
    int accepted = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        char text[sizeof good + 8];
        size_t n = sizeof good - 1;
        memcpy(text, good, sizeof good);
        for (uint64_t k = 0; k <= i % 3; k++) {
            sk_draw d = sk_rng(7, i, k);
            char c = spice[d.b % (sizeof spice - 1)];
            size_t at = d.a % n;
            if (d.b >> 40 & 1) text[at] = c;
            else if (d.b >> 41 & 1) memmove(text + at, text + at + 1, n - at), n--;
            else memmove(text + at + 1, text + at, n + 1 - at), text[at] = c, n++;
        }
        sk_arena a = {0};
        sk_st st;
        sk_status status = sk_st_parse(&a, "damaged", text, n, 64, &st);
        if (!status) {
            int64_t sum = 0;
            for (int t = 0; t < st.n; t++) sum += st.tensor[t].end - st.tensor[t].begin;
            if (sum != 64) bad++, printf("accepted: %s\n", text);
            accepted++;
        } else if (status != SK_EDATA) bad++;
        checks++;
        sk_arena_end(&a);
    }
    CHECK(accepted > 0 && accepted < 10000);
}

int main(void)
{
    if (!mkdtemp(dir)) return 1;
    signal(SIGXFSZ, SIG_IGN);
    round_trip();
    chunks();
    lies();
    files();
    damage();
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    bombs();
    getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 256 << 10); /* KiB */
    char sweep[300];
    snprintf(sweep, sizeof sweep, "rm -rf %s", dir);
    CHECK(!system(sweep));
    printf("safetensors: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
