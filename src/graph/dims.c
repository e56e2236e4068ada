/* dims.c - "*c!,c!->*c" and the letters that the operands really have.
 *
 * Binding walks the pattern and the tensors side by side: a letter of the
 * pattern stands for the letter found at its place, the same everywhere. */
#include "graph/dims.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct binding {
    char to[128];              /* pattern letter -> real letter, 0 while unbound */
    char star[SK_MAX_DIM + 1]; /* what '*' stands for */
    bool has_star, star_known;
} binding;

/* The i-th operand of the pattern; outputs count from n_in.  Returns its length. */
static int operand(const char *dims, int n_in, int i, const char **start)
{
    const char *p = dims;
    if (i >= n_in) {
        p = strstr(dims, "->") + 2;
        i -= n_in;
    }
    for (; i > 0 && p; i--) {
        p = strpbrk(p, ",-");
        p = p && *p == ',' ? p + 1 : NULL;
    }
    *start = p;
    return p ? (int)strcspn(p, ",-") : -1;
}

static int plain_letters(const char *p, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++) count += isalpha((unsigned char)p[i]) != 0;
    return count;
}

/* Learn from one input what the pattern's letters stand for. */
static sk_status learn(const sk_node *node, int i, const char *p, int n, binding *b)
{
    const char *real_letters = node->in[i]->letters;
    int have = (int)strlen(real_letters), plain = plain_letters(p, n), at = 0;
    bool star = memchr(p, '*', (size_t)n) != NULL;
    if (star ? have < plain : have != plain)
        return sk_fail(SK_ECONF, "%s: operand %d '%s' has the dims \"%s\", \"%.*s\" is needed",
                       node->op->name, i, node->in[i]->name, real_letters, n, p);
    for (int k = 0; k < n; k++) {
        if (p[k] == '!' || p[k] == '^') continue;
        if (p[k] == '*') {
            char found[SK_MAX_DIM + 1] = "";
            memcpy(found, real_letters + at, (size_t)(have - plain));
            if (b->star_known && strcmp(found, b->star))
                return sk_fail(SK_ECONF, "%s: '*' is \"%s\" in operand %d '%s' and \"%s\" before",
                               node->op->name, found, i, node->in[i]->name, b->star);
            memcpy(b->star, found, sizeof found);
            b->star_known = true;
            at += have - plain;
            continue;
        }
        char *to = &b->to[(int)p[k]], real_letter = real_letters[at++];
        if (*to && *to != real_letter)
            return sk_fail(SK_ECONF, "%s: '%c' is '%c' in one operand and '%c' in operand %d '%s'",
                           node->op->name, p[k], *to, real_letter, i, node->in[i]->name);
        *to = real_letter;
    }
    return SK_OK;
}

/* Spell one operand in real letters: plain into letters, with '!' and '^' into text. */
static sk_status spell(const sk_node *node, const char *p, int n, const binding *b, char *letters,
                       char **text, char *whole, uint8_t *far)
{
    int at = 0;
    for (int k = 0; k < n; k++) {
        char one[2] = {0}, *last = one;
        const char *add = one;
        if (p[k] == '*') add = b->star;
        else if (p[k] == '!') {
            *(*text)++ = '!';
            whole[strlen(whole)] = (*text)[-2];
            continue;
        } else if (p[k] == '^') {
            *(*text)++ = '^';
            *far |= (uint8_t)(1 << (at - 1));
            continue;
        } else *last = b->to[(int)p[k]] ? b->to[(int)p[k]] : p[k]; /* new in an output */
        if (at + (int)strlen(add) > SK_MAX_DIM)
            return sk_fail(SK_ECONF, "%s: more than %d dims in one operand", node->op->name,
                           SK_MAX_DIM);
        for (; *add; add++) letters[at++] = *add, *(*text)++ = *add;
    }
    letters[at] = 0;
    return SK_OK;
}

/* Letters, each with at most one '!' or '^' behind it; one '*' an operand; ',' and one "->"
 * between. */
static bool well_formed(const char *dims, const char *arrow)
{
    int stars = 0;
    if (!arrow || strlen(dims) > 120) return false;
    for (const char *p = dims; *p; p++) {
        bool gap = *p == ',' || p == arrow;
        if (p == arrow) p++;
        if (gap) stars = 0;
        else if (*p == '*' && ++stars > 1) return false;
        else if ((*p == '!' || *p == '^') && (p == dims || !isalpha((unsigned char)p[-1])))
            return false;
        else if (!strchr("*!^", *p) && !isalpha((unsigned char)*p)) return false;
    }
    return true;
}

static sk_status check_pattern(const sk_node *node, const char *dims)
{
    int commas = 0, after = 0;
    const char *arrow = dims ? strstr(dims, "->") : NULL;
    for (const char *p = dims; p && *p; p++)
        if (*p == ',') p < arrow ? commas++ : after++;
    if (!dims || !well_formed(dims, arrow))
        return sk_fail(SK_ECONF, "%s: \"%s\" is no dims line like \"mk,kn->mn\"", node->op->name,
                       dims ? dims : "(none)");
    if (commas + 1 != node->n_in || after + 1 != node->n_out)
        return sk_fail(SK_ECONF,
                       "%s: \"%s\" names %d operands and %d results, the op has %d and %d",
                       node->op->name, dims, commas + 1, after + 1, node->n_in, node->n_out);
    return SK_OK;
}

sk_status sk_dims_bind(sk_graph *g, sk_node *n, const char *dims)
{
    binding b = {0};
    const char *p = NULL;
    char *text = sk_alloc(g->arena, 256), *at = text;
    SK_TRY(check_pattern(n, dims));
    for (int i = 0; i < n->n_in; i++) {
        int len = operand(dims, n->n_in, i, &p);
        SK_TRY(learn(n, i, p, len, &b));
    }
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        int len = operand(dims, n->n_in, i, &p), o = i - n->n_in;
        char *letters = o < 0 ? n->letters_in[i] : n->letters_out[o];
        if (i) *at++ = o ? ',' : '-';
        if (!o) *at++ = '>';
        SK_TRY(spell(n, p, len, &b, letters, &at, n->not_split,
                     o < 0 ? &n->gathered_in[i] : &n->gathered_out[o]));
    }
    n->dims = text;
    return SK_OK;
}

bool sk_dims_sample(const char *text, char letters[SK_MAX_DIM + 1], int64_t size[SK_MAX_DIM])
{
    int n = 0;
    while (isalpha((unsigned char)*text)) {
        if (n == SK_MAX_DIM) return false;
        letters[n] = *text++;
        size[n] = 0;
        while (isdigit((unsigned char)*text)) size[n] = size[n] * 10 + (*text++ - '0');
        n++;
    }
    letters[n] = 0;
    return !*text || *text == '%';
}
