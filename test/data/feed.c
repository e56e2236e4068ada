/* The data room: every format is written here and read back, orders are checked against their
 * definition, and files that lie are refused with an error message. */
#include "base/file_io.h"
#include "base/rng.h"
#include "base/strings.h"
#include "data/data.h"
#include "data/data_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static int checks, bad, skipped;
static char dir[64] = "/tmp/skein-data-XXXXXX";
static sk_arena arena;

static void check_at(int line, bool ok, const char *what)
{
    checks++;
    if (ok) return;
    bad++;
    printf("test/data/feed.c:%d: %s\n  last error: %s\n", line, what, sk_error());
}
#define check(x) check_at(__LINE__, (x), #x)

/* The call fails with this code, and the message holds these words. */
#define refused(call, code, words) \
    check_at(__LINE__, (call) == (code) && strstr(sk_error_line(), words), #call " -> " #words)

static const char *put(const char *name, const void *data, size_t n)
{
    const char *path = sk_print(&arena, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
    return path;
}

static const char *put_text(const char *name, const char *s) { return put(name, s, strlen(s)); }

static const char *put_gz(const char *name, const void *data, size_t n)
{
    const char *path = sk_print(&arena, "%s/%s", dir, name);
    gzFile g = gzopen(path, "wb");
    if (!g || gzwrite(g, data, (unsigned)n) != (int)n || gzclose(g)) abort();
    return path;
}

static sk_status load(const char *what, const sk_tokenizer *t, sk_store *s)
{
    sk_tokenizer *bytes = NULL;
    if (!t && sk_tokenizer_open(&arena, "byte", &bytes)) abort();
    return sk_store_open(&arena, what, t ? t : bytes, false, s);
}

static sk_status load_plain(const char *what, sk_store *s)
{
    sk_tokenizer *bytes = NULL;
    check(!sk_tokenizer_open(&arena, "byte", &bytes));
    return sk_store_open_as(&arena, what, bytes, false, (sk_data_hint){.text = true}, s);
}

static bool holds(const sk_store *s, const char *text)
{
    return s->token_bytes == 1 && s->n_tokens == (int64_t)strlen(text) &&
           !memcmp(s->tokens, text, strlen(text));
}

/* --- order ------------------------------------------------------------- */

static void order_sequential(const sk_store *s)
{
    sk_feed f;
    int32_t in[3 * 5], out[3 * 5];
    const uint8_t *t = s->tokens;
    check(!sk_feed_open(&f, s, 5, 3, 1, false));
    check(f.n_windows == (s->n_tokens - 1) / 5);
    bool same = true;
    for (int64_t step = 0; step < 40; step++) {
        check(!sk_feed_fill(&f, "tokens", step, 0, 3, 0, 5, in));
        check(!sk_feed_fill(&f, "targets", step, 0, 3, 0, 5, out));
        for (int64_t r = 0; r < 3; r++)
            for (int64_t c = 0; c < 5; c++) {
                int64_t at = (step * 3 + r) % f.n_windows * 5 + c;
                same = same && in[r * 5 + c] == t[at] && out[r * 5 + c] == t[at + 1];
            }
    }
    check(same);
}

static void order_shuffle(const sk_store *s)
{
    sk_feed f, g;
    check(!sk_feed_open(&f, s, 4, 7, 11, true) && !sk_feed_open(&g, s, 4, 7, 12, true));
    int64_t n = f.n_windows, moved = 0, fresh = 0, seeded = 0;
    int *seen = sk_many(&arena, int, n * 3);
    for (int64_t i = 0; i < 3 * n; i++) { /* three epochs; batches run across their borders */
        int64_t w = sk_feed_window(&f, i / 7, i % 7);
        check(w >= 0 && w < n);
        seen[i / n * n + w]++;
        moved += w != i % n;
        fresh += i >= n && w != sk_feed_window(&f, (i - n) / 7, (i - n) % 7);
        seeded += w != sk_feed_window(&g, i / 7, i % 7);
    }
    bool once = true;
    for (int64_t i = 0; i < 3 * n; i++) once = once && seen[i] == 1;
    check(once);
    check(moved > 2 * n && fresh > n && seeded > 2 * n);
}

/* Any slice of rows and columns is that slice of the whole. */
static void slices(const sk_feed *f, const char *name, int64_t rows, int64_t cols)
{
    int32_t *all = sk_many(&arena, int32_t, rows * cols),
            *part = sk_many(&arena, int32_t, rows * cols);
    bool same = true;
    check(!sk_feed_fill(f, name, 5, 0, rows, 0, cols, all));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = 0; r + n <= rows; n++)
            for (int64_t c = 0; c < cols; c++)
                for (int64_t m = 0; c + m <= cols; m++) {
                    same = same && !sk_feed_fill(f, name, 5, r, n, c, m, part);
                    for (int64_t i = 0; i < n; i++)
                        same =
                            same && !memcmp(part + i * m, all + (r + i) * cols + c, 4 * (size_t)m);
                }
    check_at(__LINE__, same, name);
}

static void feeds(void)
{
    char text[203];
    sk_store s = {0}, head, tail;
    sk_feed f;
    float w[6];
    int32_t pos[6];
    for (int i = 0; i < 203; i++) text[i] = (char)(32 + (i * 7 + i / 9) % 90);
    check(!load(put("order.txt", text, sizeof text), NULL, &s) && s.n_tokens == 203);
    order_sequential(&s);
    order_shuffle(&s);
    check(!sk_feed_open(&f, &s, 6, 4, 3, true));
    slices(&f, "tokens", 4, 6);
    slices(&f, "targets", 4, 6);
    slices(&f, "pos", 4, 6);
    slices(&f, "weights", 4, 6);
    check(!sk_feed_fill(&f, "pos", 0, 1, 2, 2, 3, pos) && pos[0] == 2 && pos[2] == 4 &&
          pos[3] == 2);
    check(!sk_feed_fill(&f, "weights", 0, 0, 2, 0, 3, w) && w[0] == 1 && w[5] == 1);
    refused(sk_feed_fill(&f, "pixels", 0, 0, 1, 0, 1, w), SK_ECONF,
            "reads \"pixels\", and order.txt · 203 bytes has none: it has tokens, targets, pos");
    sk_store_cut(&s, 0.25, &head, &tail);
    check(head.n_tokens == 153 && tail.n_tokens == 50);
    check((const char *)tail.tokens == (const char *)s.tokens + 153);
    check(!sk_feed_open(&f, &tail, 49, 1, 1, false) && f.n_windows == 1);
    refused(sk_feed_open(&f, &tail, 50, 1, 1, false), SK_EDATA, "has 50 tokens");
    refused(sk_feed_open(&f, &tail, 50, 1, 1, false), SK_EDATA, "needs 51");
    refused(sk_feed_open(&f, &tail, 0, 1, 1, false), SK_ECONF, "must be >= 1");
}

/* --- text ---------------------------------------------------------------- */

static void texts(void)
{
    sk_store s = {0};
    check(!load(put_text("a.txt", "hello\nworld"), NULL, &s) && holds(&s, "hello\nworld"));
    check(s.vocab == 256 && strstr(s.describe, "a.txt · 11 bytes"));
    check(!load(put_gz("b.txt.gz", "packed words", 12), NULL, &s) && holds(&s, "packed words"));
    check(!load(put_text("c.jsonl", "{\"text\": \"one\"}\n\n{\"id\":3,\"text\":\"tw\\u00f6\\n\"}"),
                NULL, &s));
    check(holds(&s, "one\ntw\xc3\xb6\n"));
    /* a byte order mark is no text */
    check(!load(put_text("bom.txt", "\xef\xbb\xbfhello"), NULL, &s) && holds(&s, "hello"));
    check(!load(put_gz("bom.jsonl.gz", "\xef\xbb\xbf{\"text\":\"one\"}", 17), NULL, &s));
    check(holds(&s, "one\n"));
    check(!load(put_text("bom.dat", "\xef\xbb\xbf{\"text\":\"one\"}"), NULL, &s));
    check(holds(&s, "one\n"));
    check(!load(put_text("late.jsonl", "\n {\"text\":\"one\"}"), NULL, &s) && holds(&s, "one\n"));
    check(!load(sk_print(&arena, "%s/bom.*", dir), NULL, &s) && holds(&s, "one\none\nhello\n"));
    check(!mkdir(sk_print(&arena, "%s/many", dir), 0700));
    check(!mkdir(sk_print(&arena, "%s/many/deep", dir), 0700));
    put_text("many/2.txt", "two"), put_text("many/1.txt", "one\n"), put_text("many/.hidden", "no");
    put_text("many/deep/3.jsonl", "{\"text\":\"three\"}");
    check(!load(sk_print(&arena, "%s/many", dir), NULL, &s) && holds(&s, "one\ntwo\nthree\n"));
    check(!load(sk_print(&arena, "%s/many/*.txt", dir), NULL, &s) && holds(&s, "one\ntwo\n"));
    char *big = sk_alloc(&arena, 1 << 22); /* grows past what the packed size lets one expect */
    memset(big, 'x', 1 << 22);
    check(!load(put_gz("big.gz", big, 1 << 22), NULL, &s) && s.n_tokens == 1 << 22);
}

/* A file is read once, whatever it is called, and a link that leads back is not followed. */
static void linked_texts(void)
{
    sk_store s = {0};
    sk_paths files = {0};
    const char *d = sk_print(&arena, "%s/links", dir);
    check(!mkdir(d, 0700) && !mkdir(sk_print(&arena, "%s/in", d), 0700));
    put_text("links/b.txt", "one"), put_text("links/in/c.txt", "two");
    check(!symlink(".", sk_print(&arena, "%s/self", d)));
    check(!symlink("..", sk_print(&arena, "%s/in/up", d)));
    check(!symlink("../../links", sk_print(&arena, "%s/in/over", d)));
    check(!load(d, NULL, &s) && holds(&s, "one\ntwo\n"));
    check(!strcmp(s.describe, "links · 8 bytes · 2 documents"));
    /* other names, also by way of a directory: the first by bytes counts, and it is said */
    check(!link(sk_print(&arena, "%s/b.txt", d), sk_print(&arena, "%s/a.txt", d)));
    check(!symlink("in", sk_print(&arena, "%s/also", d)));
    check(!load(d, NULL, &s) && holds(&s, "one\ntwo\n"));
    check(!strcmp(s.describe, "links · 8 bytes · 2 documents · 2 more names of the same files"));
    check(!sk_data_list(&arena, d, &files) && files.n == 2 && sk_ends_with(files.v[0], "/a.txt"));
    check(sk_ends_with(files.v[1], "/also/c.txt"));
    check(!load(sk_print(&arena, "%s/*.txt", d), NULL, &s) && holds(&s, "one"));
    check(strstr(s.describe, "3 bytes · 1 more name of the same file") != NULL);
    static const char *const names[] = {"self", "in/up", "in/over", "also", "a.txt"};
    for (size_t i = 0; i < 5; i++) check(!unlink(sk_print(&arena, "%s/%s", d, names[i])));
}

/* The last four bytes say how long it is when unpacked: 16 MiB are not taken on their word. */
static void gz_lies(void)
{
    sk_arena a = {0};
    sk_text one = {0}, out = {0};
    char noise[20000], copy[24000];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)sk_rng(1, 2, i).a;
    check(!sk_file_read(&arena, put_gz("l.gz", noise, sizeof noise), &one) && one.n < sizeof copy);
    memcpy(copy, one.s, one.n);
    memcpy(copy + one.n - 4, "\0\0\0\1", 4);
    refused(sk_data_read(&a, put("l.gz", copy, one.n), 1 << 30, &out), SK_EDATA, "l.gz: damaged");
    check(sk_arena_mark(&a).used < 8 * sizeof noise);
    sk_arena_end(&a);
}

/* Packed data may be followed by more of its kind, and by nothing else. */
static void bad_gz_ends(void)
{
    sk_store s = {0};
    sk_text one = {0}, out = {0};
    char two[400];
    check(!sk_file_read(&arena, put_gz("h.gz", "packed words", 12), &one) && one.n < 100);
    memcpy(two, one.s, one.n), memcpy(two + one.n, one.s, one.n);
    check(!load(put("h.gz", two, 2 * one.n), NULL, &s) && holds(&s, "packed wordspacked words"));
    for (int64_t limit = 12; limit < 26; limit++) /* the room that is reserved may be any */
        check(sk_data_read(&arena, sk_print(&arena, "%s/h.gz", dir), limit, &out) ==
              (limit < 24 ? SK_EDATA : SK_OK));
    check(out.n == 24 && !strcmp(out.s, "packed wordspacked words"));
    static const char *const ends[] = {"rest of it that nobody read", "\n", "\0\0\0", "\x1f"};
    static const size_t sizes[] = {27, 1, 3, 1};
    for (size_t i = 0; i < 4; i++) {
        memcpy(two + one.n, ends[i], sizes[i]);
        refused(load(put("h.gz", two, one.n + sizes[i]), NULL, &s), SK_EDATA,
                "h.gz: damaged: bytes after the end");
    }
}

/* Tables and archives are no text, unless the user says so. */
static void foreign_files(void)
{
    static const char array[] = " [\n {\"text\": \"one\"},\n {\"text\": \"two\"}]";
    static const struct {
        const char *name, *bytes, *words;
    } cases[] = {
        {"array.json", array, "array.json is one JSON array; write each element as a line"},
        {"array.txt", array, "one JSON array"},
        {"strings", "[\"one\", \"two\"]", "one JSON array"},
        {"table.csv", "id,text\n1,one\n", "a table (CSV); write its column of text as JSON lines"},
        {"table.tsv", "id\ttext\n1\tone\n", "a table (TSV)"},
        {"t.parquet", "PAR1 and more that has no zero byte", "is a Parquet file"},
        {"z", "PK\3\4 and more", "is a zip archive; unpack it first"},
        {"zst", "\x28\xb5\x2f\xfd and more", "packed with zstd"},
        {"u16", "\xff\xfeo\x01n\x01", "UTF-16; UTF-8 is needed"},
    };
    sk_store s = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = put_text(cases[i].name, cases[i].bytes);
        refused(load(path, NULL, &s), SK_EDATA, cases[i].words);
        refused(load(path, NULL, &s), SK_EDATA, "JSON lines ({\"text\": ...} in every line)");
        refused(load(path, NULL, &s), SK_EDATA, "data.format=text");
        check(!load_plain(path, &s) && holds(&s, cases[i].bytes));
        check(!unlink(path));
    }
    const char *lines = put_text("lines", "{\"text\":\"one\"}"), *zip = put("zip", "PK\3\4\0\0", 6);
    check(!load_plain(lines, &s) && holds(&s, "{\"text\":\"one\"}"));
    refused(load(zip, NULL, &s), SK_EDATA, "is a zip archive"); /* not text, with a zero byte */
    check(!load(put_text("list.txt", "[1] one\n[2] two"), NULL, &s) && s.n_tokens == 15);
    /* ids that are packed are no ids; two bytes do not say that much */
    refused(load(put_gz("ids.bin", "0123456789", 10), NULL, &s), SK_EDATA, "packed with gzip");
    refused(load(put("model.bin", "PK\3\4\0\0", 6), NULL, &s), SK_EDATA, "data.dtype=uint16");
    check(!load(put("feff.bin", "\xff\xfe\1\2", 4), NULL, &s) && s.n_tokens == 2);
    const char *d = sk_print(&arena, "%s/sets", dir);
    check(!mkdir(d, 0700));
    put_text("sets/train.txt", "one"), put_text("sets/more.txt", "two");
    check(!load(d, NULL, &s) && holds(&s, "two\none\n"));
    put_text("sets/validation-0.jsonl", "{\"text\":\"three\"}");
    refused(load(d, NULL, &s), SK_EDATA, "sets/train.txt data.val=");
    put_text("sets/a.csv", "one"), check(!unlink(sk_print(&arena, "%s/train.txt", d)));
    refused(load(d, NULL, &s), SK_EDATA, "sets/a.csv is called a table (CSV)");
}

static void bad_texts(void)
{
    sk_store s = {0};
    sk_text packed = {0};
    refused(load("kjb", NULL, &s), SK_EDATA, "did you mean \"kjv\"");
    refused(load("/no/such/file", NULL, &s), SK_EDATA, "no file, directory or known name");
    refused(load(sk_print(&arena, "%s/*.none", dir), NULL, &s), SK_EDATA, "no file matches");
    refused(load(put_text("empty.txt", ""), NULL, &s), SK_EDATA, "holds no text");
    refused(load(put("zero.dat", "a\0b", 3), NULL, &s), SK_EDATA, "tried idx, kjv, ");
    refused(load(put_text("d.jsonl", "{\"text\":\"x\"}\n{\"text\":3}"), NULL, &s), SK_EDATA,
            "d.jsonl:2");
    refused(load(put_text("e.jsonl", "{\"text\":\"x\"}\n{\"text\":"), NULL, &s), SK_EDATA,
            "not JSON");
    refused(load(put_text("f.jsonl", "{\"text\":\"\xff\"}"), NULL, &s), SK_EDATA, "not JSON");
    /* what is called .jsonl is never plain text */
    refused(load(put_text("g.jsonl", "\n[\"text\"]"), NULL, &s), SK_EDATA,
            "g.jsonl:2: no \"text\"");
    refused(load(put_text("h.jsonl", "\"text\""), NULL, &s), SK_EDATA, "h.jsonl:1:");
    refused(load(put_text("i.jsonl", "plain words"), NULL, &s), SK_EDATA, "i.jsonl:1:");
    refused(load(put_gz("j.jsonl.gz", "plain words", 11), NULL, &s), SK_EDATA, "j.jsonl.gz:1:");
    refused(load(put_text("k.jsonl", " \n\n"), NULL, &s), SK_EDATA, "holds no text");
    refused(load(put_text("l.jsonl", "{\"text\":\"\"}"), NULL, &s), SK_EDATA, "holds no text");
    refused(load(sk_print(&arena, "%s/[ai].*", dir), NULL, &s), SK_EDATA, "i.jsonl:1:");
    check(!mkdir(sk_print(&arena, "%s/none", dir), 0700));
    refused(load(sk_print(&arena, "%s/none", dir), NULL, &s), SK_EDATA, "holds no file");
    put("many/deep/4.png", "\x89PNG\0", 5);
    refused(load(sk_print(&arena, "%s/many", dir), NULL, &s), SK_EDATA, "4.png is not text");
    check(!mkfifo(sk_print(&arena, "%s/fifo", dir), 0600));
    refused(load(sk_print(&arena, "%s/fifo", dir), NULL, &s), SK_EDATA, "no file, directory");
    char noise[4000];
    for (int i = 0; i < 4000; i++) noise[i] = (char)('a' + sk_rng(1, 2, (uint64_t)i).a % 26);
    check(!sk_file_read(&arena, put_gz("g.gz", noise, sizeof noise), &packed) && packed.n > 200);
    put("short.gz", packed.s, packed.n - 60);
    refused(load(sk_print(&arena, "%s/short.gz", dir), NULL, &s), SK_EDATA, "damaged");
    char *broken = memcpy(sk_alloc(&arena, packed.n), packed.s, packed.n);
    broken[packed.n - 6] ^= 1; /* the checksum at the end */
    refused(load(put("crc.gz", broken, packed.n), NULL, &s), SK_EDATA, "damaged");
    refused(sk_data_read(&arena, sk_print(&arena, "%s/big.gz", dir), 1000, &packed), SK_EDATA,
            "more than the 1000 bytes");
    bad_gz_ends();
    gz_lies();
}

/* --- token files ----------------------------------------------------------- */

static int64_t id_at(const sk_store *s, int64_t i)
{
    sk_feed f;
    int32_t id = -1;
    if (sk_feed_open(&f, s, 1, 1, 0, false)) return -1;
    return sk_feed_fill(&f, "tokens", i, 0, 1, 0, 1, &id) ? -2 : id;
}

static const char *put_llmc(const char *name, int32_t magic, int32_t version, int32_t n, int width)
{
    char file[1024 + 400] = {0};
    int32_t head[3] = {magic, version, n};
    memcpy(file, head, sizeof head);
    for (int i = 0; i < 100; i++) {
        uint32_t id = (uint32_t)(i * 300 % 50257);
        memcpy(file + 1024 + i * width, &id, (size_t)width); /* little endian, as the format is */
    }
    return put(name, file, (size_t)(1024 + 100 * width));
}

static void token_files(void)
{
    sk_store s = {0}, again = {0};
    uint16_t raw[50];
    check(!load(put_llmc("a.bin", 20240520, 1, 100, 2), NULL, &s) && s.n_tokens == 100);
    check(s.token_bytes == 2 && s.vocab == 65536 && id_at(&s, 7) == 2100 && id_at(&s, 98) == 29400);
    check(!load(put_llmc("b.dat", 20240801, 7, 100, 4), NULL, &s) && s.n_tokens == 100);
    check(s.token_bytes == 4 && id_at(&s, 98) == 29400);
    for (int i = 0; i < 50; i++) raw[i] = (uint16_t)(i * 5);
    check(!mkdir(sk_print(&arena, "%s/nano", dir), 0700));
    put("nano/train.bin", raw, 100), put("nano/val.bin", raw, 20), put_text("nano/a.txt", "readme");
    check(!load(sk_print(&arena, "%s/nano", dir), NULL, &s) && s.n_tokens == 50 &&
          id_at(&s, 3) == 15);
    check(!sk_store_open(&arena, sk_print(&arena, "%s/nano", dir), NULL, true, &s) &&
          s.n_tokens == 10);
    check(!load(sk_print(&arena, "%s/nano/*.bin", dir), NULL, &s) && s.n_tokens == 60);
    check(id_at(&s, 52) == 10);
    /* ids are held to the model's vocabulary, at the place where one lies */
    check(!load(sk_print(&arena, "%s/nano/train.bin", dir), NULL, &s) && !sk_store_fit(&s, 200));
    check(s.vocab == 200 && id_at(&s, 39) == 195 && id_at(&s, 40) == -2);
    check(strstr(sk_error_line(), "train.bin: the token at byte 80 is 200, ids must be below 200"));
    sk_store_cut(&s, 0.5, &again, &s);
    check(id_at(&s, 15) == -2 && strstr(sk_error_line(), "byte 80 is 200"));
    /* a file that changes under the run */
    check(truncate(sk_print(&arena, "%s/nano/train.bin", dir), 40) == 0);
    check(id_at(&again, 0) == -2 && strstr(sk_error_line(), "was written to while"));
}

static void bad_token_files(void)
{
    sk_store s = {0};
    refused(load(put_llmc("c.bin", 20240520, 2, 100, 2), NULL, &s), SK_EDATA,
            "version 2, needed is 1");
    refused(load(put_llmc("c.bin", 20240520, 1, 101, 2), NULL, &s), SK_EDATA,
            "promises 101 tokens");
    refused(load(put_llmc("c.bin", 20240801, 7, -5, 4), NULL, &s), SK_EDATA, "promises -5 tokens");
    for (int i = 0; i < 2; i++) { /* cut inside the header, and behind it */
        const char *cut = put_llmc("cut.bin", i ? 20240801 : 20240520, i ? 7 : 1, 100, i ? 4 : 2);
        check(!truncate(cut, 1100));
        refused(load(cut, NULL, &s), SK_EDATA, "promises 100 tokens");
        check(!truncate(cut, 500));
        refused(load(cut, NULL, &s), SK_EDATA, "500 bytes and begins like llm.c tokens");
        refused(sk_store_open_as(&arena, cut, NULL, false, (sk_data_hint){.id_bytes = 2}, &s),
                SK_EDATA, "500 bytes and begins");
    }
    refused(load(put("odd.bin", "abc", 3), NULL, &s), SK_EDATA, "3 bytes, no multiple of 2: it");
    refused(load(put("none.bin", "", 0), NULL, &s), SK_EDATA, "is empty");
    put_llmc("mix1.bin", 20240520, 1, 100, 2), put_llmc("mix2.bin", 20240801, 7, 100, 4);
    refused(load(sk_print(&arena, "%s/mix*.bin", dir), NULL, &s), SK_EDATA, "ids of 4 bytes");
    s = (sk_store){.vocab = 300, .describe = "x"};
    refused(sk_store_fit(&s, 256), SK_ECONF, "vocab_size is 256");
}

/* Every id is looked at before it is trained on: at the start, or soon after. */
static void check_ids(void)
{
    enum { N = 600 };
    uint16_t ids[N];
    sk_store s = {0}, head, tail;
    sk_id_check c = {0};
    for (int i = 0; i < N; i++) ids[i] = (uint16_t)(i % 256 + 3000 * (i == 555));
    check(!load(put("ids.bin", ids, sizeof ids), NULL, &s) && !sk_id_check_begin(&c, &s));
    check(c.first == N && c.done == N && !sk_store_fit(&s, 256)); /* now the model is known */
    refused(sk_id_check_begin(&c, &s), SK_EDATA, "ids.bin: the token at byte 1110 is 3043");
    sk_store_cut(&s, 0.5, &head, &tail);
    check(!sk_id_check_begin(&c, &head) && c.done == N / 2);
    refused(sk_id_check_begin(&c, &tail), SK_EDATA, "byte 1110 is 3043, ids must be below 256");
    /* of several files the one that has it is named */
    put_llmc("j1.bin", 20240520, 1, 100, 2), put_llmc("j2.bin", 20240520, 1, 100, 2);
    check(!load(sk_print(&arena, "%s/j?.bin", dir), NULL, &s) && s.n_tokens == 200);
    check(!sk_store_fit(&s, 60000) && !sk_id_check_begin(&c, &s));
    ((uint16_t *)(uintptr_t)s.tokens)[130] = 65000;
    refused(sk_id_check_begin(&c, &s), SK_EDATA, "j2.bin: the token at byte 1084 is 65000");
    /* over 256 MiB: blocks at the start, the rest later; holes cost no disk */
    const char *big = put("huge.bin", ids, 200);
    int fd = open(big, O_WRONLY);
    check(fd >= 0 && !ftruncate(fd, (off_t)300 << 20));
    int64_t between = (int64_t)(300 << 20) / 4096 * 77 + (70 << 10);
    check(pwrite(fd, ids + 555, 2, between) == 2 && !close(fd));
    check(!load(big, NULL, &s) && !sk_store_fit(&s, 256) && !sk_id_check_begin(&c, &s));
    check(c.first == (256 << 20) / 2 && c.done == 0);
    sk_status st = SK_OK;
    int times = 0;
    while (!st && c.done < s.n_tokens) st = sk_id_check_more(&c, times % 2 ? 0.001 : 0), times++;
    refused(st, SK_EDATA, sk_print(&arena, "byte %lld is 3043", (long long)between));
    check(times > 1 && !unlink(big));
    sk_mapped_close(s.map);
}

/* Ids without a header: what they are taken for, and what is said about it. */
static void raw_files(void)
{
    enum { N = 600 };
    uint16_t narrow[N];
    uint32_t wide[N], large[N], few[N];
    sk_store s = {0};
    for (uint32_t i = 0; i < N; i++) {
        narrow[i] = (uint16_t)(i * 83 % 5003), wide[i] = i * 83 % 50257;
        large[i] = i * 83 % 3 ? i * 331 : i, few[i] = i % 7;
    }
    check(!load(put("narrow.bin", narrow, sizeof narrow), NULL, &s) && s.token_bytes == 2);
    check(s.n_tokens == N && s.assumed && strstr(s.describe, "600 tokens · uint16 assumed"));
    check(!load(put("wide.bin", wide, sizeof wide), NULL, &s) && s.token_bytes == 4);
    check(s.n_tokens == N && id_at(&s, 5) == 415 && s.assumed && s.ready_made);
    check(strstr(s.describe, "uint32 assumed") != NULL);
    check(!load(put("large.bin", large, sizeof large), NULL, &s) && s.token_bytes == 4);
    check(!load(put("few.bin", few, sizeof few), NULL, &s) && s.token_bytes == 4);
    for (uint32_t i = 0; i < N; i++) narrow[i] = (uint16_t)(i % 7);
    const char *tiny = put("tiny.bin", narrow, sizeof narrow);
    check(!load(tiny, NULL, &s) && s.token_bytes == 2);
    check(!sk_store_open_as(&arena, tiny, NULL, false, (sk_data_hint){.id_bytes = 4}, &s) &&
          s.token_bytes == 4);
    check(s.n_tokens == N / 2 && !s.assumed && strstr(s.describe, "300 tokens · uint32"));
    sk_feed f;
    int32_t ids[8];
    check(!sk_store_fit(&s, 256) && !sk_feed_open(&f, &s, 8, 1, 1, false));
    refused(sk_feed_fill(&f, "tokens", 0, 0, 1, 0, 8, ids), SK_EDATA,
            "or with ids of another size than uint32 (data.dtype)");
    const char *path = sk_print(&arena, "%s/wide.bin", dir);
    check(!sk_store_open_as(&arena, path, NULL, false, (sk_data_hint){.id_bytes = 2}, &s) &&
          s.n_tokens == 2 * N);
    refused(sk_store_open_as(&arena, put("six.bin", wide, 6), NULL, false,
                             (sk_data_hint){.id_bytes = 4}, &s),
            SK_EDATA, "6 bytes, no multiple of 4: it cannot be raw uint32");
    /* the ids say what they are, not the size: stray bytes at the end do not make them uint16 */
    for (size_t more = 1; more < 4; more++) {
        path = put("stray.bin", wide, sizeof wide - 4 + more);
        refused(load(path, NULL, &s), SK_EDATA, "no multiple of 4: it cannot be raw uint32");
        refused(load(path, NULL, &s), SK_EDATA, "every second id would be almost 0");
    }
    check(!load(put("narrow.bin", narrow, sizeof narrow - 2), NULL, &s) && s.n_tokens == N - 1);
    path = put_llmc("head.bin", 20240520, 1, 100, 2);
    check(!sk_store_open_as(&arena, path, NULL, false, (sk_data_hint){.id_bytes = 2}, &s) &&
          !s.assumed);
    refused(sk_store_open_as(&arena, path, NULL, false, (sk_data_hint){.id_bytes = 4}, &s),
            SK_EDATA, "says that its ids have 2 bytes, data.dtype=uint32");
}

/* A folder of shards has its own validation data; a README in it is no text to train on. */
static void shards(void)
{
    sk_store s = {0};
    const char *d = sk_print(&arena, "%s/fine", dir);
    uint16_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = (uint16_t)(900 + i);
    check(!mkdir(d, 0700));
    put_text("fine/README.md", "about these files");
    put("fine/web_val_000000.bin", ids, 60);
    check(!sk_store_open(&arena, d, NULL, true, &s) && s.n_tokens == 30);
    refused(load(d, NULL, &s), SK_EDATA, "has no train.bin and no NAME_train_N.bin");
    put_llmc("fine/web_train_000002.bin", 20240520, 1, 100, 2);
    put_llmc("fine/web_train_000001.bin", 20240520, 1, 100, 2);
    check(!load(d, NULL, &s) && s.n_tokens == 200 && strstr(s.describe, "fine · 2 files · 200"));
    check(sk_store_brings_val(d) && !sk_store_open(&arena, d, NULL, true, &s) && s.n_tokens == 30);
    put_llmc("fine/other_train_000001.bin", 20240520, 1, 100, 2);
    refused(load(d, NULL, &s), SK_EDATA, "several sets, other_train_000001.bin and web_train");
    put("fine/train.bin", ids, 80); /* plain names go first */
    check(!load(d, NULL, &s) && s.n_tokens == 40 && sk_store_brings_val(d));
    check(!unlink(sk_print(&arena, "%s/web_val_000000.bin", d)) && !sk_store_brings_val(d));
    refused(sk_store_open(&arena, d, NULL, true, &s), SK_EDATA, "has no val.bin");
}

typedef struct megatron {
    uint8_t type;
    uint64_t n, docs;
    int32_t len[3];
    int64_t at[3];
} megatron;

static void put_index(const char *name, const megatron *m)
{
    char file[200] = "MMIDIDX";
    uint64_t version = 1;
    int64_t docs[2] = {0, 3};
    memcpy(file + 9, &version, 8), memcpy(file + 17, &m->type, 1);
    memcpy(file + 18, &m->n, 8), memcpy(file + 26, &m->docs, 8);
    memcpy(file + 34, m->len, 12), memcpy(file + 46, m->at, 24), memcpy(file + 70, docs, 16);
    put(name, file, 86);
}

static void megatron_files(void)
{
    sk_store s = {0};
    uint16_t ids[6] = {5, 6, 7, 8, 9, 40000};
    megatron good = {8, 3, 2, {2, 1, 3}, {0, 4, 6}}, m = good;
    put("m.bin", ids, sizeof ids), put_index("m.idx", &good);
    static const char *const names[] = {"m", "m.bin", "m.idx"};
    for (int i = 0; i < 3; i++) {
        check(!load(sk_print(&arena, "%s/%s", dir, names[i]), NULL, &s));
        check(s.n_tokens == 6 && s.token_bytes == 2 && id_at(&s, 4) == 9);
    }
    const char *path = sk_print(&arena, "%s/m", dir);
    m.type = 5, put_index("m.idx", &m);
    refused(load(path, NULL, &s), SK_EDATA, "type 5");
    m = good, m.n = 1ull << 62, put_index("m.idx", &m);
    refused(load(path, NULL, &s), SK_EDATA, "cannot hold them");
    m = good, m.len[1] = -1, put_index("m.idx", &m);
    refused(load(path, NULL, &s), SK_EDATA, "sequence 1 does not follow");
    m = good, m.len[2] = 9, put_index("m.idx", &m);
    refused(load(path, NULL, &s), SK_EDATA, "the sequences have 24 bytes");
}

/* --- images ------------------------------------------------------------------ */

static void images(void)
{
    uint8_t pics[16 + 4 * 6] = {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 3};
    uint8_t names[8 + 4] = {0, 0, 8, 1, 0, 0, 0, 4, 3, 1, 0, 2};
    sk_store s = {0};
    sk_feed f;
    float x[2 * 4];
    int32_t y[2];
    for (int i = 0; i < 24; i++) pics[16 + i] = (uint8_t)(i * 10);
    check(!mkdir(sk_print(&arena, "%s/pics", dir), 0700));
    put("pics/train-images-idx3-ubyte", pics, sizeof pics);
    put_gz("pics/train-labels-idx1-ubyte.gz", names, sizeof names);
    put_gz("pics/t10k-images-idx3-ubyte.gz", pics, sizeof pics);
    put_gz("pics/t10k-labels-idx1-ubyte.gz", names, sizeof names);
    const char *path = sk_print(&arena, "%s/pics", dir);
    check(!sk_store_open(&arena, path, NULL, true, &s) && s.n_rows == 4 && s.row_size == 6);
    check(sk_store_brings_val(path));
    check(!load(path, NULL, &s) && s.n_rows == 4 && s.row_size == 6 && s.vocab == 4);
    check(!load(sk_print(&arena, "%s/train-images-idx3-ubyte", path), NULL, &s) && s.n_rows == 4);
    check(!sk_feed_open(&f, &s, 1, 3, 1, false) && f.n_windows == 4);
    check(!sk_feed_fill(&f, "targets", 1, 0, 2, 0, 1, y) && y[0] == 2 && y[1] == 3); /* wraps */
    check(!sk_feed_fill(&f, "pixels", 0, 1, 2, 1, 4, x));
    check(x[0] == 70.0f / 255 && x[3] == 100.0f / 255 && x[4] == 130.0f / 255);
    refused(sk_feed_fill(&f, "tokens", 0, 0, 1, 0, 1, y), SK_ECONF,
            "has none: it has pixels, targets, weights");
    check(!sk_store_offers(&s, "a model", "pixels", "bx", SK_F32, 6));
    refused(sk_store_offers(&s, "a model", "pixels", "bx", SK_F32, 7), SK_ECONF,
            "has 6 numbers per row, a model reads 7 as \"pixels\"");
    refused(sk_store_offers(&s, "a model", "targets", "bt", SK_I32, 1), SK_ECONF,
            "a model reads \"targets\" as i32 of bt, and");
    refused(sk_store_offers(&s, "a model", "pos", "bt", SK_I32, 1), SK_ECONF,
            "a model reads \"pos\", and");
    f.store.vocab = 3;
    refused(sk_feed_fill(&f, "targets", 0, 0, 1, 0, 1, y), SK_EDATA, "label of sample 0 is 3");
    names[7] = 3;
    put_gz("pics/train-labels-idx1-ubyte.gz", names, sizeof names);
    refused(load(path, NULL, &s), SK_EDATA, "says 3 bytes, the file has 4");
    names[3] = 9;
    put_gz("pics/train-labels-idx1-ubyte.gz", names, sizeof names);
    refused(load(path, NULL, &s), SK_EDATA, "no IDX file of bytes");
    memset(pics + 4, 0xff, 12);
    put("pics/train-images-idx3-ubyte", pics, sizeof pics);
    refused(load(path, NULL, &s), SK_EDATA, "dim 1 is");
    refused(load(put("lone-images-idx3-ubyte", pics, 20), NULL, &s), SK_EDATA,
            "no labels beside it");
}

/* --- tokenizers ---------------------------------------------------------------- */

static bool encodes(const sk_tokenizer *t, const char *text, const char *want)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    sk_out got = {.arena = &arena}, back = {.arena = &arena};
    if (sk_tokenizer_encode(t, &arena, text, strlen(text), &ids, &n)) return false;
    sk_out_add(&got, "%s", ""), sk_out_add(&back, "%s", "");
    for (int64_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *piece = sk_tokenizer_piece(t, ids[i], &len);
        sk_out_add(&got, "%s%d", i ? " " : "", ids[i]);
        sk_out_add(&back, "%.*s", (int)len, piece);
    }
    bool ok = !strcmp(got.s, want) && !strcmp(back.s, text);
    if (!ok) printf("  \"%s\": got %s, want %s, back \"%s\"\n", text, got.s, want, back.s);
    return ok;
}

static void byte_tokenizer(void)
{
    sk_tokenizer *t = NULL, *u = NULL;
    check(!sk_tokenizer_open(&arena, "byte", &t) && sk_tokenizer_vocab(t) == 256);
    check(encodes(t, "Ah\n\xc3\xa9", "65 104 10 195 169"));
    /* what is exported comes back as the same tokenizer */
    const char *json = sk_tokenizer_json(t, &arena);
    check(!sk_tokenizer_open(&arena, put_text("tokenizer.json", json), &u));
    check(sk_tokenizer_is_byte(u) && sk_tokenizer_vocab(u) == 256);
    check(encodes(u, "Ah\n\xc3\xa9", "65 104 10 195 169"));
    check(!strcmp(sk_tokenizer_json(u, &arena), json));
    check(!sk_tokenizer_open(&arena, dir, &u));
    size_t n = 9;
    for (int id = 0; id < 256; id++) check((uint8_t)*sk_tokenizer_piece(t, id, &n) == id && n == 1);
    check(*sk_tokenizer_piece(t, 256, &n) == 0 && n == 0);
    check(*sk_tokenizer_piece(t, -1, &n) == 0 && n == 0);
}

/* What is there under the name and cannot be read is an error, not "no tokenizer": a model's own
 * directory would fall back to bytes (src/cli/conf.c asks sk_data_has). */
static void unreadable_tokenizers(void)
{
    static const char *const leads[] = {"nowhere", "tokenizer.json", "/dev/null", "."};
    sk_tokenizer *t = NULL;
    const char *d = sk_print(&arena, "%s/dead", dir),
               *path = sk_print(&arena, "%s/%s", d, "tokenizer.json");
    check(!mkdir(d, 0700) && !sk_data_has(d, "tokenizer.json") && !sk_is_there(path));
    refused(sk_tokenizer_open(&arena, d, &t), SK_EDATA, "tokenizer.json is no file");
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        check(!symlink(leads[i], path) && sk_data_has(d, "tokenizer.json"));
        refused(sk_tokenizer_open(&arena, d, &t), SK_EDATA, "tokenizer.json is there and is no");
        check(!unlink(path));
    }
    check(!mkfifo(path, 0600) && sk_data_has(d, "tokenizer.json"));
    refused(sk_tokenizer_open(&arena, d, &t), SK_EDATA, "tokenizer.json is there and is no");
    check(!unlink(path) && !mkdir(path, 0700) && sk_data_has(d, "tokenizer.json"));
    refused(sk_tokenizer_open(&arena, d, &t), SK_EDATA, "tokenizer.json is there and is no");
    check(!rmdir(path) && !rmdir(d));
}

/* A small BPE: "\304\240" is GPT-2's sign for a space, "\304\212" for a newline. */
#define VOCAB                                                                                  \
    "\"l\":0,\"o\":1,\"w\":2,\"e\":3,\"r\":4,\"\304\240\":5,\"lo\":6,\"low\":7,\"er\":8,"      \
    "\"\304\240low\":9,\"\304\240l\":10,\"we\":11,\"'\":12,\"s\":13,\"\304\212\":14,\"1\":15," \
    "\"\303\203\":16,\"\302\251\":17,\"lll\":18,\"ll\":19"
#define SPLIT \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define ADDED                                                                                 \
    "\"added_tokens\":[{\"id\":20,\"content\":\"<|endoftext|>\"},{\"id\":21,\"content\":\"<|" \
    "end\"}]"
#define MODEL(vocab, merges) \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"
#define MERGES "\"l o\",[\"lo\",\"w\"],\"e r\",\"\304\240 low\",\"w e\",\"l l\",\"ll l\""

static sk_status tokenizer(const char *json, sk_tokenizer **t)
{
    return sk_tokenizer_open(&arena, put_text("t.json", json), t);
}

static void small_bpe(void)
{
    sk_tokenizer *t = NULL;
    sk_store s = {0};
    check(!tokenizer("{" ADDED "," SPLIT "," MODEL(VOCAB, MERGES) "}", &t));
    check(sk_tokenizer_vocab(t) == 22 && !strcmp(sk_tokenizer_end(t), "<|endoftext|>"));
    check(encodes(t, "low lower", "7 9 8"));
    check(encodes(t, "wer", "2 8"));     /* e r was learned before w e */
    check(encodes(t, "llll", "19 19"));  /* from the left, and pairs that are used up are stale */
    check(encodes(t, "lllll", "19 18")); /* ... then ll l */
    check(encodes(t, "low's", "7 12 13"));
    check(encodes(t, "low  low", "7 5 9")); /* the last space belongs to the word */
    check(encodes(t, "low\n\n", "7 14 14"));
    check(encodes(t, "l1o", "0 15 1")); /* letters and digits never merge */
    check(encodes(t, "\xc3\xa9", "16 17"));
    check(encodes(t, "low<|endoftext|>low", "7 20 7"));
    check(encodes(t, "<|end<|endoftext|>", "21 20")); /* longest first */
    check(encodes(t, "", ""));
    refused(sk_tokenizer_encode(t, &arena, "lox", 3, &(int32_t *){0}, &(int64_t){0}), SK_EDATA,
            "byte 0x78 (at byte 2) has no id");
    refused(sk_tokenizer_encode(t, &arena, "lo\xff", 3, &(int32_t *){0}, &(int64_t){0}), SK_EDATA,
            "byte 0xff");
    check(!load(put_text("low.jsonl", "{\"text\":\"low\"}\n{\"text\":\" lower\"}"), t, &s));
    check(s.vocab == 22 && s.token_bytes == 2 && s.n_tokens == 5);
    check(!memcmp(s.tokens, (uint16_t[]){7, 20, 9, 8, 20}, 10));
    char *slow = sk_alloc(&arena, 200001); /* one long word: n log n, not n squared */
    memset(slow, 'l', 200000);
    int32_t *ids = NULL;
    int64_t n = 0;
    check(!sk_tokenizer_encode(t, &arena, slow, 200000, &ids, &n) && n == 100000 && ids[9] == 19);
}

static void other_bpes(void)
{
    sk_tokenizer *t = NULL;
    check(!tokenizer(
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"pattern\":{\"Regex\":\"[a-k]+|\\\\s*\"},\"behavior\":\"Isolated\"},{\"type\":"
        "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
        "\"model\":{\"ignore_merges\":true,\"vocab\":{" VOCAB "},\"merges\":[\"l o\"]}}",
        &t));
    check(encodes(t, "low", "7"));    /* the whole word, though its merge is not there */
    check(encodes(t, "lowe", "7 3")); /* the expression cuts before e */
}

static void bad_bpes(void)
{
    sk_tokenizer *t = NULL;
    refused(sk_tokenizer_open(&arena, "/no/such", &t), SK_EDATA, "is no file");
    refused(sk_tokenizer_open(&arena, "/", &t), SK_EDATA, "is no file");
    refused(tokenizer("", &t), SK_EDATA, "not JSON");
    refused(tokenizer("{\"model\":", &t), SK_EDATA, "not JSON");
    refused(tokenizer("[]", &t), SK_EDATA, "is no object");
    refused(tokenizer("{\"model\":{\"vocab\":[],\"merges\":{}}}", &t), SK_EDATA,
            "needs model.vocab");
    refused(tokenizer("{\"a\":1,\"a\":2}", &t), SK_EDATA, "duplicate");
    refused(tokenizer("{" SPLIT "," MODEL("", "") "}", &t), SK_EDATA, "empty");
    refused(tokenizer("{" SPLIT "," MODEL("\"a\":-1", "") "}", &t), SK_EDATA, "id -1");
    refused(tokenizer("{" SPLIT "," MODEL("\"a\":99999999999", "") "}", &t), SK_EDATA,
            "id 99999999999");
    refused(tokenizer("{" SPLIT "," MODEL("\"a\":1.5", "") "}", &t), SK_EDATA, "id -1");
    refused(tokenizer("{" SPLIT "," MODEL("\"a\":0,\"b\":0", "") "}", &t), SK_EDATA, "given twice");
    refused(tokenizer("{" SPLIT "," MODEL("\"a\":0", "\"a b\"") "}", &t), SK_EDATA, "merge 0");
    refused(tokenizer("{" SPLIT "," MODEL("\"a\":0", "\"a\"") "}", &t), SK_EDATA, "merge 0");
    refused(tokenizer("{" SPLIT "," MODEL("\"a\":0", "[1,2]") "}", &t), SK_EDATA, "merge 0");
    refused(
        tokenizer("{\"normalizer\":{\"type\":\"NFKC\"}," SPLIT "," MODEL("\"a\":0", "") "}", &t),
        SK_EDATA, "normalizer \"NFKC\"");
    refused(tokenizer("{\"model\":{\"type\":\"Unigram\"}}", &t), SK_EDATA, "Unigram");
    refused(
        tokenizer("{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":"
                  "{\"Regex\":\"(\"}}," MODEL("\"a\":0", "") "}",
                  &t),
        SK_EDATA, "split expression");
    refused(tokenizer("{\"added_tokens\":[3]," SPLIT "," MODEL("\"a\":0", "") "}", &t), SK_EDATA,
            "added token");
    check(!tokenizer("{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":"
                     "{\"Regex\":\"(a+)+[cd]\"}}," MODEL("\"a\":0,\"b\":1", "") "}",
                     &t));
    refused(sk_tokenizer_encode(t, &arena, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 41,
                                &(int32_t *){0}, &(int64_t){0}),
            SK_EDATA, "split expression fails");
    check(!tokenizer("{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"invert\":"
                     "true,\"pattern\":{\"Regex\":\"a+\"}}," MODEL("\"a\":0,\"b\":1", "") "}",
                     &t));
    check(encodes(t, "aa", "0 0"));
    refused(sk_tokenizer_encode(t, &arena, "aba", 3, &(int32_t *){0}, &(int64_t){0}), SK_EDATA,
            "does not match \"b\" (at byte 1), which would be lost");
    char deep[5000];
    memset(deep, '[', sizeof deep - 1), deep[sizeof deep - 1] = 0;
    refused(tokenizer(deep, &t), SK_EDATA, "not JSON");
}

/* Every prefix, and many one-byte changes, of a good file: an error message or a tokenizer, never a
 * crash.
 */
static void mangled_bpes(void)
{
    char json[] = "{" ADDED "," SPLIT "," MODEL(VOCAB, MERGES) "}";
    size_t n = sizeof json - 1, opened = 0;
    for (size_t i = 0; i < n; i++) {
        sk_tokenizer *t = NULL;
        sk_mark mark = sk_arena_mark(&arena);
        char keep = json[i];
        json[i] = (char)(keep ^ (1 << i % 7));
        opened +=
            !sk_tokenizer_open(&arena, put("bent.json", json, n), &t) && sk_tokenizer_vocab(t) > 0;
        json[i] = keep;
        check(sk_tokenizer_open(&arena, put("bent.json", json, i), &t) == SK_EDATA);
        sk_arena_back(&arena, mark);
    }
    check(opened > 0 && opened < n);
}

/* --- prompts with completions ------------------------------------------------------ */

static void prompts(void)
{
    static const char lines[] = "{\"prompt\": \"ask\", \"completion\": \"yes\"}\n"
                                "{\"completion\": \"no\", \"prompt\": \"a\", \"id\": 7}\n";
    static const int32_t want[] = {'a', 's', 'k', 'y', 'e', 's', '\n', 'a', 'n', 'o', '\n'};
    static const float counts[] = {0, 0, 1, 1, 1, 1, 0, 1, 1, 1}; /* of the tokens that follow */
    sk_store s = {0}, head, tail;
    sk_feed f;
    float w[10];
    check(!load(put_text("p.jsonl", lines), NULL, &s) && s.n_tokens == 11 && s.own_bytes == 11);
    check(!memcmp(s.tokens, want, sizeof want));
    check(!strcmp(s.describe, "p.jsonl · 11 tokens, 7 of them in completions"));
    check(!sk_feed_open(&f, &s, 10, 1, 1, false));
    check(!sk_feed_fill(&f, "weights", 0, 0, 1, 0, 10, w) && !memcmp(w, counts, sizeof w));
    check(!sk_feed_fill(&f, "weights", 3, 0, 1, 5, 3, w) && !memcmp(w, counts + 5, 12));
    sk_store_cut(&s, 0.5, &head, &tail); /* the end has the weights of its own tokens */
    check(!sk_feed_open(&f, &tail, 2, 2, 1, false) && tail.first == 6 && f.n_windows == 2);
    check(!sk_feed_fill(&f, "weights", 0, 0, 2, 0, 2, w) && !memcmp(w, counts + 6, 16));
    check(!load(put_gz("p.jsonl.gz", lines, sizeof lines - 1), NULL, &s) && s.n_tokens == 11);
    const char *plain = put_text("q.jsonl", lines); /* data.format=text: braces and all */
    sk_tokenizer *bytes = NULL;
    check(!sk_tokenizer_open(&arena, "byte", &bytes));
    check(!sk_store_open_as(&arena, plain, bytes, false, (sk_data_hint){.text = true}, &head));
    check(holds(&head, lines) && !sk_feed_open(&f, &head, 2, 1, 1, false));
    check(!sk_feed_fill(&f, "weights", 0, 0, 1, 0, 2, w) && w[0] == 1 && w[1] == 1);
    char one[SK_DIGEST], two[SK_DIGEST];
    sk_store_digest(&s, one);
    ((uint8_t *)(uintptr_t)s.own)[0] = 1;
    sk_store_digest(&s, two);
    check(strcmp(one, two) != 0); /* what counts is a part of the data */
    refused(load(put_text("p.jsonl", "{\"prompt\": \"a\", \"completion\": 3}"), NULL, &s), SK_EDATA,
            "p.jsonl:1: a \"prompt\" and a \"completion\" are needed");
    refused(load(put_text("p.jsonl", "{\"prompt\": \"a\", \"completion\": \"\"}\n{"), NULL, &s),
            SK_EDATA, "p.jsonl:2:1: not JSON");
    refused(sk_store_open(&arena, put_text("p.jsonl", lines), NULL, false, &s), SK_ECONF,
            "no tokenizer to read it with");
}

/* --- known names ------------------------------------------------------------------ */

static void known_names(void)
{
    sk_store s = {0};
    if (load("kjv", NULL, &s)) {
        check(strstr(sk_error_line(), "apt-get install bible-kjv") != NULL);
        printf("data: kjv skipped: %s\n", sk_error_line());
        skipped++;
    } else check(s.n_tokens == 4404412 && !memcmp(s.tokens, "Ge1:1 In the beginning God", 26));
    if (sk_store_open(&arena, "fashion-mnist", NULL, true, &s)) {
        check(strstr(sk_error_line(), "apt-get install dataset-fashion-mnist") != NULL);
        printf("data: fashion-mnist skipped: %s\n", sk_error_line());
        skipped++;
    } else check(s.n_rows == 10000 && s.row_size == 784 && s.vocab == 10);
    char *path = strdup(getenv("PATH") ? getenv("PATH") : "");
    setenv("PATH", "/nowhere", 1);
    refused(load("kjv", NULL, &s), SK_EDATA, "apt-get install bible-kjv");
    setenv("PATH", path, 1);
    free(path);
}

static void sweep(void)
{
    static const char *const folders[] = {"many/deep", "many", "links/in", "links", "none",
                                          "nano",      "sets", "pics",     "fine",  "."};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        sk_paths files = {0};
        char *folder = sk_print(&arena, "%s/%s", dir, folders[i]);
        unlink(sk_print(&arena, "%s/.hidden", folder));
        unlink(sk_print(&arena, "%s/fifo", folder));
        if (!sk_data_list(&arena, folder, &files))
            for (int k = 0; k < files.n; k++) unlink(files.v[k]);
        rmdir(folder);
    }
    check(rmdir(dir) == 0);
}

int main(void)
{
    if (!mkdtemp(dir)) return 2;
    feeds();
    texts();
    linked_texts();
    foreign_files();
    bad_texts();
    token_files();
    bad_token_files();
    check_ids();
    raw_files();
    shards();
    megatron_files();
    images();
    byte_tokenizer();
    unreadable_tokenizers();
    small_bpe();
    other_bpes();
    bad_bpes();
    mangled_bpes();
    prompts();
    known_names();
    sweep();
    sk_arena_end(&arena);
    printf("data: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
