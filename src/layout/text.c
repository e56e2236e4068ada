/* text.c - reading layouts. */
#include "base/text.h"
#include "layout/inside.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 128, MAX_WORDS = 64, MOST_PARTS = 4096 }; /* parts: of a product, of results */

typedef struct words {
    char w[MAX_WORDS][WORD];
    int n;
} words;

/* Short words that imply more than an axis. */
static const struct sugar {
    const char *axis, *letters;
} sugar[] = {{"pp", ""}, {"dp", "b"}, {"cp", "t"}, {"ep", "be"}, {"tp", "hfv"}};
enum { N_SUGAR = sizeof sugar / sizeof *sugar };

static sk_status take_words(const char *line, size_t len, words *out)
{
    *out = (words){0};
    for (size_t i = 0; i < len;) {
        size_t from = i;
        while (i < len && !isspace((unsigned char)line[i]) && line[i] != ',') i++;
        if (i - from >= WORD)
            return sk_fail(SK_ECONF, "layout: a word of %zu characters at \"%.20s...\"", i - from,
                           line + from);
        if (i > from) {
            if (out->n == MAX_WORDS)
                return sk_fail(SK_ECONF, "layout: more than %d words in one line", MAX_WORDS);
            memcpy(out->w[out->n++], line + from, i - from);
        }
        while (i < len && (isspace((unsigned char)line[i]) || line[i] == ',')) i++;
    }
    return SK_OK;
}

static sk_status between(const char *word, const char *text, int least, int most, int *out)
{
    int64_t n = 0;
    if (!sk_read_int(text, &n) || n < least || n > most)
        return sk_fail(SK_ECONF, "layout: '%s' needs a whole number from %d to %d, found \"%s\"",
                       word, least, most, text);
    *out = (int)n;
    return SK_OK;
}

static sk_status number(const char *word, const char *text, int least, int *out)
{
    return between(word, text, least, SK_MOST_RANKS, out);
}

static sk_status axis_add(sk_mesh *m, const char *name, int size)
{
    if (sk_mesh_axis(m, name) >= 0)
        return sk_fail(SK_ECONF, "layout: the axis '%s' is named twice", name);
    if (m->n == SK_MAX_AXES) return sk_fail(SK_ECONF, "layout: more than %d axes", SK_MAX_AXES);
    if (!*name || strlen(name) >= SK_AXIS_NAME)
        return sk_fail(SK_ECONF, "layout: \"%s\" is no name for an axis (1 to %d characters)", name,
                       SK_AXIS_NAME - 1);
    snprintf(m->name[m->n], SK_AXIS_NAME, "%s", name);
    m->size[m->n++] = size;
    return SK_OK;
}

static sk_status find_axis(const sk_layout *l, const char *name, int *out)
{
    const char *names[SK_MAX_AXES];
    *out = sk_mesh_axis(&l->mesh, name);
    if (*out >= 0) return SK_OK;
    for (int i = 0; i < l->mesh.n; i++) names[i] = l->mesh.name[i];
    const char *near = sk_nearest(name, names, l->mesh.n);
    return sk_fail(SK_ECONF, "layout: the mesh has no axis '%s'%s%s%s", name,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static sk_status split_letters(sk_layout *l, int axis, const char *letters)
{
    for (const char *p = letters; *p; p++) {
        if (!isalpha((unsigned char)*p))
            return sk_fail(SK_ECONF, "layout: '%c' in \"split %s\" is no letter", *p, letters);
        size_t n = strlen(l->split[axis]);
        if (!sk_layout_splits(l, axis, *p) && n + 1 < sizeof l->split[axis]) l->split[axis][n] = *p;
    }
    return SK_OK;
}

/* Of a word that is said twice one would change nothing. */
static sk_status once(const char *word, bool said)
{
    return said ? sk_fail(SK_ECONF, "layout: '%s' is said twice", word) : SK_OK;
}

static sk_status set_micro(sk_layout *l, const char *text)
{
    SK_TRY(once("micro", l->n_micro));
    return number("micro", text, 1, &l->n_micro);
}

static sk_status set_chunks(sk_layout *l, const char *text)
{
    SK_TRY(once("chunks", l->chunks));
    return number("chunks", text, 1, &l->chunks);
}

static sk_status set_prefetch(sk_layout *l, const char *word, const char *text)
{
    SK_TRY(once(word, l->prefetch));
    return number(word, text, 0, &l->prefetch);
}

static sk_status set_schedule(sk_layout *l, const char *text)
{
    SK_TRY(once("schedule", l->schedule_said));
    if (!*text || strlen(text) >= sizeof l->schedule)
        return sk_fail(SK_ECONF, "layout: \"%s\" is no name for a schedule (1 to %zu characters)",
                       text, sizeof l->schedule - 1);
    snprintf(l->schedule, sizeof l->schedule, "%s", text);
    l->schedule_said = true;
    return SK_OK;
}

static sk_status set_by(sk_layout *l, int axis, const char *text)
{
    SK_TRY(once("by", l->by[axis]));
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, sk_by_names[i])) {
            l->by[axis] = (sk_by)i;
            return SK_OK;
        }
    return sk_fail(SK_ECONF, "layout: a letter is split by gather, exchange or ring, not by \"%s\"",
                   text);
}

/* --- the long form --- */

static sk_status say_mesh(sk_layout *l, const words *w)
{
    for (int i = 1; i < w->n; i++) {
        char name[WORD], *eq;
        int size = 0;
        snprintf(name, sizeof name, "%s", w->w[i]);
        if (!(eq = strchr(name, '=')))
            return sk_fail(SK_ECONF, "layout: \"mesh\" takes name=size, found \"%s\"", name);
        *eq = 0;
        SK_TRY(number(name, eq + 1, 1, &size));
        SK_TRY(axis_add(&l->mesh, name, size));
    }
    return SK_OK;
}

static sk_status say_split(sk_layout *l, const words *w)
{
    int axis = 0, over = 1;
    while (over < w->n && strcmp(w->w[over], "over")) over++;
    bool by = over + 4 == w->n && !strcmp(w->w[over + 2], "by");
    if (over == 1 || (over + 2 != w->n && !by))
        return sk_fail(SK_ECONF, "layout: \"split\" reads \"split LETTERS over AXIS "
                                 "[by gather|exchange|ring]\"");
    SK_TRY(find_axis(l, w->w[over + 1], &axis));
    if (by) SK_TRY(set_by(l, axis, w->w[over + 3]));
    for (int i = 1; i < over; i++) SK_TRY(split_letters(l, axis, w->w[i]));
    return SK_OK;
}

static sk_status say_shard(sk_layout *l, const words *w)
{
    static const char *const what[] = {"none", "state", "grads", "params"};
    int level = 0;
    if (w->n != 4 || strcmp(w->w[2], "over"))
        return sk_fail(SK_ECONF, "layout: \"shard\" reads \"shard state|grads|params over AXIS\"");
    while (level < 4 && strcmp(w->w[1], what[level])) level++;
    if (level == 4)
        return sk_fail(SK_ECONF, "layout: cannot shard \"%s\"; state, grads or params", w->w[1]);
    SK_TRY(once("shard", l->shard));
    l->shard = (sk_shard)level;
    SK_TRY(find_axis(l, w->w[3], &l->shard_axis));
    if (!level) l->shard_axis = -1; /* no axis has to cut last */
    return SK_OK;
}

static bool says(const words *w, const char *const *said, int n)
{
    bool same = w->n == n;
    for (int i = 0; same && i < n; i++) same = !strcmp(w->w[i], said[i]);
    return same;
}

static sk_status say_one(sk_layout *l, const words *w)
{
    static const char *const said[] = {"one", "copy", "of", "weights", "per", "host"};
    if (!says(w, said, (int)(sizeof said / sizeof *said)))
        return sk_fail(SK_ECONF, "layout: \"one\" reads \"one copy of weights per host\"");
    l->replica = true;
    return SK_OK;
}

static sk_status say_stages(sk_layout *l, const words *w)
{
    static const char reads[] = "layout: \"stages\" reads \"stages over AXIS [schedule NAME] "
                                "[chunks N] [micro N] [balanced]\"";
    if (w->n < 3 || strcmp(w->w[1], "over")) return sk_fail(SK_ECONF, "%s", reads);
    SK_TRY(once("stages", l->stage_axis >= 0));
    SK_TRY(find_axis(l, w->w[2], &l->stage_axis));
    for (int i = 3; i < w->n; i++) {
        if (!strcmp(w->w[i], "balanced")) {
            l->balance = true;
            continue;
        }
        if (i + 1 == w->n) return sk_fail(SK_ECONF, "%s", reads);
        if (!strcmp(w->w[i], "schedule")) SK_TRY(set_schedule(l, w->w[++i]));
        else if (!strcmp(w->w[i], "micro")) SK_TRY(set_micro(l, w->w[++i]));
        else if (!strcmp(w->w[i], "chunks")) SK_TRY(set_chunks(l, w->w[++i]));
        else return sk_fail(SK_ECONF, "layout: \"stages\" knows no \"%s\"", w->w[i]);
    }
    return SK_OK;
}

static sk_status say_gather(sk_layout *l, const words *w)
{
    if (w->n != 4 || strcmp(w->w[1], "weights") || strcmp(w->w[3], "ahead"))
        return sk_fail(SK_ECONF, "layout: \"gather\" reads \"gather weights N ahead\"");
    return set_prefetch(l, "gather", w->w[2]);
}

static sk_status set_overlap(sk_layout *l, const char *text)
{
    SK_TRY(once("overlap", l->overlap));
    return between("overlap", text, 1, MOST_PARTS, &l->overlap);
}

static sk_status say_overlap(sk_layout *l, const words *w)
{
    if (w->n != 4 || strcmp(w->w[1], "in") || strcmp(w->w[3], "turns"))
        return sk_fail(SK_ECONF, "layout: \"overlap\" reads \"overlap in N turns\"");
    return set_overlap(l, w->w[2]);
}

static sk_status set_slices(sk_layout *l, const char *text)
{
    SK_TRY(once("slices", l->slices));
    return between("slices", text, 1, MOST_PARTS, &l->slices);
}

static sk_status say_results(sk_layout *l, const words *w)
{
    if (w->n != 4 || strcmp(w->w[1], "in") || strcmp(w->w[3], "slices"))
        return sk_fail(SK_ECONF, "layout: \"results\" reads \"results in N slices\"");
    return set_slices(l, w->w[2]);
}

/* none, selective, full, so many blocks of a stage, or an op. */
static sk_status set_again(sk_layout *l, const char *what)
{
    SK_TRY(once("recompute", l->again_said));
    l->again_said = true;
    if (!strcmp(what, "none")) return SK_OK;
    bool blocks = *what >= '0' && *what <= '9';
    if (!blocks && (!*what || strlen(what) >= sizeof l->again))
        return sk_fail(SK_ECONF,
                       "layout: recompute=%.40s; none, selective, full, a number of blocks or the "
                       "name of an op is needed",
                       what);
    snprintf(l->again, sizeof l->again, "%s", blocks ? "full" : what);
    return blocks ? number("recompute", what, 1, &l->again_blocks) : SK_OK;
}

static sk_status say_again(sk_layout *l, const words *w)
{
    bool blocks = w->n == 3 && !strcmp(w->w[2], "blocks");
    if (w->n != 2 && !blocks)
        return sk_fail(SK_ECONF,
                       "layout: \"recompute\" reads \"recompute full\", \"recompute selective\", "
                       "\"recompute 4 blocks\" or \"recompute OP\"");
    return set_again(l, w->w[1]);
}

static int find_name(const char *const *names, int n, const char *name)
{
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0) i++;
    return i < n ? i : -1;
}

static sk_status set_home(sk_layout *l, const char *ware, const char *tier)
{
    int w = find_name(sk_ware_names, SK_N_WARES, ware),
        t = find_name(sk_tier_names, SK_N_TIERS, tier);
    bool all = !strcmp(ware, "all");
    if (w < 0 && !all)
        return sk_fail(SK_ECONF,
                       "layout: cannot offload \"%s\"; state, weights, grads, acts or all", ware);
    if (t < SK_HOST)
        return sk_fail(SK_ECONF, "layout: cannot offload to \"%s\"; host or file", tier);
    for (int i = all ? 0 : w; i < (all ? SK_N_WARES : w + 1); i++) {
        SK_TRY(once("offload", l->home[i]));
        l->home[i] = (sk_tier)t;
    }
    return SK_OK;
}

/* state+grads:file: to the host where nothing else is said. */
static sk_status set_offload(sk_layout *l, const char *value)
{
    char text[WORD], *rest = text, *item;
    l->home_said = true;
    if (!strcmp(value, "none")) return SK_OK;
    if (!*value) return set_home(l, "", "host");
    snprintf(text, sizeof text, "%s", value);
    while ((item = strsep(&rest, "+"))) {
        char *tier = strchr(item, ':');
        if (tier) *tier++ = 0;
        SK_TRY(set_home(l, item, tier ? tier : "host"));
    }
    return SK_OK;
}

static sk_status say_offload(sk_layout *l, const words *w)
{
    if (w->n < 4 || strcmp(w->w[w->n - 2], "to") != 0)
        return sk_fail(SK_ECONF, "layout: \"offload\" reads \"offload state|weights|grads|acts|all "
                                 "... to host|file\"");
    l->home_said = true;
    for (int i = 1; i + 2 < w->n; i++) SK_TRY(set_home(l, w->w[i], w->w[w->n - 1]));
    return SK_OK;
}

static sk_status set_tiles(sk_layout *l, const char *text)
{
    SK_TRY(once("tiles", l->tiles));
    return between("tiles", text, 1, MOST_PARTS, &l->tiles);
}

static sk_status say_weights(sk_layout *l, const words *w)
{
    if (w->n != 4 || strcmp(w->w[1], "in") || strcmp(w->w[3], "tiles"))
        return sk_fail(SK_ECONF, "layout: \"weights\" reads \"weights in N tiles\"");
    return set_tiles(l, w->w[2]);
}

static sk_status set_gist(sk_layout *l, const char *text)
{
    SK_TRY(once("gist", l->gist));
    if (!strcmp(text, "none")) return SK_OK;
    SK_TRY(number("gist", text, 1, &l->gist));
    return l->gist <= 100 ? SK_OK
                          : sk_fail(SK_ECONF, "layout: gist=%d; 1 to 100 per cent", l->gist);
}

static sk_status say_gist(sk_layout *l, const words *w)
{
    bool all = w->n == 3, some = w->n == 6 && !strcmp(w->w[3], "in") && !strcmp(w->w[5], "percent");
    if ((!all && !some) || strcmp(w->w[1], "kept") || strcmp(w->w[2], "results"))
        return sk_fail(SK_ECONF, "layout: \"encode\" reads \"encode kept results [in N percent]\"");
    return set_gist(l, all ? "100" : w->w[4]);
}

/* "bias_gelu+layernorm": ops whose results are cheap, and are kept all the same. */
static sk_status set_keep_ops(sk_layout *l, const char *text)
{
    char one[sizeof l->keep_ops];
    SK_TRY(once("keep=", *l->keep_ops != 0));
    if (strlen(text) >= sizeof l->keep_ops)
        return sk_fail(SK_ECONF, "layout: keep=%s is longer than %zu letters", text,
                       sizeof l->keep_ops - 1);
    for (const char *at = text; *at; at += *at == '+') {
        size_t n = strcspn(at, "+");
        snprintf(one, sizeof one, "%.*s", (int)n, at);
        const sk_op *op = sk_op_find(one);
        if (!op || !(op->flags & SK_OP_CHEAP))
            return sk_fail(
                SK_ECONF,
                "layout: keep=%s: '%s' is no op whose results are made again; keep=cheap "
                "keeps all of those, keep alone the gathered weights",
                text, one);
        at += n;
    }
    snprintf(l->keep_ops, sizeof l->keep_ops, "%s", text);
    return SK_OK;
}

static sk_status say_keep(sk_layout *l, const words *w)
{
    static const char *const weights[] = {"keep", "gathered", "weights"};
    static const char *const pieces[] = {"keep", "results", "in", "pieces"};
    static const char *const cheap[] = {"keep", "cheap", "results"};
    if (w->n == 4 && !strcmp(w->w[1], "results") && !strcmp(w->w[2], "of"))
        return set_keep_ops(l, w->w[3]);
    bool *word = says(w, weights, 3)  ? &l->keep
                 : says(w, pieces, 4) ? &l->partition
                 : says(w, cheap, 3)  ? &l->keep_cheap
                                      : NULL;
    if (!word)
        return sk_fail(SK_ECONF,
                       "layout: \"keep\" reads \"keep gathered weights\", \"keep results "
                       "in pieces\", \"keep cheap results\" or \"keep results of OP+OP\"");
    *word = true;
    return SK_OK;
}

static sk_status say_canonical(sk_layout *l, const words *w)
{
    static const char *const said[] = {"canonical", "order"};
    l->canonical = says(w, said, 2);
    return l->canonical ? SK_OK
                        : sk_fail(SK_ECONF, "layout: \"canonical\" reads \"canonical order\"");
}

/* --- compressed edges; which codecs there are, the compiler knows --- */

static sk_status set_codec(char name[SK_CODEC_NAME], const char *word, const char *text)
{
    sk_dtype type;
    SK_TRY(once(word, *name));
    if (!strcmp(text, "none")) return SK_OK;
    if (sk_dtype_find(text, &type)) text = sk_dtype_name(type); /* bfloat16: bf16 */
    if (!*text || strlen(text) >= SK_CODEC_NAME)
        return sk_fail(SK_ECONF, "layout: \"%.40s\" is no name for a codec (1 to %d characters)",
                       text, SK_CODEC_NAME - 1);
    snprintf(name, SK_CODEC_NAME, "%s", text);
    return SK_OK;
}

static sk_status set_copy(sk_layout *l, const char *text)
{
    SK_TRY(once("copy", l->copy));
    return number("copy", text, 1, &l->copy);
}

static sk_status say_encode(sk_layout *l, const words *w)
{
    if (w->n > 1 && !strcmp(w->w[1], "kept")) return say_gist(l, w);
    bool as = w->n >= 4 && !strcmp(w->w[2], "as");
    if (as && w->n == 4 && !strcmp(w->w[1], "weights"))
        return set_codec(l->weights_as, "encode weights", w->w[3]);
    bool with = as && w->n == 6 && !strcmp(w->w[4], "with") && !strcmp(w->w[5], "feedback");
    if (!as || strcmp(w->w[1], "gradients") || (w->n != 4 && !with))
        return sk_fail(SK_ECONF, "layout: \"encode\" reads \"encode weights as CODEC\", \"encode "
                                 "gradients as CODEC [with feedback]\" or \"encode kept results "
                                 "[in N percent]\"");
    l->feedback |= with;
    return set_codec(l->grads_as, "encode gradients", w->w[3]);
}

static sk_status say_second(sk_layout *l, const words *w)
{
    static const char *const said[] = {"second", "copy", "of", "weights", "over", "N", "ranks"};
    bool same = w->n == 7;
    for (int i = 0; same && i < 7; i++) same = i == 5 || !strcmp(w->w[i], said[i]);
    if (!same)
        return sk_fail(SK_ECONF,
                       "layout: \"second\" reads \"second copy of weights over N ranks\"");
    return set_copy(l, w->w[5]);
}

static sk_status say_micro(sk_layout *l, const words *w)
{
    if (w->n != 2) return sk_fail(SK_ECONF, "layout: \"micro\" reads \"micro N\"");
    return set_micro(l, w->w[1]);
}

static sk_status say_schedule(sk_layout *l, const words *w)
{
    if (w->n != 2) return sk_fail(SK_ECONF, "layout: \"schedule\" reads \"schedule NAME\"");
    return set_schedule(l, w->w[1]);
}

static const struct verb {
    const char *name;
    sk_status (*say)(sk_layout *l, const words *w);
} verbs[] = {{"mesh", say_mesh},         {"split", say_split},
             {"shard", say_shard},       {"one", say_one},
             {"stages", say_stages},     {"micro", say_micro},
             {"schedule", say_schedule}, {"gather", say_gather},
             {"keep", say_keep},         {"canonical", say_canonical},
             {"overlap", say_overlap},   {"recompute", say_again},
             {"offload", say_offload},   {"weights", say_weights},
             {"encode", say_encode},     {"second", say_second},
             {"results", say_results}};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static const struct verb *verb_of(const words *w)
{
    for (int i = 0; i < N_VERBS; i++)
        if (w->n && !strcmp(w->w[0], verbs[i].name)) return &verbs[i];
    return NULL;
}

/* --- the short form --- */

typedef struct shorts {
    int size[N_SUGAR]; /* 0: not named */
    int zero;          /* -1: not named */
    bool sp;
    char by[WORD];
    char order[N_SUGAR][SK_AXIS_NAME];
    int n_order;
} shorts;

static int sugar_find(const char *name)
{
    for (int i = 0; i < N_SUGAR; i++)
        if (!strcmp(sugar[i].axis, name)) return i;
    return -1;
}

static sk_status set_zero(shorts *s, const char *text)
{
    SK_TRY(once("zero", s->zero >= 0));
    SK_TRY(number("zero", text, 0, &s->zero));
    return s->zero <= 3 ? SK_OK : sk_fail(SK_ECONF, "layout: zero=%d; 0 to 3 exist", s->zero);
}

static bool *flag_of(sk_layout *l, shorts *s, const char *word)
{
    return !strcmp(word, "sp")          ? &s->sp
           : !strcmp(word, "replica")   ? &l->replica
           : !strcmp(word, "balance")   ? &l->balance
           : !strcmp(word, "keep")      ? &l->keep
           : !strcmp(word, "partition") ? &l->partition
           : !strcmp(word, "feedback")  ? &l->feedback
                                        : NULL;
}

static sk_status set_flag(bool *flag, const char *word, const char *value)
{
    SK_TRY(once(word, *flag));
    *flag = !value;
    if (!value || !strcmp(value, "none")) return SK_OK;
    return sk_fail(SK_ECONF, "layout: \"%s\" takes no value", word);
}

/* The known word that is spelled nearest. */
static const char *near_word(const char *word)
{
    const char *names[MAX_WORDS];
    int n = 0;
    for (; n < MAX_WORDS && sk_layout_words[n].name; n++) names[n] = sk_layout_words[n].name;
    return sk_nearest(word, names, n);
}

static sk_status unknown(const char *word)
{
    const char *say = sk_layout_alias(word), *near = near_word(word);
    if (say) return sk_fail(SK_ECONF, "layout: \"%s\" is said here with %s", word, say);
    return sk_fail(SK_ECONF, "layout: unknown word \"%s\"%s%s%s", word,
                   near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

static sk_status no_value(const char *word)
{
    for (int i = 0; i < N_VERBS; i++)
        if (!strcmp(word, verbs[i].name) && strcmp(word, "micro") && strcmp(word, "schedule"))
            return sk_fail(SK_ECONF,
                           "layout: \"%s\" begins a sentence; put it on a line of its own, or "
                           "behind a ';'",
                           word);
    const sk_layout_word *known = sk_layout_word_find(word);
    if (!known) return unknown(word);
    return sk_fail(SK_ECONF, "layout: \"%s\" needs a value, %s, as in \"%s\"", word, known->spell,
                   known->example);
}

static sk_status short_word(sk_layout *l, shorts *s, char *word)
{
    char *eq = strchr(word, '=');
    const char *value = eq ? eq + 1 : "";
    if (eq) *eq = 0;
    int which = sugar_find(word);
    bool *flag = flag_of(l, s, word);
    if (flag == &l->keep && !strcmp(value, "cheap"))
        return set_flag(&l->keep_cheap, "keep=cheap", NULL);
    if (flag == &l->keep && eq && *value && strcmp(value, "none")) return set_keep_ops(l, value);
    if (flag) return set_flag(flag, word, eq ? value : NULL);
    if (!strcmp(word, "gist")) return set_gist(l, eq ? value : "100");
    if (!eq) return no_value(word);
    if (which >= 0) {
        if (s->size[which]) return sk_fail(SK_ECONF, "layout: '%s' is named twice", word);
        return number(word, value, 1, &s->size[which]);
    }
    if (!strcmp(word, "zero")) return set_zero(s, value);
    if (!strcmp(word, "micro")) return set_micro(l, value);
    if (!strcmp(word, "chunks")) return set_chunks(l, value);
    if (!strcmp(word, "prefetch")) return set_prefetch(l, word, value);
    if (!strcmp(word, "overlap")) return set_overlap(l, value);
    if (!strcmp(word, "tiles")) return set_tiles(l, value);
    if (!strcmp(word, "slices")) return set_slices(l, value);
    if (!strcmp(word, "by")) {
        SK_TRY(once(word, *s->by));
        snprintf(s->by, sizeof s->by, "%s", value);
        return SK_OK;
    }
    if (!strcmp(word, "recompute")) return set_again(l, value);
    if (!strcmp(word, "offload")) return set_offload(l, value);
    if (!strcmp(word, "schedule")) return set_schedule(l, value);
    if (!strcmp(word, "weights")) return set_codec(l->weights_as, word, value);
    if (!strcmp(word, "grads")) return set_codec(l->grads_as, word, value);
    if (!strcmp(word, "copy")) return set_copy(l, value);
    return unknown(word);
}

/* Letters are implied for the axes that short words make, not for those of a "mesh" line. */
static sk_status short_mesh(sk_layout *l, shorts *s)
{
    int first = l->mesh.n;
    for (int i = 0; i < s->n_order; i++) {
        int which = sugar_find(s->order[i]);
        if (which < 0)
            return sk_fail(SK_ECONF, "layout: \"order:\" names no axis \"%s\"", s->order[i]);
        for (int k = 0; k < i; k++) SK_TRY(once(s->order[i], !strcmp(s->order[i], s->order[k])));
        if (s->size[which]) SK_TRY(axis_add(&l->mesh, sugar[which].axis, s->size[which]));
        s->size[which] = 0;
    }
    for (int i = 0; i < N_SUGAR; i++)
        if (s->size[i]) SK_TRY(axis_add(&l->mesh, sugar[i].axis, s->size[i]));
    for (int a = first; a < l->mesh.n; a++) {
        SK_TRY(split_letters(l, a, sugar[sugar_find(l->mesh.name[a])].letters));
        if (!strcmp(l->mesh.name[a], "pp")) {
            SK_TRY(once("stages (pp)", l->stage_axis >= 0));
            l->stage_axis = a;
        }
        if (s->sp && !strcmp(l->mesh.name[a], "tp")) SK_TRY(split_letters(l, a, "t"));
        if (*s->by && !strcmp(l->mesh.name[a], "cp")) SK_TRY(set_by(l, a, s->by));
    }
    if (s->zero <
        0) /* a replica needs at least 1; over dp, if that is not for a mesh line to say */
        s->zero = l->replica && !l->shard && (!first || sk_mesh_axis(&l->mesh, "dp") >= 0);
    if (!s->zero) return SK_OK;
    SK_TRY(once("shard (zero)", l->shard));
    l->shard = (sk_shard)s->zero;
    l->shard_axis = sk_mesh_axis(&l->mesh, "dp");
    if (l->shard_axis >= 0) return SK_OK;
    SK_TRY(axis_add(&l->mesh, "dp", 1));
    l->shard_axis = l->mesh.n - 1;
    return split_letters(l, l->shard_axis, "b");
}

/* A word that would change nothing is a mistake. */
static sk_status short_idle(const shorts *s)
{
    if (s->sp && !s->size[sugar_find("tp")])
        return sk_fail(SK_ECONF, "layout: \"sp\" splits time over tp, and there is no tp; add tp=2 "
                                 "or leave sp out");
    if (*s->by && !s->size[sugar_find("cp")])
        return sk_fail(SK_ECONF,
                       "layout: \"by=%s\" says how cp splits time, and there is no cp; "
                       "add cp=2 or leave by out",
                       s->by);
    return SK_OK;
}

static sk_status read_short(sk_layout *l, const words *w)
{
    shorts s = {.zero = -1};
    for (int i = 0; i < w->n; i++) {
        char word[WORD];
        snprintf(word, sizeof word, "%s", w->w[i]);
        if (!strcmp(word, "order:")) {
            if (w->n - i - 1 > N_SUGAR)
                return sk_fail(SK_ECONF, "layout: over %d words behind \"order:\"", N_SUGAR);
            while (++i < w->n) snprintf(s.order[s.n_order++], SK_AXIS_NAME, "%.15s", w->w[i]);
            break;
        }
        SK_TRY(short_word(l, &s, word));
    }
    SK_TRY(short_idle(&s));
    return short_mesh(l, &s);
}

/* --- both --- */

sk_status sk_layout_read(const char *text, int n_ranks, sk_layout *out)
{
    sk_layout l = {.shard_axis = -1, .stage_axis = -1};
    bool shorted = false;
    if (strlen(text) > 4000) return sk_fail(SK_ECONF, "layout: more than 4000 characters");
    for (const char *p = text; *p;) {
        size_t said = strcspn(p, "\n;#"), len = said;
        words w;
        if (p[said] == '#')
            len += strcspn(p + said, "\n"); /* a comment reaches to the line's end */
        SK_TRY(take_words(p, said, &w));
        const struct verb *v = verb_of(&w);
        if (v) SK_TRY(v->say(&l, &w));
        else if (w.n && shorted)
            return sk_fail(SK_ECONF, "layout: two lines of short words; put them in one");
        else if (w.n) {
            SK_TRY(read_short(&l, &w));
            shorted = true;
        }
        p += len + (p[len] != 0);
    }
    if (!l.mesh.n) SK_TRY(axis_add(&l.mesh, "dp", 1));
    if (!l.schedule_said) snprintf(l.schedule, sizeof l.schedule, "%s", sk_usual_schedule);
    SK_TRY(sk_layout_sense(&l, n_ranks));
    *out = l;
    return SK_OK;
}
