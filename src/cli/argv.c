/* argv.c - reading the words of a command, and tables. */
#include "cli/argv.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/setting.h"
#include "comm/boot.h"
#include "layout/layout.h"
#include "train/default_layout.h"
#include "tensor/strict.h"
#include "train/rundir.h"
#include "train/setup.h"

#include <stdlib.h>
#include <string.h>

/* --- launchers --- */

sk_status sk_argv_alone(sk_arena *a, const char *command, bool ranks)
{
    sk_boot boot = {0};
    SK_TRY(sk_boot_detect(a, &boot));
    if (boot.n_ranks < 2) return SK_OK;
    if (ranks)
        return sk_fail(SK_EUSAGE,
                       "%s started %d ranks; skein %s starts its ranks itself, on one host: skein "
                       "%s -n %d",
                       boot.by, boot.n_ranks, command, command, boot.n_ranks);
    return sk_fail(SK_EUSAGE,
                   "%s started %d ranks; skein %s is one process, and starts what it measures "
                   "itself: leave the launcher out",
                   boot.by, boot.n_ranks, command);
}

/* --- commands about a job --- */

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

static bool ranks_said(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (begins(argv[i], "-n") || begins(argv[i], "ranks=") || begins(argv[i], "--ranks"))
            return true;
    return false;
}

static bool layout_said(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (begins(argv[i], "layout=") || begins(argv[i], "--layout")) return true;
    return false;
}

static sk_status load(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest)
{
    SK_TRY(sk_conf_load(a, argc, argv, job, rest));
    if (!rest->help && job->ranks == 1 && !ranks_said(argc, argv)) job->ranks = 0;
    return SK_OK;
}

/* config.yaml of a run; if that is gone, the newest checkpoint's own; NULL: there is neither. */
static sk_status find_config(sk_arena *a, const char *dir, char **out)
{
    int64_t *steps;
    int n = 0;
    sk_ckpt_found f = {0};
    *out = sk_print(a, "%s/config.yaml", dir);
    if (sk_is_file(*out)) return SK_OK;
    *out = NULL;
    const char *home = sk_print(a, "%s/ckpt", dir);
    SK_TRY(sk_ckpt_list(a, home, &steps, &n));
    if (!n) return SK_OK;
    SK_TRY(sk_ckpt_find(a, home, -1, false, &f));
    *out = sk_print(a, "%s/" SK_MANIFEST_FILE, f.path);
    return SK_OK;
}

/* A run is continued with the config it was begun with; words given now still count, and where
 * only ranks or only a layout is given anew, the old one of the other is not held against it.
 * job: its keys so far, from the words alone. */
static sk_status load_resumed(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest)
{
    char dir[PATH_MAX], *config = NULL;
    if (sk_rundir_resumed(job, dir)) SK_TRY(find_config(a, dir, &config));
    if (!config) return load(a, argc, argv, job, rest);
    if (strcmp(strrchr(config, '/') + 1, SK_MANIFEST_FILE)) SK_TRY(sk_conf_resumed(a, config));
    char **words = sk_many(a, char *, argc + 2);
    words[0] = config;
    memcpy(words + 1, argv, (size_t)argc * sizeof *argv);
    SK_TRY(load(a, argc + 1, words, job, rest));
    bool ranks = ranks_said(argc, argv), layout = layout_said(argc, argv);
    sk_layout l;
    if (layout && !ranks) job->ranks = 0;
    if (!ranks || layout || !sk_layout_read(job->layout, (int)job->ranks, &l)) return SK_OK;
    if (job->layout[0] && job->layout[strspn(job->layout, "dp=0123456789")])
        return sk_fail(SK_EUSAGE,
                       "the layout of %s is \"%s\", which is not for %lld rank%s; give the new one "
                       "too: layout=..., or layout=auto",
                       dir, job->layout, (long long)job->ranks, sk_plural(job->ranks));
    job->layout[0] = 0; /* plain data parallelism: of so many ranks now */
    return SK_OK;
}

sk_status sk_argv_job(sk_arena *a, int argc, char **argv, const char *usage, sk_job *job,
                      sk_conf_rest *rest)
{
    SK_TRY(sk_conf_keys(a, argc, argv, job, rest));
    if (rest->help) {
        printf("%s\n%s", usage, sk_conf_help(a, rest->options));
        return SK_OK;
    }
    if (rest->n_words)
        return sk_fail(SK_EUSAGE, "command line: \"%.80s\" is no key=value and no FILE.yaml",
                       rest->words[0]);
    if (*job->resume && !*job->source) return load_resumed(a, argc, argv, job, rest);
    return load(a, argc, argv, job, rest);
}

sk_status sk_argv_layout(sk_arena *a, sk_job *job)
{
    const char *line = NULL;
    SK_TRY(sk_default_layout(a, job, NULL, &line));
    if (line) fprintf(stderr, "skein: layout: %s\n", line);
    return SK_OK;
}

sk_status sk_argv_job_stands(const sk_setup *s)
{
    SK_TRY(sk_rundir_resumable(s->arena, s->job));
    return sk_setup_validations(s);
}

/* --- the others --- */

static const sk_argv_option *find(const sk_argv_option *o, const char *word, size_t n)
{
    while (o->name && (strlen(o->name) != n || strncmp(o->name, word, n))) o++;
    return o->name ? o : NULL;
}

static sk_status unknown(sk_arena *a, const sk_argv_option *o, const char *word)
{
    int n = 0;
    while (o[n].name) n++;
    const char **names = sk_many(a, const char *, n + 1);
    for (int i = 0; i < n; i++) names[i] = o[i].name;
    const char *near = sk_nearest(word, names, n);
    for (int i = 0; !near && i < n; i++) /* --temperature for --temp, --max-tokens for --tokens */
        if (strlen(names[i]) > 3 && strstr(word, names[i] + 2)) near = names[i];
    return sk_fail(SK_EUSAGE, "command line: unknown option \"%.80s\"%s%s%s", word,
                   near ? " - did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

sk_status sk_argv_words(sk_arena *a, int argc, char **argv, const sk_argv_option *options,
                        const char **words, int most, int *n)
{
    *n = 0;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i], *equals = strchr(word, '=');
        if (word[0] != '-' || !word[1]) {
            if (*n == most)
                return sk_fail(SK_EUSAGE, "command line: \"%.80s\" is one word too many", word);
            words[(*n)++] = word;
            continue;
        }
        size_t len = equals ? (size_t)(equals - word) : strlen(word);
        const sk_argv_option *o = find(options, word, len);
        if (!o) return unknown(a, options, word);
        if (o->flag && equals)
            return sk_fail(SK_EUSAGE, "command line: %s takes no value", o->name);
        if (!o->flag && !equals && i + 1 == argc)
            return sk_fail(SK_EUSAGE, "command line: \"%s\" needs a value after it", o->name);
        *o->value = o->flag ? "yes" : equals ? equals + 1 : argv[++i];
    }
    return SK_OK;
}

/* --- tables --- */

void sk_table_add(sk_table *t, const char *const *cells)
{
    const char **row = sk_many(t->arena, const char *, t->n_cols);
    for (int i = 0; i < t->n_cols; i++) row[i] = cells[i] ? cells[i] : "";
    *(const char ***)sk_push(t->arena, &t->rows) = row;
}

static bool is_number(const char *s)
{
    char *end;
    if (!*s || strspn(s, "0123456789.eE+-") != strlen(s)) return false;
    strtod(s, &end);
    return !*end;
}

/* Characters on a terminal, where each takes one column: bytes that do not go on with one. */
static int wide(const char *s)
{
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

/* By its first cell that is not empty. */
static bool is_numbers(const sk_table *t, int column)
{
    int r = 0;
    while (r < t->rows.n && !*t->rows.v[r][column]) r++;
    return r < t->rows.n && is_number(t->rows.v[r][column]);
}

/* Columns up to the last cell that is not empty: no line ends with blanks. */
static int n_shown(const sk_table *t, const char *const *row)
{
    int n = t->n_cols;
    while (n > 1 && !*row[n - 1]) n--;
    return n;
}

static void put_text(const sk_table *t, FILE *to)
{
    for (int r = -1; r < t->rows.n; r++) {
        const char *const *row = r < 0 ? t->head : t->rows.v[r];
        int n = n_shown(t, row);
        for (int c = 0; c < n; c++) {
            const char *cell = row[c];
            bool right = is_numbers(t, c);
            int most = wide(t->head[c]);
            for (int k = 0; k < t->rows.n; k++)
                if (wide(t->rows.v[k][c]) > most) most = wide(t->rows.v[k][c]);
            int gap = most - wide(cell);
            if (right) fprintf(to, "%*s%s", gap, "", cell);
            else fprintf(to, "%s%*s", cell, c == n - 1 ? 0 : gap, "");
            fprintf(to, c == n - 1 ? "\n" : "  ");
        }
    }
}

static void put_csv(const sk_table *t, FILE *to)
{
    for (int r = -1; r < t->rows.n; r++)
        for (int c = 0; c < t->n_cols; c++) {
            const char *cell = r < 0 ? t->head[c] : t->rows.v[r][c];
            bool quote = strpbrk(cell, ",\"\n") != NULL;
            if (quote) fputc('"', to);
            for (; *cell; cell++) fprintf(to, quote && *cell == '"' ? "\"\"" : "%c", *cell);
            if (quote) fputc('"', to);
            fputc(c == t->n_cols - 1 ? '\n' : ',', to);
        }
}

static void put_md(const sk_table *t, FILE *to)
{
    for (int c = 0; c < t->n_cols; c++) fprintf(to, "| %s ", t->head[c]);
    fprintf(to, "|\n");
    for (int c = 0; c < t->n_cols; c++) fprintf(to, "|---");
    fprintf(to, "|\n");
    for (int r = 0; r < t->rows.n; r++) {
        for (int c = 0; c < t->n_cols; c++) fprintf(to, "| %s ", t->rows.v[r][c]);
        fprintf(to, "|\n");
    }
}

static void put_json(const sk_table *t, FILE *to)
{
    sk_out o = {.arena = t->arena};
    sk_out_add(&o, "[");
    for (int r = 0; r < t->rows.n; r++) {
        sk_out_add(&o, r ? ",\n {" : "\n {");
        for (int c = 0; c < t->n_cols; c++) {
            if (c) sk_out_add(&o, ", ");
            sk_strict_quote(&o, t->head[c]);
            sk_out_add(&o, ": ");
            if (is_number(t->rows.v[r][c])) sk_out_add(&o, "%s", t->rows.v[r][c]);
            else sk_strict_quote(&o, t->rows.v[r][c]);
        }
        sk_out_add(&o, "}");
    }
    fprintf(to, "%s\n]\n", o.s);
}

sk_status sk_table_print(const sk_table *t, const char *format, FILE *to)
{
    if (!format) put_text(t, to);
    else if (!strcmp(format, "csv")) put_csv(t, to);
    else if (!strcmp(format, "json")) put_json(t, to);
    else if (!strcmp(format, "md")) put_md(t, to);
    else
        return sk_fail(SK_EUSAGE, "command line: -o %s is unknown; there are csv, json and md",
                       format);
    return SK_OK;
}
