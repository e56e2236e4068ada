/* word.h - a word of a layout, as a part: parts/word/NAME.c defines `const sk_word sk_word_NAME`.
 *
 * A word has a short form ("overlap=4") and sentences ("overlap in 4 chunks").  Reading, printing,
 * hints, help, `skein list word`, exclusions and the random pairs of the tests (test/lib/draw.c)
 * come from the table; nothing outside of parts/word spells a word.  A new flag or integer needs no
 * member of sk_layout either: its value is sk_layout.own[], and sk_word_value() reads it.
 *
 *     const sk_word sk_word_slices = {
 *         .name = "slices",
 *         .doc = "logits and hidden layers are computed and used in N slices along the batch ...",
 *         .value = "N", .kind = SK_WORD_INT, .least = 1, .most = 4096, .off = 1,
 *         .sentence = {"results in N slices"},
 *         .example = "slices=4",
 *         .place = 170, a number that no other word has: where its sentence is printed
 *     };
 *
 * In a sentence, a word with capitals or '|' is a placeholder; with "..." behind it, it stands for
 * one or more words.  A clause is a sentence that stands behind another one: "stages over pp micro
 * 8".  */
#ifndef SK_LAYOUT_WORD_H
#define SK_LAYOUT_WORD_H

#include "base/strings.h"
#include "layout/layout.h"

struct sk_optim;
struct sk_pass;
typedef struct sk_word sk_word;

typedef enum sk_word_kind {
    SK_WORD_FLAG,  /* "sp"; "sp=none" asks for nothing */
    SK_WORD_INT,   /* "micro=8" */
    SK_WORD_AXIS,  /* "dp=2": an axis of that name, which splits .letters */
    SK_WORD_ORDER, /* "order: pp dp": the axes of short words, slowest first */
    SK_WORD_OTHER  /* has .set, .on and .print */
} sk_word_kind;

/* What a word is for.  test/layout/words.c measures it with the word and without. */
typedef enum sk_lowers {
    SK_LOWERS_NOTHING, /* that a program shows */
    SK_LOWERS_WEIGHTS, /* bytes of stored weights */
    SK_LOWERS_STATE,   /* bytes of stored gradients and optimizer state */
    SK_LOWERS_SAVED,   /* bytes, at their peak, of activations that wait for the backward pass */
    SK_LOWERS_DEVICE,  /* bytes of device memory */
    SK_LOWERS_WIRE,    /* bytes that leave ranks in a step */
    SK_LOWERS_FLOPS,   /* of the rank that has most; all else is summed over the ranks */
    SK_LOWERS_WAITING, /* time in which ranks wait for bytes or for other ranks */
    SK_N_LOWERS
} sk_lowers;
extern const char *const sk_lowers_names[SK_N_LOWERS];

enum { SK_WORD_TEXT = 128, SK_WORDS_A_LINE = 64, SK_WORD_PASSES = 3, SK_WORD_ALIASES = 4 };

/* The placeholders of a sentence, in order; those with "..." are `many`. */
typedef struct sk_phrase {
    const char *v[4], *many[SK_WORDS_A_LINE];
    int n, n_many;
} sk_phrase;

/* A text that is being read. */
typedef struct sk_reading {
    sk_layout *l;
    bool said[SK_MOST_WORDS]; /* by place in the table */
    int first;     /* axes from this one on were made by short words; -1: there were none yet */
    int axis;      /* of the sentence that is read: over which it goes; -1: none */
    bool repeated; /* the short word was on this line before */
} sk_reading;

/* What a word may depend on beside the layout. */
typedef struct sk_word_ask {
    const sk_layout *layout;
    const sk_graph *graph;        /* NULL: not known */
    const struct sk_optim *optim; /* NULL: nothing is trained */
    bool async;                   /* stages update within the step, without a flush */
    bool stale;     /* and backward tasks read other weights than their forward tasks did */
    bool late;      /* optim.late: the update runs beside the next step */
    bool gpu;       /* the device */
    sk_dtype dtype; /* of the weights */
} sk_word_ask;

/* Random numbers of a test: (seed, number, how many were drawn). */
typedef struct sk_dice {
    uint64_t seed, number, drawn;
    int most;   /* micro-batches */
    int blocks; /* of the model; 0: not known */
} sk_dice;
int sk_dice_pick(sk_dice *d, int from, int to); /* both included */
bool sk_dice_one_in(sk_dice *d, int n);

struct sk_word {
    const char *name, *doc;  /* doc: one line, without a full stop */
    const char *value;       /* behind '=', for help: "N"; "[=N]": it may be left out; NULL: none */
    const char *sentence[3]; /* the long forms */
    const char *clause_of;   /* the sentence is a clause, of sentences that begin so */
    bool alone;              /* of a clause: it may be a sentence of its own, too */
    bool no_short;           /* there are sentences only */
    const char *example;     /* a whole layout */
    sk_alias alias[SK_WORD_ALIASES];
    /* Is `name` a value of it, here or in other programs ("diloco", "easgd")?  Writes how it is
     * said here, as an alias does.  NULL: nobody would take one for a word. */
    void (*value_named)(const char *name, sk_out *o);

    sk_word_kind kind;
    int least, most;     /* INT; most 0: as many as there may be ranks */
    int off;             /* INT: the largest number that asks for nothing */
    size_t at;           /* FLAG, INT: offsetof(sk_layout, member); 0: a place of sk_layout.own */
    const char *letters; /* AXIS: what it splits */
    bool again;          /* may be said more than once; .set looks after it */
    int place;           /* sentences are printed in this order; AXIS: slowest first */
    const char *brief;   /* for sk_layout_short(): "slices N"; NULL: the name of a flag, name and
                            number of an int */
    int brief_place;     /* 0: place */

    /* Reading and printing.  Each may be NULL where the kind says enough. */
    sk_status (*set)(sk_reading *r, const char *value);  /* value NULL: there is no '=' */
    sk_status (*say)(sk_reading *r, const sk_phrase *s); /* NULL: set(v[0]) */
    sk_status (*finish)(sk_reading *r);                  /* at the end of the line of short words */
    sk_status (*complete)(sk_reading *r);                /* at the end of the text */
    bool (*on)(const sk_layout *l);
    void (*clear)(sk_layout *l);                        /* as if it were not said */
    void (*print)(const sk_layout *l, sk_out *o);       /* sentences, '\n' between them */
    void (*print_brief)(const sk_layout *l, sk_out *o); /* instead of brief */

    /* Validity.  Where it does not work: "layout: NAME is about ABOUT; use CURE or leave it out".
     */
    bool (*works)(const sk_layout *l);
    const char *about, *cure;
    sk_status (*check)(const sk_layout *l);      /* what else the layout alone shows; only if on */
    sk_status (*fits)(const sk_word_ask *ask);   /* the rest; asked of every word, said or not */
    void (*idle)(const sk_layout *l, sk_out *o); /* a warning: "X has nothing to do: why" */
    bool (*plain)(
        const sk_layout *l); /* NULL, or: it was said, and is not on: idle is asked, too */
    /* Each pair stands in one of the two files.  from: the least value of the other; 0: any. */
    struct {
        const char *word;
        int from;
        const char *why;
    } excludes[6];

    /* What it is for, and where it must lower that, whatever else the layout has; NULL: in its
     * example alone. */
    sk_lowers lowers;
    bool (*claims)(const sk_word_ask *ask);

    /* A phrase for a random layout, given what is drawn so far; NULL: as its kind says. */
    bool (*draw)(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT]);
    /* Values that a search for a layout tries (plan/layout_search.h), "2 4 8"; "yes" of a word
     * without values; of an axis: factors of the number of ranks are.  NULL: it is not tried. */
    const char *tries;
    const char *tries_with; /* tried only together with that, "schedule=interleaved"; NULL: none */
    bool lossy; /* a job has other results with it: tried only where that is asked for */
    const struct sk_pass *pass[SK_WORD_PASSES]; /* rewrites of the program: program/pass.h */
};

extern const sk_word *const sk_word_parts[];

/* --- the table --- */

const sk_word *sk_word_find(const char *name); /* NULL: there is none */
bool sk_word_on(const sk_word *w, const sk_layout *l);
int sk_word_value(const sk_word *w, const sk_layout *l); /* FLAG, INT */
void sk_word_put(const sk_word *w, sk_layout *l, int value);
void sk_word_clear(const sk_word *w, sk_layout *l);
bool sk_word_excludes(const sk_word *w, const sk_word *other); /* either of the two says so */
/* "overlap=N", "sp", "order: AXIS ...", "canonical order" */
char *sk_word_spell(sk_arena *a, const sk_word *w);
/* Its sentences, what it lowers, what it does not go with: one line. */
char *sk_word_about(sk_arena *a, const sk_word *w);
/* The words in the order of .place (of .brief_place), NULL-ended. */
void sk_words_in_order(bool brief, const sk_word *to[SK_MOST_WORDS + 1]);
/* Is there a word that cannot do with the model, schedule, optimizer or device?  validate.c */
sk_status sk_layout_fits(const sk_word_ask *ask);
/* A random phrase of the word, by .draw or its kind; false: none this time. */
bool sk_word_draw(const sk_word *w, sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT]);

/* --- for the files of words --- */

sk_status sk_word_twice(const sk_word *w); /* the error */
bool sk_word_said(const sk_reading *r, const char *name);
/* "'micro' needs a whole number from 1 to 4096, found ..." */
sk_status sk_word_int(const char *name, const char *text, int least, int most, int *out);
/* The name of a codec; of a dtype as it is usually called; "none": empty. */
sk_status sk_word_codec(const char *text, char to[SK_CODEC_NAME]);
sk_status sk_axis_add(sk_mesh *m, const char *name, int size);
sk_status sk_axis_find(const sk_layout *l, const char *name, int *out);
/* The letters, each once, over the axis. */
sk_status sk_axis_split(sk_layout *l, int axis, const char *letters);
int sk_axis_size(const sk_layout *l, int axis); /* 1: axis -1 */
/* Several words are about these. */
bool sk_words_letter(const sk_graph *g, char letter); /* some tensor has it */
bool sk_words_gathered(const sk_layout *l); /* weights are sharded, and gathered to be used */
bool sk_words_repeated(const sk_layout *l); /* some axis splits more than batch, time, experts */
int sk_words_repeats(const sk_layout *l);   /* over how many ranks such axes go */
/* The axis is the only one that has ranks, and the model has what it cuts. */
bool sk_axis_claims(const sk_word_ask *ask, const char *name);

#endif
