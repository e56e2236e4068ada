/* model.h - a model part: a function that writes a graph, and how its tensors are called elsewhere.
 *
 * A model file knows letters and arithmetic, nothing of ranks.  Its parameters
 * have names of their own; `hf` tells, tensor by tensor, where each lies in a
 * Hugging Face directory. */
#ifndef SK_MODEL_MODEL_H
#define SK_MODEL_MODEL_H

#include "graph/graph.h"
#include "model/hyper.h"

typedef enum sk_mode { SK_TRAIN, SK_DECODE } sk_mode;

/* One tensor of a Hugging Face directory.  `dims` lists the letters of our tensor in the order
 * of their file, with ',' between the dims of the file: "c,shd" is a matrix [c, s*h*d].  `slice`
 * (0: none) is a letter of which the file tensor holds only [from, to). */
typedef struct sk_hf {
    const char *file_name; /* "transformer.h.0.attn.c_attn.weight" */
    const char *name;      /* ours: "h.0.attn.qkv.w" */
    const char *dims;
    char slice;
    int64_t from, to;
} sk_hf;

/* A key of config.json, or of `model.`, and the field of sk_hyper that it sets.  A key may stand in
 * two rows and set two fields.  Rows are written to config.json in this order. */
typedef struct sk_hf_key {
    const char *name, *field;
} sk_hf_key;

/* A key of config.json of which skein computes only one value, "null" or none: any other value is
 * refused by name.  Written to config.json as it stands here. */
typedef struct sk_hf_only {
    const char *name, *value;
} sk_hf_only;

/* A tensor that files hold once more where it is tied to another one, by their names. */
typedef struct sk_hf_tie {
    const char *name, *same_as;
} sk_hf_tie;

typedef struct sk_preset {
    const char *name;
    sk_hyper hyper;
} sk_preset;

typedef struct sk_model {
    const char *name, *doc;
    const sk_preset *presets; /* a preset without a name ends the list */
    sk_hyper usual;           /* values for keys that are left out (0: must be given) */
    const sk_field *own;      /* fields of this model alone (SK_OWN_INT), or NULL; {0} ends them */
    /* Write the graph.  Letters b and t are already sized; the rest is the model's.  Inputs:
     * those that a source declares (data/data.h): "tokens" and "pos" (i32 bt), "targets" (i32 bt),
     * "weights" (f32 bt) of text; "pixels" (f32 bx), "targets" (i32 b), "weights" (f32 b) of
     * images. */
    void (*build)(sk_graph *g, const sk_hyper *h, sk_mode mode);
    /* The i-th tensor of the Hugging Face form; false past the end. */
    bool (*hf)(sk_arena *a, const sk_hyper *h, int i, sk_hf *out);
    /* config.json (train/hf_config.h): the class that reads it there, what that class assumes of
     * keys that are left out, the keys of the family, keys that have one possible value, and names
     * of tensors in files that are no parameters (ends of names; NULL ends the list). */
    const char *hf_class;
    sk_hyper hf_default;
    const sk_hf_key *const *hf_keys;
    const sk_hf_only *const *hf_only;
    const char *const *hf_buffers;
    sk_hf_tie hf_tie;
    /* What other programs would leave out of that form, in words; "" for nothing.  May be NULL. */
    char *(*hf_extra)(sk_arena *a, const sk_hyper *h);
} sk_model;

extern const sk_model *const sk_model_parts[];
const sk_model *sk_model_find(const char *name);
/* A preset of any model part by name: fills *out and returns its model, or NULL. */
const sk_model *sk_model_preset(const char *name, sk_hyper *out);
/* The i-th field that a model may have: those of sk_hyper_fields, then its own; NULL past the last.
 * Without a model: those of sk_hyper_fields alone. */
const sk_field *sk_model_field(const sk_model *m, int i);
const sk_field *sk_model_field_find(const sk_model *m, const char *name);
/* Does this model have the field: is there a key that sets it?  A field of its own that no key of
 * its list sets is a key by itself. */
bool sk_model_has(const sk_model *m, const sk_field *f);
/* The i-th field that the key NAME of this model sets (one of its own keys, or the name of a field
 * that it has), NULL past the last. */
const sk_field *sk_model_sets(const sk_model *m, const char *name, int i);
/* What this model calls a field: "n_embd" for hidden_size. */
const char *sk_model_key(const sk_model *m, const char *field);

/* Every field within its range, and heads that fit.  Sizes come from outside: no graph may be built
 * from a hyper that has not passed.  `who` begins the sentence: "model nano", "DIR/config.json". */
sk_status sk_model_check(const char *who, const sk_model *m, const sk_hyper *h);

#endif
